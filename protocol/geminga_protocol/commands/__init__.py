"""Functions that make the ready frames of commands (spec PR-05), by family and for both roles; of
other commands `encode.framed` does.

Optional fields are keywords; None leaves the field out. What has a default on the wire is left out
where it is the default, unless Apache's own side always writes it.
"""
