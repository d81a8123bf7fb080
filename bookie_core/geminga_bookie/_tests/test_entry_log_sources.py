"""Logs that were compacted and their sources, the note of logs without salt, and logs of which
nothing is known: what a start, an index made anew and collection leave of them (BK-04, BK-06).
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.support import ledgers, packets, read_all, small_options
from geminga_bookie._tests.test_entry_log_forgery import without_headers, write_version_1
from geminga_bookie._tests.test_entry_log_headers import (
    Broken,
    broken,
    compacted,
    log_names,
    one_log,
)
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.storage.disk import OsDisk
from geminga_bookie.storage.entry_logs.compaction import finish_compactions
from geminga_bookie.storage.entry_logs.files import UNSALTED_NAME, EntryLogs, EntryLogWriter
from geminga_bookie.storage.entry_logs.format import (
    KIND_ENTRIES,
    KIND_LEDGER,
    NO_SALT,
    encode_block,
)
from geminga_bookie.storage.entry_logs.reading import (
    BLANK_BYTES_MAX,
    LogFile,
    is_unknown,
    location_of,
)
from geminga_bookie.storage.entry_logs.reading import scan_blocks as blocks_of
from geminga_bookie.storage.location_index import LedgerRecord, LocationIndex

__all__ = ["broken"]

FENCED = LedgerRecord(7, b"key", True, False, b"")


def write_log(logs: EntryLogs, source: int, *, record: bool, entries: int = 0) -> int:
    """A sealed log with a record of ledger 7, or so many entries of ledger 1."""
    writer = EntryLogWriter(logs, compacted_from=source)
    if entries:
        writer.append(KIND_ENTRIES, 1, 0, packets(1, range(entries)))
    if record:
        writer.append(KIND_LEDGER, 7, 0, [FENCED.encode()])
    writer.sync()
    writer.seal()
    return writer.log_id


@pytest.mark.parametrize(
    ("how", "stay"),
    [
        ("whole", [1]),
        ("without headers", [1, 2]),
        ("another log", [1, 2]),
        ("damaged record", [1, 2]),
    ],
)
def test_a_compacted_log_of_records_alone_needs_its_source_whole(
    tmp_path: Path, how: str, stay: list[int]
) -> None:
    """It may have the only record of a fence."""
    logs = EntryLogs(OsDisk(), tmp_path)
    assert write_log(logs, 0, record=how != "another log", entries=3) == 1
    assert write_log(logs, 1, record=True) == 2
    if how == "without headers":
        without_headers(logs.path(1))
    if how == "damaged record":
        data = bytearray(logs.path(1).read_bytes())
        data[data.index(FENCED.encode())] ^= 1
        logs.path(1).write_bytes(data)
    finish_compactions(logs, None)
    assert logs.ids() == stay
    logs.close()


def test_with_an_index_too_the_source_has_to_be_the_source(tmp_path: Path) -> None:
    """The index names the compacted log and not the other one, which has a fence's record."""
    logs = EntryLogs(OsDisk(), tmp_path)
    assert write_log(logs, 0, record=True) == 1
    assert write_log(logs, 1, record=False, entries=3) == 2
    index = LocationIndex(tmp_path / "index")
    with logs.reading(2) as file:
        found = [location_of(head, 2, offset) for offset, head in blocks_of(file)]
    index.write([each for each in found if each.ledger_id == 1])
    finish_compactions(logs, index)
    assert logs.ids() == [1, 2]
    index.close()
    logs.close()


def test_no_log_comes_from_the_log_with_number_0(tmp_path: Path) -> None:
    logs = EntryLogs(OsDisk(), tmp_path)
    write_log(logs, 0, record=True)
    shutil.copy(logs.path(1), logs.path(0))
    logs.created(0)
    finish_compactions(logs, None)
    assert logs.ids() == [0, 1]
    logs.close()


def test_a_note_that_cannot_be_read_now_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / UNSALTED_NAME
    note.write_bytes(b"3\n")
    (tmp_path / "00000009.log").touch()

    def bad(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("geminga_bookie.storage.entry_logs.files.read_file", bad)
        logs = EntryLogs(OsDisk(), tmp_path)
        logs.note_unsalted()
        logs.close()
    assert note.read_bytes() == b"3\n"


def test_a_log_of_version_1_raises_the_note(tmp_path: Path) -> None:
    """An older version has run since, and wrote it."""
    note = tmp_path / UNSALTED_NAME
    note.write_bytes(b"0\n")
    logs = write_version_1(tmp_path)
    finish_compactions(logs, None)
    assert note.read_bytes() == b"1\n"
    logs.close()


async def test_a_log_that_cannot_be_read_is_kept_though_no_ledger_is_held(
    tmp_path: Path, broken: Broken
) -> None:
    """The index may lack what it has."""
    options = small_options(tmp_path, entry_log_bytes_max=1)
    await one_log(options)
    first = tmp_path / "ledgers" / "00000001.log"
    index = LocationIndex(tmp_path / "ledgers" / "index")
    index.delete_ledgers([1])
    index.write(completes=True)
    index.close()
    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        broken(first, lambda _: True)
        await bookie.gc.collect(ledgers(1))
        assert first.exists()
        broken(first, lambda _: False)
        await bookie.gc.collect(ledgers(1))
    async with open_bookie(options) as port:
        assert await read_all(port, 1, 0, 4) == packets(1, range(5))


async def test_a_log_that_can_be_read_again_within_a_round_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When metadata was asked nobody knew what is in it."""
    options = small_options(tmp_path, entry_log_bytes_max=1)
    await one_log(options)
    index = LocationIndex(tmp_path / "ledgers" / "index")
    index.delete_ledgers([1])
    index.write(completes=True)
    index.close()
    failures = 0
    read = LogFile.read

    def bad_once(self: LogFile, size_bytes: int, offset: int) -> bytes:
        nonlocal failures
        if self.path.name == "00000001.log" and not failures:
            failures += 1
            raise OSError(errno.EIO, "Input/output error")
        return read(self, size_bytes, offset)

    async with open_bookie(options) as port:
        bookie = cast(InProcessBookie, port)
        monkeypatch.setattr(LogFile, "read", bad_once)
        # The header was read at the start: the map is what can't be.
        await bookie.gc.collect(ledgers(1))
        assert failures == 1
        assert (tmp_path / "ledgers" / "00000001.log").exists()


def test_a_record_without_a_packet_is_no_block(tmp_path: Path) -> None:
    """A client can write one behind damage of a log of before."""
    forged = b"".join(encode_block(KIND_LEDGER, 7, 0, [], NO_SALT)[0])
    logs = write_version_1(tmp_path, forged)
    unreadable: list[range] = []
    with logs.reading(1) as file:
        assert list(blocks_of(file, unreadable)) == []
    assert unreadable == [range(32, 32 + len(forged))]
    logs.close()


@pytest.mark.parametrize(("size_bytes", "lost"), [(8192, False), (BLANK_BYTES_MAX + 1, True)])
def test_many_zeros_are_a_lost_log(tmp_path: Path, size_bytes: int, lost: bool) -> None:
    """A flush has synced some of it before it wrote so much."""
    path = tmp_path / "00000001.log"
    with path.open("wb") as file:
        file.truncate(size_bytes)
    logs = EntryLogs(OsDisk(), tmp_path)
    with logs.reading(1) as log:
        assert is_unknown(log) == lost
    logs.close()


async def test_a_file_that_is_moved_away_with_a_line_leaves_ledgers_in_doubt(
    tmp_path: Path,
) -> None:
    """As docs/OPERATIONS.md says."""
    options, path, _ = await compacted(tmp_path)
    shutil.rmtree(path.parent / "index")
    path.rename(path.with_name(f"{path.name}.unread"))
    (tmp_path / "journal" / "unread").write_text("a bad disk")
    async with open_bookie(options):
        assert (tmp_path / "journal" / "limbo").read_text() == "a bad disk"
    assert f"{path.name}.unread" in log_names(tmp_path)
