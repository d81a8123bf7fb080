"""Every command as a function that answers its ready frame (spec PR-05), by family and for both
roles.

Optional fields are keywords; None leaves the field out. What has a default on the wire is left out
where it is the default, unless Apache's own side always writes it.
"""

from geminga_protocol.commands import (
    answers,
    connection,
    consuming,
    lookup,
    producing,
    schemas,
    transactions,
)
from geminga_protocol.frames import SUBMESSAGE

__all__ = [
    "SUBMESSAGE",
    "answers",
    "connection",
    "consuming",
    "lookup",
    "producing",
    "schemas",
    "transactions",
]
