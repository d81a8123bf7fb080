"""Ack sets, message ids, keys, topic names, paths against dumb oracles."""

from __future__ import annotations

import sys

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol import ack_set, keys, topic_name
from geminga_protocol.bookkeeper import paths
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.message_id import EARLIEST_ID, LATEST_ID, MessageId
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata
from geminga_protocol.topic_name import TopicName, url_decode, url_encode

SETS = st.sets(st.integers(0, 300))
LONG = st.integers(-(1 << 63), (1 << 63) - 1)


def words_of(members: set[int]) -> tuple[int, ...]:
    """As java.util.BitSet.toLongArray."""
    words = [0] * ((max(members) // 64 + 1) if members else 0)
    for member in members:
        words[member // 64] |= 1 << member % 64
    return tuple(int.from_bytes(w.to_bytes(8, "big"), "big", signed=True) for w in words)


@given(SETS, SETS, st.integers(0, 300))
def test_ack_sets_against_sets(first: set[int], second: set[int], index: int) -> None:
    words = words_of(first)
    assert set(ack_set.indexes(words)) == first
    assert list(ack_set.indexes(words)) == sorted(first)
    assert ack_set.and_(words, words_of(second)) == words_of(first & second)
    assert ack_set.without(words, index) == words_of(first - {index})
    assert ack_set.contains(words, index) == (index in first)
    assert ack_set.cardinality(words) == len(first)
    assert ack_set.is_empty(words) == (not first)
    assert ack_set.from_bits(ack_set.to_bits(words)) == words


@given(st.integers(0, 300), st.integers(0, 300))
def test_full_and_cumulative(size: int, index: int) -> None:
    assert ack_set.full(size) == words_of(set(range(size)))
    assert ack_set.cumulative(size, index) == words_of(set(range(index + 1, size)))


def test_trailing_zero_words_mean_nothing() -> None:
    assert ack_set.is_empty((0, 0))
    assert ack_set.and_((1, 0), (1, 0, 0)) == (1,)


IDS = st.builds(
    MessageId,
    LONG,
    LONG,
    st.integers(-1, (1 << 31) - 1),
    st.integers(-1, (1 << 31) - 1),
    st.integers(0, (1 << 31) - 1),
    first_chunk=st.none() | st.builds(MessageId, LONG, LONG),
)


@given(IDS)
def test_message_ids_round_trip(message_id: MessageId) -> None:
    back = MessageId.deserialize(message_id.serialize())
    assert (back, back.batch_size) == (message_id, message_id.batch_size)
    assert back.first_chunk == message_id.first_chunk
    assert hash(back) == hash(message_id)


@given(IDS, IDS)
def test_message_ids_order(first: MessageId, second: MessageId) -> None:
    def key(each: MessageId) -> tuple[int, ...]:
        return each.ledger_id, each.entry_id, each.partition, each.batch_index

    assert (first < second) == (key(first) < key(second))
    assert (first >= second) == (key(first) >= key(second))
    assert (first == second) == (key(first) == key(second))


def test_message_id_extremes() -> None:
    assert EARLIEST_ID < MessageId(0, 0) < MessageId(0, 0, batch_index=0) < LATEST_ID
    assert MessageId(1, 2) != (1, 2)
    assert MessageId(1, 2).__lt__("x") is NotImplemented
    assert str(MessageId(1, 2, 3, 4)) == "1:2:3:4"
    assert MessageId(1, 2).position == (1, 2)
    # What the C++ client and those built on it write.
    assert MessageId.deserialize(bytes.fromhex("0801100218032004")) == MessageId(1, 2, 3, 4)


@given(st.binary(max_size=30))
def test_any_bytes_as_message_id(data: bytes) -> None:
    try:
        MessageId.deserialize(data)
    except RemoteProtocolError:
        pass


@given(st.binary(max_size=200))
def test_murmur_twins(data: bytes) -> None:
    assert keys.murmur3_32(data) == keys.plain_murmur3_32(data) == mmh3.hash(data) & 0x7FFFFFFF
    assert keys.murmur3_32(memoryview(data)) == keys.murmur3_32(data)
    assert 1 <= keys.key_slot(data) <= 65535
    assert 1 <= keys.key_slot(data, first=1) <= 65535


def test_without_mmh3_the_plain_version_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mmh3", None)
    assert keys._choose_murmur() is keys.plain_murmur3_32


def test_sticky_keys() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    assert keys.sticky_key(metadata) == b"p-7"
    metadata.partition_key = "aGk="
    assert keys.sticky_key(metadata) == b"aGk="
    metadata.partition_key_b64_encoded = True
    assert keys.sticky_key(metadata) == b"hi"
    metadata.ordering_key = b"order"
    assert keys.sticky_key(metadata) == b"order"
    assert keys.sticky_key(MessageMetadata()) == keys.NONE_KEY
    wrong = MessageMetadata.FromString(b"\x0a\x01\xff\x10\x01\x18\x01")
    assert keys.sticky_key(wrong) == "\ufffd-1".encode()
    metadata = MessageMetadata(partition_key="no base64!", partition_key_b64_encoded=True)
    with pytest.raises(RemoteProtocolError, match="Base64"):
        keys.sticky_key(metadata)


TEXT = st.text("ab/:-%. +~*_\0\x85\u00a0\u3000\u00e9\u65e5\U0001f6000123-partition-", max_size=30)


@given(TEXT)
def test_any_text_as_topic_name(text: str) -> None:
    for name in (text, f"persistent://a/b/{text}", f"non-persistent://{text}"):
        try:
            parsed = TopicName.parse(name)
        except LocalProtocolError:
            continue
        assert TopicName.parse(str(parsed)) == parsed
        assert parsed is TopicName.parse(name)


@given(TEXT)
def test_url_coding_round_trip(text: str) -> None:
    assert url_decode(url_encode(text)) == text


def test_topic_name_parts() -> None:
    name = TopicName.parse("t").partition(3)
    assert str(name) == "persistent://public/default/t-partition-3"
    assert (name.is_partition, name.is_persistent) == (True, True)
    assert name.partition(3) is name
    assert str(name.partitioned_base) == "persistent://public/default/t"
    assert name.partitioned_base.partitioned_base == TopicName.parse("t")
    assert len({name, TopicName.parse("t-partition-3")}) == 1
    assert "t-partition-3" in repr(name)
    for path in ("a/b/c", "a/b/persistent/ ", "a/b/other/t"):
        with pytest.raises(LocalProtocolError):
            TopicName.from_persistence_naming_encoding(path)


@given(st.integers(0, (1 << 63) - 1))
def test_ledger_paths_round_trip(ledger_id: int) -> None:
    assert paths.ledger_id(paths.ledger(ledger_id)) == ledger_id


def test_other_paths_are_no_ledgers() -> None:
    others = [
        "/ledgers/available",
        "/ledgers/available/b:3181",
        "/ledgers/available/readonly/b:3181",
        "/ledgers/cookies/b:3181",
        "/ledgers/INSTANCEID",
        paths.id_generator() + "0000000001",
        "/ledgers",
        "/other/000/0000/0000/0000/L0001",
        "/ledgers/000/0000/0000/0000/L00010",
        "/ledgers/000/0000/0000/0000/L000\u0661",
    ]
    assert [paths.ledger_id(path) for path in others] == [None] * len(others)
    for bad in (-1, 1 << 63):
        with pytest.raises(ValueError, match="no ledger id"):
            paths.ledger(bad)


def test_long_names_are_not_kept() -> None:
    text = "persistent://a/b/" + "c" * topic_name.CACHED_LENGTH_MAX
    assert TopicName.parse(text) == TopicName.parse(text)
    assert TopicName.parse(text) is not TopicName.parse(text)
