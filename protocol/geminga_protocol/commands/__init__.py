"""Builders of commands' frames (spec PR-05), by family and for both roles. For other commands use
`encode.framed`.

Optional fields are keywords; None leaves the field out. A field that equals the wire's default is
left out, unless Apache's own side always writes it.
"""
