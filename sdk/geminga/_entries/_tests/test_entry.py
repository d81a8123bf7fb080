"""Entries are decoded equally, whether their metadata are parsed at once or later."""

from __future__ import annotations

import msgspec
import pytest
from fastcrc import crc32
from hypothesis import given
from hypothesis import strategies as st

from geminga._entries.chunks import Chunks
from geminga._entries.entry import Entry, UndecodableEntry, decode
from geminga._entries.plain import open_plain
from geminga.message import Message
from geminga_protocol.arrivals import ArrivalReader, MessageRun
from geminga_protocol.encode import MessageHeader
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.payload import (
    MAGIC_CRC32C,
    broker_entry_prefix,
    build,
    decode_metadata,
)
from geminga_protocol.pb.pulsar_api_pb2 import CommandAck, MessageMetadata, SingleMessageMetadata

U64 = st.integers(0, (1 << 64) - 1)


class Part:
    """A source of entries."""

    topic = "topic"
    partition = 3
    generation = 0

    def taken(self, entry: Entry) -> int:
        raise AssertionError("nothing is taken here")


def open_entry(data: bytes) -> Entry | None:
    header = MessageHeader(1, 3).build(7, 9, len(data), 2)
    (run,) = ArrivalReader().feed(header + data)
    assert isinstance(run, MessageRun)
    return decode(Part(), run, run.places[0], Chunks(1, 1.0, False, int), float)


@st.composite
def metadata(draw: st.DrawFn) -> MessageMetadata:
    made = MessageMetadata(
        producer_name=draw(st.text(max_size=200)), sequence_id=draw(U64), publish_time=draw(U64)
    )
    if draw(st.booleans()):
        made.uncompressed_size = draw(st.integers(0, (1 << 32) - 1))
    if draw(st.integers(0, 3)) == 0:
        made.partition_key = draw(st.text(max_size=5))
        made.properties.add(key="k", value=draw(st.text(max_size=5)))
    if draw(st.integers(0, 3)) == 0:
        made.event_time = draw(U64)
    return made


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["plain", "plain", "plain", "described", "batch", "prefixed", "damaged"]),
        st.binary(max_size=20),
    ),
    min_size=1,
    max_size=8,
)


@given(ENTRIES, st.integers(0, 9), st.integers(0, 2))
def test_plain_entries_of_a_run_are_those_that_are_opened_one_by_one(
    entries: list[tuple[str, bytes]], fresh_from: int, generation: int
) -> None:
    header = MessageHeader(1, 3)
    frames = []
    for number, (kind, payload) in enumerate(entries):
        described = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1 << 40)
        if kind == "described":
            described.properties.add(key="k", value="v")
        elif kind == "batch":
            described.num_messages_in_batch = 1
            single = SingleMessageMetadata(payload_size=len(payload)).SerializeToString()
            payload = len(single).to_bytes(4, "big") + single + payload
        data = build(described, payload)
        if kind == "prefixed":
            data = broker_entry_prefix(123, 45) + data
        elif kind == "damaged":
            data = data[:-1] + bytes((data[-1] ^ 1,))
        frames.append(header.build(7, 130 + number, len(data), 2) + data)
    source = Part()
    source.generation = generation
    kinds = [kind for kind, _ in entries]
    runs = [each for each in ArrivalReader().feed(b"".join(frames)) if isinstance(each, MessageRun)]
    found = [each for run in runs for each in open_plain(source, run, 130)]
    assert [each.entry_id for each in found] == [
        130 + n for n, kind in enumerate(kinds) if kind == "plain" and same_run(runs, kinds, n)
    ]
    chunks = Chunks(1, 1.0, False, int)
    for run in runs:
        plain = open_plain(source, run, 130 + fresh_from)
        if run.places[0][0] < 130 + fresh_from:
            assert plain == []
        for entry, place in zip(plain, run.places, strict=False):
            one = decode(source, run, place, chunks, float)
            assert one is not None
            one.generation = generation
            assert msgspec.structs.asdict(entry) == msgspec.structs.asdict(one)


def same_run(runs: list[MessageRun], kinds: list[str], number: int) -> bool:
    """Whether all entries before that one in its run are plain."""
    for run in runs:
        ids = [place[0] - 130 for place in run.places]
        if number in ids:
            return all(kinds[each] == "plain" for each in ids[: ids.index(number)])
    raise AssertionError("it was not received")


@given(metadata(), st.binary(max_size=50), st.booleans())
def test_nothing_of_a_single_message_is_lost(
    described: MessageMetadata, payload: bytes, has_broker_part: bool
) -> None:
    prefix = broker_entry_prefix(123, 45) if has_broker_part else b""
    entry = open_entry(prefix + build(described, payload))
    assert entry is not None
    assert entry.metadata == described
    message = Message(entry, -1)
    assert (message.data, message.topic_name, message.redelivery_count) == (payload, "topic", 2)
    assert repr(message.message_id) == "7:9:3"
    assert message.producer_name == described.producer_name
    assert message.properties == {pair.key: pair.value for pair in described.properties}
    assert message.index == (45 if has_broker_part else None)


FIELDS = st.lists(
    st.sampled_from([b"\x0a\x01p", b"\x10\x05", b"\x18\x80\x01", b"\x48\x03", b"\x18", b"\xff"]),
    max_size=6,
)


@given(FIELDS)
def test_any_metadata_are_read_or_refused(fields: list[bytes]) -> None:
    encoded = b"".join(fields)
    sized = len(encoded).to_bytes(4, "big") + encoded
    data = MAGIC_CRC32C.to_bytes(2, "big") + crc32.iscsi(sized).to_bytes(4, "big") + sized
    try:
        expected = decode_metadata(encoded)
    except RemoteProtocolError:
        with pytest.raises(UndecodableEntry):
            open_entry(data)
        return
    entry = open_entry(data)
    assert entry is not None
    assert entry.metadata == expected


def test_a_damaged_entry_is_refused() -> None:
    plain = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    data = bytearray(build(plain, b"payload"))
    data[-1] ^= 1
    with pytest.raises(UndecodableEntry) as caught:
        open_entry(bytes(data))
    assert caught.value.validation_error == CommandAck.ChecksumMismatch
