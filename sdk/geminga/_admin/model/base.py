"""The base of the types of bodies and answers.

Fields have Python's names for those of Apache's JSON. Fields of an answer that a type lacks are
left out; those that the answer lacks have their default. None stands for "not set".
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

_PART = re.compile(r"_([a-z0-9])")
_IRREGULAR: Mapping[str, str] = {
    "retention_size_in_mb": "retentionSizeInMB",
    "file_system_uri": "fileSystemURI",
}
"""Names that the rule for camel case gets wrong."""


def java_name(name: str) -> str:
    """The JSON name of a field in Apache's camel case."""
    known = _IRREGULAR.get(name)
    return known or _PART.sub(lambda match: match[1].upper(), name)


class Model(msgspec.Struct, kw_only=True, rename=java_name):
    """A body or an answer. Fields that are None are not sent."""


Json = dict[str, object]
"""A JSON object that no type describes."""

Names = list[str]
"""Names, in the order of the answer."""
