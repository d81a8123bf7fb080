"""Topics by a regular expression (spec SDK-26; PIP-145, TopicList of the Java client). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from geminga.errors import InvalidArgument
from geminga_protocol.topic_name import TopicName


class TopicPattern(NamedTuple):
    """A pattern over the topics of one namespace; `text` is as the broker gets it."""

    namespace: str
    text: str

    @property
    def below_domain(self) -> str:
        """What a topic's name without `domain://` has to match as a whole."""
        return self.text.partition("://")[2]


def parse_pattern(pattern: re.Pattern[str]) -> TopicPattern:
    """Reads `[domain://]tenant/namespace/regex`, or a regex for `public/default`. Raises
    InvalidArgument.
    """
    text = pattern.pattern
    if not isinstance(text, str) or not text:
        raise InvalidArgument("topic: the pattern must be a text that isn't empty")
    domain, separator, rest = text.rpartition("://")
    if not separator:
        domain = "persistent"
        if rest.count("/") < 2:
            rest = f"public/default/{rest}"
    parts = rest.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise InvalidArgument(f"topic: {text!r} is no [domain://]tenant/namespace/regex")
    return TopicPattern(f"{parts[0]}/{parts[1]}", f"{domain}://{rest}")


def topics_matching(
    pattern: TopicPattern, names: Iterable[str], *, flags: int = 0, filtered: bool
) -> list[TopicName]:
    """The topics of a broker's list, a partitioned one once, in the order of their names.

    A list that the broker has `filtered` is taken as it is: its regular expressions may differ.
    """
    bases = {TopicName.parse(name).partitioned_base for name in names}
    if not filtered:
        compiled = re.compile(pattern.below_domain, flags)
        bases = {base for base in bases if compiled.fullmatch(str(base).partition("://")[2])}
    return sorted(bases, key=str)
