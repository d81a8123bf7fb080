"""Two faults at once around entry logs: a disk that fails or damages something while a compaction
is under way, the index is lost, or a client has prepared a payload (BK-04, BK-06, BK-12).
"""

from __future__ import annotations

import dataclasses
import errno
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import KEY, add, ledgers, packets, read_all, small_options
from geminga_bookie._tests.test_entry_log_forgery import log_of_version_1
from geminga_bookie._tests.test_entry_log_headers import log_names, one_log
from geminga_bookie.errors import DataDirError
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.options import BookieOptions
from geminga_bookie.storage import gc
from geminga_bookie.storage.disk import DiskFile, OsDisk
from geminga_bookie.storage.entry_logs import files
from geminga_bookie.storage.entry_logs.compaction import (
    CompactionUnfinished,
    LogDamaged,
    compact_log,
)
from geminga_bookie.storage.entry_logs.files import UNSALTED_NAME, EntryLogs, EntryLogWriter
from geminga_bookie.storage.entry_logs.format import (
    BLOCK_HEAD_BYTES,
    KIND_ENTRIES,
    KIND_LEDGER,
    NO_SALT,
    encode_block,
)
from geminga_bookie.storage.entry_logs.index_rebuild import rebuild_index
from geminga_bookie.storage.entry_logs.reading import map_at, scan_blocks
from geminga_bookie.storage.key_value import Batch
from geminga_bookie.storage.location_index import LedgerRecord, Location, LocationIndex


def test_an_index_whose_last_write_is_uncertain_moves_no_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log has the batch that moved the blocks, and says so only once it is opened again: until
    then it seems that the copy has nothing in it.
    """
    logs, index = EntryLogs(OsDisk(), tmp_path), LocationIndex(tmp_path / "index")
    writer = EntryLogWriter(logs)
    index.write([writer.append(KIND_ENTRIES, 1, 0, packets(1, range(5)))], completes=True)
    writer.seal()
    contains = LocationIndex.contains

    def written_but_not_synced(batch: Batch, *, sync: bool) -> None:
        write(batch, sync=sync)
        if batch.changes:
            raise OSError(errno.EIO, "Input/output error")

    def stale(self: LocationIndex, location: Location) -> bool:
        return not self._is_broken and contains(self, location)

    write = index._db.write
    monkeypatch.setattr(index._db, "write", written_but_not_synced)
    monkeypatch.setattr(LocationIndex, "contains", stale)
    with pytest.raises(CompactionUnfinished):
        compact_log(logs, index, 1, lambda _size: None)
    compact_log(logs, index, 2, lambda _size: None)
    (location,) = index.locations(1)
    with logs.reading(location.log_id) as file:
        assert len(file.read(location.size_bytes, location.offset)) == location.size_bytes
    index.close()
    logs.close()


def forged_head(kind: int, ledger_id: int, body_bytes: int) -> bytes:
    """Of a block with one packet, which is what follows it in the log."""
    whole = b"".join(encode_block(kind, ledger_id, 0, [bytes(body_bytes)], NO_SALT)[0])
    return whole[: BLOCK_HEAD_BYTES + 8]


def hiding_log(directory: Path, *, damaged: bool) -> LocationIndex:
    """A log of version 1: a message of the deleted ledger 2 has the head of a block that reaches
    over all of ledger 1. It counts once the message's own head is damaged.
    """
    record = LedgerRecord(1, b"key", True, False, b"")
    victim = b"".join(encode_block(KIND_ENTRIES, 1, 0, packets(1, range(9)), NO_SALT)[0])
    victim += b"".join(encode_block(KIND_LEDGER, 1, 0, [record.encode()], NO_SALT)[0])
    payload = forged_head(KIND_ENTRIES, 2, 100 + len(victim)) + bytes(100)
    evil = bytearray(b"".join(encode_block(KIND_ENTRIES, 2, 0, [payload], NO_SALT)[0]))
    if damaged:
        evil[9] ^= 1
    (directory / "00000001.log").write_bytes(log_of_version_1(1, bytes(evil), victim))
    index = LocationIndex(directory / "index")
    size = len(victim) - len(b"".join(encode_block(KIND_LEDGER, 1, 0, [record.encode()], b"")[0]))
    index.write([Location(1, 0, 1, 32 + len(evil), size, 9)], [record], completes=True)
    return index


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_clients_block_behind_damage_removes_no_log(tmp_path: Path, damaged: bool) -> None:
    """It hides the blocks that it reaches over from the scan of collection."""
    async with open_bookie(small_options(tmp_path)):
        pass
    shutil.rmtree(tmp_path / "ledgers" / "index")
    hiding_log(tmp_path / "ledgers", damaged=damaged).close()
    async with open_bookie(small_options(tmp_path)) as port:
        bookie = cast(InProcessBookie, port)
        for _ in range(2):
            assert (await bookie.gc.collect(ledgers(1), threshold=0.9)).logs_removed == 0
        assert await read_all(port, 1, 0, 8) == packets(1, range(9))


async def test_a_log_of_before_whose_end_was_cut_off_goes_with_its_ledgers(tmp_path: Path) -> None:
    """Nothing is behind the damage that it could hide."""
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_bookie(options) as port:
        await add(port, 2, range(5))
    shutil.rmtree(tmp_path / "ledgers" / "index")
    (first,) = (tmp_path / "ledgers").glob("*.log")
    block = b"".join(encode_block(KIND_ENTRIES, 1, 0, packets(1, range(9)), NO_SALT)[0])
    first.with_name("00000009.log").write_bytes(log_of_version_1(9, block, block[:-1]))
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        assert await read_all(port, 1, 0, 8) == packets(1, range(9))
        assert (await bookie.gc.collect(ledgers(2))).logs_removed == 1
        assert await read_all(port, 2, 0, 4) == packets(2, range(5))


@pytest.mark.parametrize("packet", [b"short", LedgerRecord(1, b"evil", True, False, b"").encode()])
def test_a_clients_record_behind_damage_is_not_believed(tmp_path: Path, packet: bytes) -> None:
    """Nor does it end a start."""
    first = b"".join(encode_block(KIND_ENTRIES, 1, 0, packets(1, range(9)), NO_SALT)[0])
    inner = b"".join(encode_block(KIND_LEDGER, 1, 0, [packet], NO_SALT)[0])
    evil = bytearray(b"".join(encode_block(KIND_ENTRIES, 2, 0, [inner], NO_SALT)[0]))
    evil[9] ^= 1
    (tmp_path / "00000001.log").write_bytes(log_of_version_1(1, first, bytes(evil), first))
    logs, index = EntryLogs(OsDisk(), tmp_path), LocationIndex(tmp_path / "index")
    damages: list[str] = []
    assert rebuild_index(logs, index, damages.extend) == 2
    assert index.ledger(1) == LedgerRecord(1, b"", False, False, b"")
    assert len([each for each in damages if "the record of ledger 1 is damaged" in each]) == 1
    index.close()
    logs.close()


def damaged_file(path: Path, *places: int) -> None:
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("more", [False, True])
def test_a_sealed_log_with_a_damaged_map_is_not_one_that_was_cut_off(
    tmp_path: Path, more: bool
) -> None:
    """What stood in front of its map and was damaged with it may have been a record."""
    logs, index = EntryLogs(OsDisk(), tmp_path), LocationIndex(tmp_path / "index")
    writer = EntryLogWriter(logs)
    live = writer.append(KIND_ENTRIES, 2, 0, packets(2, range(3)))
    record = writer.append(KIND_LEDGER, 7, 0, [LedgerRecord(7, KEY, True, False, b"").encode()])
    writer.seal()
    index.write([live], [LedgerRecord(7, KEY, True, False, b"")])
    with logs.reading(1) as file:
        begin = map_at(file)
        assert begin is not None
        behind = [offset for offset, _ in scan_blocks(file) if record.offset <= offset < begin]
    damaged_file(logs.path(1), begin + 9, *(offset + 9 for offset in behind if more))
    if more:
        with pytest.raises(LogDamaged):
            compact_log(logs, index, 1, lambda _size: None)
    else:
        compact_log(logs, index, 1, lambda _size: None)
    assert logs.ids() == [1 + (not more)]
    index.close()
    logs.close()


async def test_a_log_that_cannot_be_removed_is_compacted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await add(port, 1, range(200), size=2000)
        await add(port, 2, range(20))

    def fail(*_arguments: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        await bookie.gc.collect(ledgers(2))
        with monkeypatch.context() as patched:
            patched.setattr(EntryLogs, "remove", fail)
            with pytest.raises(OSError, match="not permitted"):
                await bookie.gc.collect(ledgers(2), threshold=0.5)
            await bookie.gc.collect(ledgers(2), threshold=2)
        assert log_names(tmp_path) == ["00000001.log", "00000002.log"]
    async with open_bookie(options) as port:
        assert log_names(tmp_path) == ["00000002.log"]
        assert await read_all(port, 2, 0, 19) == packets(2, range(20))


async def test_a_log_without_first_header_stays_while_the_note_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index names nothing of it, and it isn't sealed: its second header tells of the rest."""
    options = small_options(tmp_path)
    async with open_bookie(options) as port:
        await add(port, 2, range(5))
    logs = EntryLogs(OsDisk(), tmp_path / "ledgers")
    writer = EntryLogWriter(logs)
    writer.append(KIND_LEDGER, 7, 0, [LedgerRecord(7, KEY, True, False, b"").encode()])
    writer.sync()
    writer.abandon()
    damaged_file(writer.path, 0)
    logs.close()
    read = files.read_file

    def bad(disk: OsDisk, path: Path) -> bytes | None:
        if path.name == UNSALTED_NAME:
            raise OSError(errno.EIO, "Input/output error")
        return read(disk, path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "read_file", bad)
        async with open_bookie(options) as port:
            await cast(InProcessBookie, port).gc.collect(ledgers(2, 7))
    assert writer.path.exists()


async def test_a_note_that_fails_sets_no_log_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perhaps the second header of the log counts."""
    options = small_options(tmp_path)
    await one_log(options)
    first = tmp_path / "ledgers" / "00000001.log"
    data = bytearray(first.read_bytes())
    data[0] ^= 1
    first.write_bytes(data)
    shutil.rmtree(tmp_path / "ledgers" / "index")
    opened = OsDisk.open

    def bad(self: OsDisk, path: Path, **how: bool) -> DiskFile:
        if path.name == UNSALTED_NAME:
            raise OSError(errno.EIO, "Input/output error")
        return opened(self, path, **how)

    with monkeypatch.context() as patched:
        patched.setattr(OsDisk, "open", bad)
        with pytest.raises(DataDirError, match=f"{UNSALTED_NAME}"):
            async with open_bookie(options):
                pass
    assert log_names(tmp_path) == ["00000001.log"]
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))


async def two_directories(folder: Path) -> BookieOptions:
    """Of each a log with a large ledger, 1 or 2, and a small one, 3 or 4."""
    directories = [folder / "l0", folder / "l1"]
    options = dataclasses.replace(small_options(folder), ledger_dirs=directories)
    async with open_bookie(options) as port:
        for ledger_id in (2, 4, 1, 3):
            await add(port, ledger_id, range(100 if ledger_id < 3 else 10), size=2000)
    return options


async def test_a_full_directory_stops_no_compaction_in_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = await two_directories(tmp_path)

    def fails(logs: EntryLogs, *rest: object) -> int:
        if logs.directory.name == "l0":
            raise OSError(errno.ENOSPC, "No space left on device")
        return compact(logs, *rest)

    compact = cast(Callable[..., int], gc.compact_log)
    monkeypatch.setattr(gc, "compact_log", fails)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        with pytest.raises(OSError, match="No space left"):
            await bookie.gc.collect(ledgers(3, 4), threshold=0.5)
        assert [store.logs.ids() for store in bookie.storage.stores] == [[1], [2]]


async def test_an_index_that_fails_stops_no_deletion_in_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its own directory is not compacted: what is deleted would be copied again and again."""
    options = await two_directories(tmp_path)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)

        def fails(_ledger_ids: Sequence[int]) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        first, second = bookie.storage.stores
        monkeypatch.setattr(first.index, "delete_ledgers", fails)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                await bookie.gc.collect(ledgers(3, 4), threshold=0.5)
        assert [each.ledger_id for each in second.index.ledgers()] == [3]
        assert [store.logs.ids() for store in bookie.storage.stores] == [[1], [2]]


async def test_a_log_that_cannot_be_removed_stops_no_collection_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor compaction in its directory, in each round; and it is told."""
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for ids in ((1,), (2,), (3, 4)):
            for ledger_id in ids:
                await add(port, ledger_id, range(5 if ledger_id == 4 else 50), size=200)
            await bookie.checkpointer.checkpoint()

    def fails(logs: EntryLogs, log_id: int) -> None:
        if log_id == 1:
            raise OSError(errno.EPERM, "Operation not permitted")
        remove(logs, log_id)

    remove = EntryLogs.remove
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        (store,) = bookie.storage.stores
        with monkeypatch.context() as patched:
            patched.setattr(EntryLogs, "remove", fails)
            for _ in range(2):
                with pytest.raises(OSError, match="not permitted"):
                    await bookie.gc.collect(ledgers(4), threshold=0.5)
                assert store.logs.ids() == [1, 4]
        assert (await bookie.gc.collect(ledgers(4))).logs_removed == 1
        assert await read_all(port, 4, 0, 4) == packets(4, range(5), 200)


async def test_a_log_that_fails_stops_no_compaction_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error of the file system; the sparsest log comes first in each round."""
    options = small_options(tmp_path, entry_log_bytes_max=1)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        for first, live in ((1, 1), (3, 5)):
            await add(port, first, range(50), size=200)
            await add(port, first + 1, range(live), size=200)
            await bookie.checkpointer.checkpoint()

    def fails(logs: EntryLogs, index: LocationIndex, log_id: int, *rest: object) -> int:
        if log_id == 1:
            raise OSError(errno.EUCLEAN, "Structure needs cleaning")
        return compact(logs, index, log_id, *rest)

    compact = cast(Callable[..., int], gc.compact_log)
    monkeypatch.setattr(gc, "compact_log", fails)
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        assert (await bookie.gc.collect(ledgers(2, 4), threshold=0.5)).logs_compacted == 1
