"""Names of topics: pure."""

from __future__ import annotations

import re

_PARTITION = re.compile(r"(.+)-partition-(0|[1-9]\d{0,9})")


def full_name(text: str) -> str:
    """The full name of a topic: `t` is `persistent://public/default/t`, `a/b/t` is
    `persistent://a/b/t`. An invalid name stays as it is; the broker refuses it.
    """
    if "://" in text:
        return text
    return f"persistent://{text}" if text.count("/") == 2 else f"persistent://public/default/{text}"


def partition_of(name: str) -> tuple[str, int]:
    """The partitioned topic of a partition's full name, and the partition's number; (name, -1) if
    the name is not a partition's.
    """
    match = _PARTITION.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, -1)
