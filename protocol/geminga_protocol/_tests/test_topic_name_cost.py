"""The cost of hostile topic names (PR-13, PR-16)."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from geminga_protocol import topic_name
from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.errors import LocalProtocolError
from geminga_protocol.topic_name import NAMES_BYTES_MAX, PARSED_CHARS_MAX, TopicName

FRAME_BYTES = 5 << 20


@pytest.mark.alone
@pytest.mark.parametrize(
    "filling", ["/", " ", "a", "a/", "%", "-partition-", "\u3000", "\U0001f600"]
)
@pytest.mark.parametrize("front", ["", "persistent://", "persistent://a/b/c", "a/b/"])
def test_a_frame_full_of_name_costs_little(front: str, filling: str) -> None:
    name = front + filling * (FRAME_BYTES // len(filling.encode()))
    refused: list[str] = []

    def parse() -> None:
        try:
            TopicName.parse(name)
        except LocalProtocolError as error:
            refused.append(str(error))

    assert cpu_s(parse, 0.1) < 0.1  # the old parser took 16 s of slashes
    assert 0 < len(refused[0]) < 5000


@pytest.mark.alone
def test_the_longest_name_that_is_parsed_costs_little() -> None:
    front = "persistent://a/b/c"
    names = [
        front + filling * ((PARSED_CHARS_MAX - len(front)) // len(filling))
        for filling in ("/", "a", "-partition-")
    ]
    assert cpu_s(lambda: [TopicName.parse(name) for name in names], 0.1) < 0.1


def _names() -> Iterator[TopicName]:
    for cache in (topic_name._cache.young, topic_name._cache.old):
        yield from cache.values()


def test_kept_names_are_bounded_by_bytes() -> None:
    for number in range(20_000):
        tail = "\U0001f600" * (topic_name.CACHED_LENGTH_MAX - 40)
        TopicName.parse(f"persistent://a/b/{number}{tail}")
    kept = sum(
        sys.getsizeof(each) + sum(sys.getsizeof(getattr(each, slot)) for slot in each.__slots__)
        for each in _names()
    )
    assert 0 < kept <= NAMES_BYTES_MAX


def test_a_name_in_use_is_kept() -> None:
    used = TopicName.parse("persistent://a/b/used")
    for number in range(100_000):
        TopicName.parse(f"persistent://a/b/{number}")
        if number % 100 == 0:
            assert TopicName.parse("persistent://a/b/used") is used
