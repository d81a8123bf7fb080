"""Entries, and the prefixes of broker entry metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_broker.log._tests.world import message
from geminga_broker.log.entry import LogEntry, PrefixMaker
from geminga_protocol import payload
from geminga_protocol.ids import EARLIEST
from geminga_protocol.pb.pulsar_api_pb2 import KeyValue, MessageMetadata


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


def test_only_small_metadata_are_kept() -> None:
    """The cache counts the bytes of entries; parsed, many properties take ten times theirs."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=5)
    small = LogEntry(EARLIEST, memoryview(payload.build(metadata, b"")))
    assert small.head is small.head is small.metadata
    metadata.properties.extend([KeyValue(key="k", value="v")] * 100)
    large = LogEntry(EARLIEST, memoryview(payload.build(metadata, b"")))
    assert len(large.metadata.properties) == 100
    assert large.time_ms == 5
    assert large._metadata is None


def test_given_message_counts_need_no_parsing() -> None:
    assert LogEntry(EARLIEST, memoryview(b"no metadata"), 4).messages == 4
    assert LogEntry(EARLIEST, memoryview(b"")).messages == 1, "what can't be read counts as one"


def entry_of(**fields: int | str) -> LogEntry:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    for name, value in fields.items():
        setattr(metadata, name, value)
    return LogEntry(EARLIEST, memoryview(payload.build(metadata, b"text")))


@pytest.mark.parametrize("first", ["special", "messages"])
def test_only_markers_delays_and_chunks_are_special(first: str) -> None:
    """Regardless of the order and number of calls."""
    for entry, messages in (
        (entry_of(partition_key="k", num_messages_in_batch=3), 3),
        (entry_of(partition_key="k"), 1),
        (entry_of(partition_key="\x01X"), 1),
        (LogEntry(EARLIEST, memoryview(b"no entry at all")), 1),
        (LogEntry(EARLIEST, memoryview(payload.broker_entry_prefix(9, 3) + entry_of().data)), 1),
    ):
        getattr(entry, first)
        assert (entry.special, entry.messages, entry.special) == (None, messages, None)
    for name, value in (("deliver_at_time", 7), ("marker_type", 20), ("chunk_id", 2)):
        for messages in (1, 3):
            batch = {"num_messages_in_batch": messages} if messages > 1 else {}
            data = entry_of(**{name: value}, **batch).data
            prefix = payload.broker_entry_prefix(9, 3)
            for entry in (LogEntry(EARLIEST, data), LogEntry(EARLIEST, memoryview(prefix + data))):
                getattr(entry, first)
                assert entry.special is not None
                assert getattr(entry.special, name) == value
                assert entry.messages == messages


def test_what_is_known_of_an_entry_is_looked_for_once() -> None:
    entry = entry_of()
    assert (entry.special, entry.messages) == (None, 1)
    entry.data = entry_of(marker_type=20, num_messages_in_batch=3).data
    assert (entry.special, entry.messages) == (None, 1)
