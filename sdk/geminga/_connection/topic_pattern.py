"""Topics by a regular expression (spec SDK-26; PIP-145, TopicList of the Java client). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from geminga._options.checks import fits
from geminga.errors import InvalidArgumentError
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.topic_name import TopicName

PATTERN_BYTES_MAX = 60 * 1024
"""Brokers close the connection at a longer command."""

Listed = dict[TopicName, set[TopicName]]
"""By topic name without partition: the names in the broker's list."""


class TopicPattern(NamedTuple):
    """A pattern over the topics of one namespace; `text` is sent to the broker."""

    namespace: str
    text: str

    @property
    def below_domain(self) -> str:
        """The pattern for the whole topic name without `domain://`."""
        return self.text.partition("://")[2]


def parse_pattern(pattern: re.Pattern[str]) -> TopicPattern:
    """Parse `[domain://]tenant/namespace/regex`, or a regex for `public/default`. Raises
    InvalidArgumentError.
    """
    text = pattern.pattern
    if not isinstance(text, str) or not text:
        raise InvalidArgumentError("topic: the pattern must be a text that isn't empty")
    fits("topic: a pattern", (text,), bytes_max=PATTERN_BYTES_MAX)
    domain, separator, rest = text.rpartition("://")
    if not separator:
        domain = "persistent"
        if rest.count("/") < 2:
            rest = f"public/default/{rest}"
    parts = rest.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise InvalidArgumentError(f"topic: {text!r} is not [domain://]tenant/namespace/regex")
    return TopicPattern(f"{parts[0]}/{parts[1]}", f"{domain}://{rest}")


def names_matching(
    pattern: TopicPattern, names: Iterable[str], *, flags: int = 0, filtered: bool
) -> list[TopicName]:
    """Matching topics of a broker's list, sorted by name; a partitioned one is listed once.

    A list `filtered` by the broker is not filtered again: its regular expressions may differ.
    """
    return sorted(listed_matching(pattern, names, flags=flags, filtered=filtered), key=str)


def listed_matching(
    pattern: TopicPattern, names: Iterable[str], *, flags: int = 0, filtered: bool
) -> Listed:
    """Matching topics with their names in the list: the topic's, or those of its partitions."""
    listed: Listed = {}
    for text in names:
        name = parsed(text)
        if name is not None:
            listed.setdefault(name.partitioned_base, set()).add(name)
    if filtered:
        return listed
    matches = re.compile(pattern.below_domain, flags).fullmatch
    return {base: names for base, names in listed.items() if matches(str(base).partition("://")[2])}


def parsed(name: str) -> TopicName | None:
    """The parsed name; None if it is invalid."""
    try:
        return TopicName.parse(name)
    except LocalProtocolError:
        return None
