"""Names of topics: pure."""

from __future__ import annotations

import re

_PARTITION = re.compile(r"(.+)-partition-(0|[1-9]\d{0,9})")


def full_name(text: str) -> str:
    """A topic's name in full: `t` is `persistent://public/default/t`, `a/b/t` is
    `persistent://a/b/t`. What is no name stays as it is; the broker will say so.
    """
    if "://" in text:
        return text
    return f"persistent://{text}" if text.count("/") == 2 else f"persistent://public/default/{text}"


def partition_of(name: str) -> tuple[str, int]:
    """The partitioned topic that a full name is a partition of, and which; (the name, -1) for a
    name of no partition.
    """
    match = _PARTITION.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, -1)
