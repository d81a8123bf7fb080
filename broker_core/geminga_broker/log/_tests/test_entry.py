"""Entries, and the prefixes of broker entry metadata."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.log._tests.world import message
from geminga_broker.log.entry import LogEntry, PrefixMaker
from geminga_protocol import payload
from geminga_protocol.ids import EARLIEST


@given(
    st.integers(0, 1 << 62),
    st.lists(st.one_of(st.integers(0, 400), st.integers(0, 1 << 62)), max_size=20),
)
def test_prefixes_are_those_of_the_plain_encoder(timestamp_ms: int, indexes: list[int]) -> None:
    maker = PrefixMaker(timestamp_ms)
    for index in sorted(indexes):
        assert maker.prefix(index) == payload.broker_entry_prefix(timestamp_ms, index)


def test_parts_are_parsed_on_demand() -> None:
    data = message("text", time_ms=5, batch=7)
    entry = LogEntry(EARLIEST, memoryview(data))
    assert (entry.size, entry.messages, entry.time_ms) == (len(data), 7, 5)
    assert entry.broker_metadata is None
    stored = LogEntry(EARLIEST, memoryview(payload.broker_entry_prefix(9, 3) + data))
    assert stored.time_ms == 9
    assert stored.metadata.publish_time == 5
    assert stored.broker_metadata is not None
    assert stored.broker_metadata.index == 3


def test_messages_are_known_without_parsing_when_given() -> None:
    assert LogEntry(EARLIEST, memoryview(b"no metadata"), 4).messages == 4
    assert LogEntry(EARLIEST, memoryview(b"")).messages == 1, "what can't be read counts as one"
