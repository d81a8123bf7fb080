"""A compacted log beside its source, as a crash leaves them: which of both goes, and what the index
names then (BK-06, BK-12).
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from geminga_bookie._tests.support import KEY, add, ledgers, packets, read_all, small_options
from geminga_bookie._tests.test_entry_log_headers import Broken, broken, log_names, one_log
from geminga_bookie._tests.test_entry_log_two_faults import damaged_file
from geminga_bookie.errors import DigestMismatch, StorageFailed
from geminga_bookie.host import Host
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.options import BookieOptions
from geminga_bookie.shell.indexes import rebuild_locations
from geminga_bookie.shell.target import ShellFailed
from geminga_bookie.storage.disk import OsDisk
from geminga_bookie.storage.entry_logs.compaction import compact_log, finish_compactions
from geminga_bookie.storage.entry_logs.files import EntryLogs, EntryLogWriter
from geminga_bookie.storage.entry_logs.format import BLOCK_HEAD_BYTES, KIND_ENTRIES, KIND_LEDGER
from geminga_bookie.storage.entry_logs.index_rebuild import begin_rebuild, rebuild_index
from geminga_bookie.storage.entry_logs.reading import LogFile, location_of, scan_blocks
from geminga_bookie.storage.location_index import IndexFailed, LedgerRecord, LocationIndex

__all__ = ["broken"]


def moved_with_source(directory: Path, damage: str) -> None:
    """A compacted log that the index names, whose source came back with a loss of power; the copy
    is damaged.
    """
    logs, index = EntryLogs(OsDisk(), directory), LocationIndex(directory / "index")
    writer = EntryLogWriter(logs)
    found = [writer.append(KIND_ENTRIES, each, 0, packets(each, range(5))) for each in (1, 2, 3)]
    fence = LedgerRecord(3, KEY, True, False, b"")
    writer.append(KIND_LEDGER, 3, 0, [fence.encode()])
    writer.sync()
    writer.seal()
    index.write(found, [fence, LedgerRecord(2, KEY, False, False, b"")], completes=True)
    if damage == "inherited":
        damaged_file(logs.path(1), found[2].offset + found[2].size_bytes - 1)
    source = logs.path(1).read_bytes()
    compact_log(logs, index, 1, lambda _size: None)
    logs.path(1).write_bytes(source)
    copy = logs.path(2).read_bytes()
    (at,) = index.locations(3)
    places = {"head": at.offset + 5, "body": at.offset + at.size_bytes - 1}
    places |= {"record": copy.index(fence.encode()), "end": len(copy) - 1}
    damaged_file(logs.path(2), *(places[damage] for _ in range(damage in places)))
    index.close()
    logs.close()


async def bookie_with_source(options: BookieOptions, damage: str) -> None:
    """Such logs in a bookie's directory."""
    async with open_bookie(options):
        pass
    (directory,) = options.ledger_dirs
    shutil.rmtree(directory / "index")
    moved_with_source(directory, damage)


@pytest.mark.parametrize("damage", ["head", "body", "record", "end", "inherited", "none"])
async def test_a_damaged_copy_does_not_remove_its_source(tmp_path: Path, damage: str) -> None:
    """Unless that is as damaged. The index is as good as before: no ledger is in doubt for it."""
    options = small_options(tmp_path, replicas_elsewhere=True)
    await bookie_with_source(options, damage)
    for more in (5, 6):
        async with open_bookie(options) as port:
            whole = damage in ("inherited", "none")
            assert log_names(tmp_path)[:2] == ["00000001.log", "00000002.log"][whole:] or more == 6
            bookie = cast(InProcessBookie, port)
            await bookie.gc.collect(ledgers(2, 3), threshold=0.9)
            assert await read_all(port, 2, 0, more - 1) == packets(2, range(more))
            assert await read_all(port, 3, 0, 3) == packets(3, range(4))
            if damage == "inherited":
                with pytest.raises(DigestMismatch):
                    await port.read(3, 4, entries_max=1, bytes_max=1)
            else:
                assert await read_all(port, 3, 4, 4) == packets(3, [4])
            await add(port, 2, [more])
    assert not (tmp_path / "journal" / "limbo").exists()


async def test_what_a_copy_does_not_give_is_read_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the disk in the body of a block."""
    options = small_options(tmp_path)
    await bookie_with_source(options, "none")
    copy = tmp_path / "ledgers" / "00000002.log"
    place = copy.read_bytes().index(packets(3, [0])[0])
    read = LogFile.read

    def bad(self: LogFile, size_bytes: int, offset: int) -> bytes:
        if self.path == copy and offset <= place < offset + size_bytes:
            raise OSError(errno.EIO, "Input/output error", str(copy))
        return read(self, size_bytes, offset)

    monkeypatch.setattr(LogFile, "read", bad)
    async with open_bookie(options) as port:
        assert log_names(tmp_path) == ["00000001.log", "00000002.log"]
        bookie = cast(InProcessBookie, port)
        for _ in range(2):
            assert await read_all(port, 3, 0, 4) == packets(3, range(5))
            await bookie.gc.collect(ledgers(2, 3), threshold=0.9)


async def test_what_neither_log_gives_now_may_be_whole_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy's sector stays bad, the source's can be read again."""
    options = small_options(tmp_path)
    await bookie_with_source(options, "none")
    bad_of = {
        path: path.read_bytes().index(packets(3, [0])[0])
        for path in (tmp_path / "ledgers").glob("*.log")
    }
    read = LogFile.read

    def bad(self: LogFile, size_bytes: int, offset: int) -> bytes:
        if self.path in bad_of and offset <= bad_of[self.path] < offset + size_bytes:
            raise OSError(errno.EIO, "Input/output error", str(self.path))
        return read(self, size_bytes, offset)

    monkeypatch.setattr(LogFile, "read", bad)
    async with open_bookie(options) as port:
        assert log_names(tmp_path) == ["00000001.log", "00000002.log"]
        del bad_of[tmp_path / "ledgers" / "00000001.log"]
        assert await read_all(port, 3, 0, 4) == packets(3, range(5))


async def test_without_another_copy_the_disks_error_is_told(tmp_path: Path, broken: Broken) -> None:
    """Which is no damage: a client asks again, or another bookie."""
    options = small_options(tmp_path)
    await one_log(options)
    async with open_bookie(options) as port:
        broken(tmp_path / "ledgers" / "00000001.log", lambda offset: offset >= 8192)
        with pytest.raises(StorageFailed, match="Input/output error"):
            await port.read(1, 0, entries_max=1, bytes_max=1)
        broken(tmp_path / "ledgers" / "00000001.log", lambda _: False)
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))


async def test_a_source_that_cannot_be_removed_ends_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = small_options(tmp_path)
    await bookie_with_source(options, "none")

    def fail(*_arguments: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(EntryLogs, "remove", fail)
        async with open_bookie(options) as port:
            assert await read_all(port, 3, 0, 4) == packets(3, range(5))
    assert log_names(tmp_path) == ["00000001.log", "00000002.log"]
    async with open_bookie(options) as port:
        assert log_names(tmp_path) == ["00000002.log"]
        assert await read_all(port, 3, 0, 4) == packets(3, range(5))


@pytest.mark.parametrize("damaged", [False, True])
def test_without_an_index_a_copy_goes_if_its_source_is_whole(tmp_path: Path, damaged: bool) -> None:
    moved_with_source(tmp_path, "none")
    logs = EntryLogs(OsDisk(), tmp_path)
    if damaged:
        data = logs.path(1).read_bytes()
        damaged_file(logs.path(1), data.index(packets(3, [4])[0]))
    finish_compactions(logs, None)
    assert logs.ids() == [1, 2][: 1 + damaged]
    logs.close()


def test_a_copy_that_the_index_does_not_name_goes(tmp_path: Path) -> None:
    """Also one with a record that is damaged in its source: the index is as before, and has it."""
    logs, index = EntryLogs(OsDisk(), tmp_path), LocationIndex(tmp_path / "index")
    writer = EntryLogWriter(logs)
    found = [writer.append(KIND_ENTRIES, each, 0, packets(each, range(5))) for each in (1, 2)]
    record = writer.append(KIND_LEDGER, 3, 0, [LedgerRecord(3, KEY, True, False, b"").encode()])
    writer.seal()
    index.write(found[1:], [LedgerRecord(3, KEY, True, False, b"")], completes=True)
    damaged_file(logs.path(1), record.offset + 9)
    source = logs.path(1).read_bytes()
    compact_log(logs, index, 1, lambda _size: None)
    logs.path(1).write_bytes(source)
    index.write(found[1:], removed=[each for each in index.locations(2) if each.log_id == 2])
    logs = EntryLogs(OsDisk(), tmp_path)
    finish_compactions(logs, index)
    assert logs.ids() == [1]
    index.close()
    logs.close()


def unmoved_with_copy(directory: Path) -> tuple[EntryLogs, LocationIndex]:
    """As `moved_with_source`, with an index that names the source yet."""
    moved_with_source(directory, "none")
    logs, index = EntryLogs(OsDisk(), directory), LocationIndex(directory / "index")
    moved = list(index.in_log(2))
    with logs.reading(1) as file:
        found = [
            location_of(head, 1, offset)
            for offset, head in scan_blocks(file)
            if head.kind == KIND_ENTRIES and head.ledger_id > 1
        ]
    index.write(found, removed=moved)
    return logs, index


@pytest.mark.parametrize("damage", [5, -1])
async def test_a_copy_that_is_better_than_its_source_is_named(tmp_path: Path, damage: int) -> None:
    """The source's head or body was damaged since."""
    options = small_options(tmp_path)
    async with open_bookie(options):
        pass
    shutil.rmtree(tmp_path / "ledgers" / "index")
    logs, index = unmoved_with_copy(tmp_path / "ledgers")
    (location,) = index.locations(3)
    place = location.offset + (damage if damage > 0 else location.size_bytes - 1)
    damaged_file(logs.path(1), place)
    index.close()
    logs.close()
    for _ in range(2):
        async with open_bookie(options) as port:
            assert await read_all(port, 3, 0, 4) == packets(3, range(5))
            assert await read_all(port, 2, 0, 4) == packets(2, range(5))
            await cast(InProcessBookie, port).gc.collect(ledgers(2, 3), threshold=2)


@pytest.mark.parametrize("moved", [True, False])
def test_what_is_damaged_in_both_is_compared_by_entry(tmp_path: Path, moved: bool) -> None:
    """Not by their number: each has what the other one lost."""
    if moved:
        moved_with_source(tmp_path, "none")
        logs, index = EntryLogs(OsDisk(), tmp_path), LocationIndex(tmp_path / "index")
    else:
        logs, index = unmoved_with_copy(tmp_path)
    for log_id in (1, 2):
        place = logs.path(log_id).read_bytes().index(packets(3, [log_id])[0])
        damaged_file(logs.path(log_id), place)
    finish_compactions(logs, index)
    assert logs.ids() == [1, 2]
    assert {each.log_id for each in index.locations(3)} == {1, 2}
    index.close()
    logs.close()


@pytest.mark.parametrize("failing", ["source", "copy", "index", "index's write"])
async def test_what_cannot_be_told_apart_is_not_compacted(
    tmp_path: Path, broken: Broken, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A head of the source, the copy's header or a part of the index can't be read at a start, and
    the copy, which that names, is damaged. The next start, to which the disk gives it again, finds
    what is better.
    """
    options = small_options(tmp_path)
    await bookie_with_source(options, "body")
    source, copy = (tmp_path / "ledgers" / f"0000000{log_id}.log" for log_id in (1, 2))
    write = LocationIndex.write

    def fail(self: LocationIndex, *arguments: Any, **how: Any) -> None:
        if failing == "index" or arguments:
            raise IndexFailed("Corruption: block checksum mismatch")
        write(self, *arguments, **how)

    with monkeypatch.context() as patched:
        if failing == "source":
            broken(source, lambda offset: offset >= 8192)
        elif failing == "copy":
            broken(copy, lambda offset: offset < 8192)
        else:
            patched.setattr(LocationIndex, "in_log" if failing == "index" else "write", fail)
        async with open_bookie(options) as port:
            broken(source, lambda _: False)
            broken(copy, lambda _: False)
            patched.undo()
            collector = cast(InProcessBookie, port).gc
            for _ in range(2):
                assert (await collector.collect(ledgers(2, 3), threshold=2)).logs_compacted == 0
            assert await read_all(port, 2, 0, 4) == packets(2, range(5))
    assert source.exists()
    async with open_bookie(options) as port:
        assert await read_all(port, 3, 0, 4) == packets(3, range(5))
        await cast(InProcessBookie, port).gc.collect(ledgers(2, 3), threshold=2)
        assert await read_all(port, 3, 0, 4) == packets(3, range(5))


@pytest.mark.parametrize("kind", [KIND_ENTRIES, KIND_LEDGER])
async def test_a_rebuild_for_which_a_log_cannot_be_read_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """The bookie starts with the index as before; a copy that it names is there."""
    options = small_options(tmp_path)
    await bookie_with_source(options, "none")
    logs = EntryLogs(OsDisk(), tmp_path / "ledgers")
    writer = EntryLogWriter(logs)
    record = LedgerRecord(9, KEY, False, False, b"").encode()
    bad_place = writer.append(kind, 9, 0, [record]).offset
    if kind == KIND_LEDGER:  # its body
        bad_place += BLOCK_HEAD_BYTES + 8
    writer.seal()
    logs.close()
    read = LogFile.read

    def bad(self: LogFile, size_bytes: int, offset: int) -> bytes:
        if self.path == writer.path and offset <= bad_place < offset + size_bytes:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, size_bytes, offset)

    monkeypatch.setattr(LogFile, "read", bad)
    with pytest.raises(ShellFailed, match="Input/output error"):
        rebuild_locations(Host(), options, print)
    assert log_names(tmp_path) == ["00000001.log", "00000002.log", "00000003.log"]
    async with open_bookie(options) as port:
        assert await read_all(port, 3, 0, 4) == packets(3, range(5))


def test_a_rebuild_that_is_cut_off_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of an index that was complete: it has no place of an entry then."""
    moved_with_source(tmp_path, "none")
    logs, index = EntryLogs(OsDisk(), tmp_path), LocationIndex(tmp_path / "index")
    assert index.is_complete()
    begin_rebuild(logs, index)

    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(LocationIndex, "write", fail)
        with pytest.raises(OSError, match="No space left"):
            rebuild_index(logs, index, print)
    assert not index.is_complete()
    index.close()
    logs.close()
