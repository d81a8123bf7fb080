from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga._entries.batch_index import index_batch, single_metadata
from geminga._entries.encode import Extras, Item, _batch_parts, _plain_parts
from geminga_protocol.batch import split_batch
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata

SIZES = st.one_of(st.integers(0, 300), st.sampled_from([127, 128, 16383, 16384, 70_000]))
MESSAGES = st.lists(st.tuples(SIZES, st.booleans(), st.booleans()), min_size=1, max_size=12)


def batch_of(messages: list[tuple[int, bool, bool]], first: int) -> bytes:
    items = []
    for at, (size, repeated, described) in enumerate(messages):
        extras = Extras({"k": "v"}, "key", b"order", 5) if described else None
        if repeated and items:
            size = len(items[-1][1])
        items.append((first + at, bytes([at]) * size, extras))
    return b"".join(_batch_parts(items))


@given(
    st.lists(SIZES, min_size=1, max_size=3),
    st.integers(1, 300),
    st.sampled_from([0, 1, 126, 127, 128, 16380, 1 << 40]),
)
def test_batches_of_plain_messages_are_the_same_bytes(
    sizes: list[int], count: int, first: int
) -> None:
    payloads = [bytes([n % 256]) * min(300, sizes[n % len(sizes)]) for n in range(count)]
    items: list[Item] = [(first + n, data, None) for n, data in enumerate(payloads)]
    assert b"".join(_plain_parts(first, payloads)) == b"".join(_batch_parts(items))


@given(MESSAGES, st.sampled_from([0, 1, 126, 127, 128, 16380, 1 << 40]))
def test_finds_what_split_batch_finds(messages: list[tuple[int, bool, bool]], first: int) -> None:
    payload = batch_of(messages, first)
    metadata = MessageMetadata(num_messages_in_batch=len(messages))
    bounds = index_batch(len(messages), payload)
    plain = split_batch(metadata, memoryview(payload))
    assert len(bounds) == 2 * len(plain) + 1
    for at, (single, data) in enumerate(plain):
        assert single.sequence_id == first + at
        assert payload[bounds[2 * at] : bounds[2 * at + 1]] == single.SerializeToString()
        assert payload[bounds[2 * at + 1] : bounds[2 * at + 2] - 4] == data
        assert single.partition_key == ("key" if messages[at][2] else "")


@given(MESSAGES, st.data())
def test_damaged_batches_raise_remote_errors_only(
    messages: list[tuple[int, bool, bool]], data: st.DataObject
) -> None:
    payload = bytearray(batch_of(messages, 0))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, min(40, len(payload) - 1)))] = data.draw(
            st.integers(0, 255)
        )
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    try:
        bounds = index_batch(len(messages), cut)
    except RemoteProtocolError:
        return
    assert bounds == sorted(bounds)
    assert bounds[-1] - 4 <= len(cut)


def test_a_lying_count_costs_nothing() -> None:
    with pytest.raises(RemoteProtocolError):
        index_batch(1 << 31, batch_of([(10, False, False)], 0))


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "k", "k" * 127, "k" * 128]), st.integers(0, 3), SIZES),
        min_size=1,
        max_size=8,
    )
)
def test_finds_them_behind_keys_and_properties(messages: list[tuple[str, int, int]]) -> None:
    """Also if more than the sizes differ between messages."""
    items = [
        (at, bytes(size), Extras({f"p{n}": key for n in range(properties)}, key or None))
        for at, (key, properties, size) in enumerate(messages)
    ]
    payload = b"".join(_batch_parts(items))
    bounds = index_batch(len(items), payload)
    for at, (_, data, _) in enumerate(items):
        assert payload[bounds[2 * at + 1] : bounds[2 * at + 2] - 4] == data
        single = single_metadata(payload[bounds[2 * at] : bounds[2 * at + 1]])
        assert (single.sequence_id, single.partition_key) == (at, messages[at][0])


@pytest.mark.parametrize("size", [b"\xff" * 9 + b"\x01", b"\xff" * 5, b"\xff" * 20])
def test_sizes_that_can_not_be(size: bytes) -> None:
    """In the second message, which isn't fully parsed: negative, truncated, too long."""
    first = batch_of([(1, False, False)], 0)
    metadata = b"\x12\x01k\x18" + size
    with pytest.raises(RemoteProtocolError):
        index_batch(2, first + len(metadata).to_bytes(4, "big") + metadata)


BYTES = st.one_of(st.integers(0, 255), st.sampled_from([0x0A, 0x12, 0x18, 0x20, 0x28, 0x80, 0xFF]))


@given(MESSAGES, st.lists(st.tuples(st.integers(0, 10_000), BYTES), max_size=3), st.data())
def test_what_is_found_is_what_the_metadata_say(
    messages: list[tuple[int, bool, bool]], damage: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Wherever a batch is damaged, quickly read sizes equal those of the parsed metadata."""
    small = [(min(size, 200), repeated, described) for size, repeated, described in messages]
    payload = bytearray(batch_of(small, data.draw(st.sampled_from([0, 127, 1 << 40]))))
    for at, byte in damage:
        payload[at % len(payload)] = byte
    found = bytes(payload)
    try:
        bounds = index_batch(len(messages), found)
    except RemoteProtocolError:
        return
    for n in range(len(messages)):
        try:
            single = single_metadata(found[bounds[2 * n] : bounds[2 * n + 1]])
        except RemoteProtocolError:
            # Only the first one's are fully parsed.
            assert n
            continue
        if len(single.SerializePartialToString()) == bounds[2 * n + 1] - bounds[2 * n]:
            # Except with duplicate fields, of which the last one would count.
            assert single.payload_size == bounds[2 * n + 2] - 4 - bounds[2 * n + 1]
