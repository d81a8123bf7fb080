"""Remaining parts of entries, and the form of entries in a compacted ledger."""

from __future__ import annotations

import pytest

from geminga_broker.compaction._tests.world import batch, messages_of, single
from geminga_broker.compaction.batches import last_index
from geminga_broker.compaction.keys import LatestKeys
from geminga_broker.compaction.raw_entry import raw_parts, read_raw
from geminga_broker.log.entry import LogEntry
from geminga_protocol import payload
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import CompressionType, EncryptionKeys, MessageIdData


def entries_of(datas: list[bytes]) -> list[LogEntry]:
    return [LogEntry(Position(3, n), memoryview(data)) for n, data in enumerate(datas)]


def compacted(datas: list[bytes], *, retain_null_key: bool = False) -> dict[int, bytes]:
    """The remaining entries, by id."""
    keys = LatestKeys(retain_null_key)
    entries = entries_of(datas)
    for entry in entries:
        keys.see(entry)
    keys.end_first_pass()
    left = {entry.position.entry_id: keys.keep(entry) for entry in entries}
    return {n: bytes(data) for n, data in left.items() if data is not None}


def chunk(key: str | None, uuid: str, chunk_id: int, count: int) -> bytes:
    return single(
        key, b"part", uuid=uuid, chunk_id=chunk_id, num_chunks_from_msg=count,
        total_chunk_msg_size=4 * count,
    )  # fmt: skip


def test_single_messages_stay_as_they_are() -> None:
    datas = [single("a", b"1"), single("b", b"2"), single("a", b"3", compression=1)]
    assert compacted(datas) == {1: datas[1], 2: datas[2]}
    assert compacted([*datas, single("b", b""), single(None, b"4")]) == {2: datas[2]}


def test_long_keys_take_little_memory() -> None:
    """A key may have 5 MiB; those that begin alike are told apart, and found in batches too."""
    first, second = "k" * 100_000 + "1", "k" * 100_000 + "2"
    datas = [single(first, b"1"), single(second, b"2"), batch([(first, b"3")])]
    assert compacted(datas) == {1: datas[1], 2: datas[2]}
    keys = LatestKeys(retain_null_key=False)
    for entry in entries_of(datas):
        keys.see(entry)
    assert sum(map(len, keys._latest)) < 100


def test_messages_without_key_remain_if_configured() -> None:
    datas = [single(None, b"1"), single("a", b"2"), batch([(None, b"3"), ("a", b"4")])]
    assert sorted(compacted(datas)) == [2]
    left = compacted(datas, retain_null_key=True)
    assert left == {0: datas[0], 2: datas[2]}


def test_an_empty_key_is_a_key() -> None:
    datas = [single("", b"1"), batch([("", b"2"), (None, b"3")])]
    [(at, data)] = compacted(datas).items()
    assert (at, messages_of(data)) == (1, [("", b"2")])


@pytest.mark.parametrize("codec", CompressionType.values())
def test_a_batch_keeps_its_indexes(codec: int) -> None:
    first = batch([("a", b"1"), ("b", b"2" * 1000), ("c", b"3"), ("c", b"")], compression=codec)
    second = batch([("a", b"4")], compression=codec)
    left = compacted([first, second])
    assert left[1] == second
    view = memoryview(left[0])
    assert payload.verify_checksum(view)
    assert messages_of(left[0]) == [("b", b"2" * 1000)]
    [entry] = entries_of([left[0]])
    assert entry.metadata.num_messages_in_batch == 4
    assert last_index(entry) == 1
    # Compacted again, it stays as it is, or goes.
    assert compacted([left[0]]) == {0: left[0]}
    assert compacted([left[0], single("b", b"")]) == {}


def test_broker_entry_metadata_stay() -> None:
    prefix = payload.broker_entry_prefix(17, 5)
    [left] = compacted([prefix + batch([("a", b"1"), ("a", b"2")])]).values()
    assert left.startswith(prefix)
    assert messages_of(left) == [("a", b"2")]


def test_encrypted_batches_are_kept_by_the_key_of_the_entry() -> None:
    def sealed(key: str | None) -> bytes:
        metadata = payload.parse_metadata(memoryview(batch([("x", b"1")])))
        metadata.encryption_keys.append(EncryptionKeys(key="k", value=b"v"))
        if key is not None:
            metadata.partition_key = key
        return payload.build(metadata, b"nobody can read that")

    datas = [sealed("a"), sealed("b"), sealed("a"), sealed(None)]
    assert compacted(datas) == {1: datas[1], 2: datas[2]}


def test_markers_are_removed_and_unreadable_entries_kept() -> None:
    torn = batch([("a", b"1"), ("b", b"2")], compression=CompressionType.LZ4)[:-3]
    datas = [single("a", b"1", marker_type=21), b"no metadata", torn, single("a", b"2")]
    assert compacted(datas) == {1: datas[1], 2: torn, 3: datas[3]}


def test_chunks_of_the_last_message_stay_together() -> None:
    datas = [
        chunk("a", "first", 0, 2),
        chunk("a", "first", 1, 2),
        chunk("b", "old", 0, 2),
        chunk("a", "second", 0, 3),
        chunk("b", "old", 1, 2),
        chunk("a", "second", 1, 3),
        chunk("a", "second", 2, 3),
        single("b", b"new"),
    ]
    assert sorted(compacted(datas)) == [3, 5, 6, 7]
    assert sorted(compacted([*datas, single("a", b"")])) == [7]


def test_chunks_of_unfinished_messages_are_kept() -> None:
    datas = [single("a", b"1"), chunk("a", "m", 0, 2), single("c", b"2")]
    assert sorted(compacted(datas)) == [0, 1, 2]
    assert sorted(compacted([*datas, chunk("a", "m", 1, 2)])) == [1, 2, 3]


def test_an_incomplete_chunked_message_replaces_nothing() -> None:
    datas = [single("a", b"1"), chunk("a", "m", 1, 2)]
    assert sorted(compacted(datas)) == [0]


def test_removed_messages_are_counted_as_apache_does() -> None:
    keys = LatestKeys(retain_null_key=False)
    datas = [single("a", b"1"), single("a", b"2"), single("a", b""), single(None, b"3")]
    datas.append(batch([("b", b"4"), ("b", b"5"), (None, b"6")]))
    for entry in entries_of(datas):
        keys.see(entry)
    assert keys.removed == 5
    assert len(keys) == 1


def test_entries_of_a_compacted_ledger_are_apaches() -> None:
    data = single("a", b"1")
    position = Position(7, 300)
    written = b"".join(bytes(part) for part in raw_parts(position, -1, data))
    about = MessageIdData(ledgerId=7, entryId=300, partition=-1, batch_index=-1)
    front = about.SerializeToString()
    expected = len(front).to_bytes(4, "big") + front + len(data).to_bytes(4, "big") + data
    assert written == expected
    entry = read_raw(memoryview(written))
    assert (entry.position, bytes(entry.data)) == (position, data)
    for end in range(len(written)):
        with pytest.raises(RemoteProtocolError):
            read_raw(memoryview(written)[:end])
