"""Journals that were damaged, torn or written by an older version, through a whole bookie (BK-01,
BK-02)."""

from __future__ import annotations

import errno
import logging
import random
import threading
import zipfile
from pathlib import Path
from typing import cast

import pytest

from geminga_bookie._tests.journal_files import (
    PAGE_BYTES,
    errors,
    last_record,
    patch,
    used_journal,
)
from geminga_bookie._tests.support import (
    KEY,
    OTHER_KEY,
    FaultyDisk,
    Outcomes,
    add,
    copy_files,
    packet,
    packets,
    read_all,
    read_lac,
    small_options,
    until,
    until_writable,
)
from geminga_bookie.errors import (
    EntryLost,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    StorageFailed,
    UnauthorizedAccess,
)
from geminga_bookie.inprocess import InProcessBookie, open_bookie
from geminga_bookie.options import BookieOptions, JournalOptions
from geminga_bookie.port import BookiePort
from geminga_bookie.storage.disk import OsDisk
from geminga_bookie.storage.journal import Journal
from geminga_bookie.storage.journal_files import journal_ids, read_mark

RECYCLING = JournalOptions(segment_bytes=64 * 1024, first_segment_bytes=64 * 1024, backups_max=1)


def storage_of(port: object) -> InProcessBookie:
    return cast(InProcessBookie, port)


def fail_journal(disk: FaultyDisk) -> None:
    disk.fault = lambda step, path: (
        errno.EIO if step == "sync" and path.parent.name == "journal" else 0
    )


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga_bookie.inprocess.FAILED_RETRY_S", 0.01)


@pytest.mark.parametrize("shift", [0, 60, 3000])
async def test_16_kib_of_noise_in_the_last_record_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shift: int
) -> None:
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        await add(bookie, 1, range(5))
        await add(bookie, 1, range(5, 25), size=1000)
        copy_files(tmp_path / "a", tmp_path / "b")
    path = used_journal(tmp_path / "b")
    patch(path, last_record(path) + shift, random.Random(1).randbytes(16384))
    async with open_bookie(small_options(tmp_path / "b")) as bookie:
        assert await read_all(bookie, 1, 0, 4) == packets(1, range(5))
        with pytest.raises(NoSuchEntry):
            await bookie.read(1, 5, entries_max=1, bytes_max=1)
    (text,) = {text for text in errors(caplog) if "may be lost" in text}
    assert ("ledger 1: entries 5 to 24" in text) == (shift == 3000)
    assert "unfinished" not in caplog.text


async def test_damage_of_a_journal_that_is_not_the_newest_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The record's pages are as before it was written: only the next file knows that it was."""
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        for entry_id in range(8):
            await add(bookie, 1, [entry_id], size=50_000)
        copy_files(tmp_path / "a", tmp_path / "b")
    first = next(iter(sorted((tmp_path / "b" / "journal").glob("*.journal"))))
    assert first != used_journal(tmp_path / "b")
    start = last_record(first)
    patch(first, start + PAGE_BYTES, bytes(PAGE_BYTES))
    async with open_bookie(small_options(tmp_path / "b")) as bookie:
        with pytest.raises(EntryLost):
            await read_all(bookie, 1, 0, 7)
        assert await read_all(bookie, 1, 7, 7) == packets(1, [7], 50_000)
    assert len(errors(caplog)) == 1
    assert "unfinished" not in caplog.text


async def test_a_journal_that_lost_its_last_records_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        for entry_id in range(8):
            await add(bookie, 1, [entry_id], size=50_000)
        copy_files(tmp_path / "a", tmp_path / "b")
    first = next(iter(sorted((tmp_path / "b" / "journal").glob("*.journal"))))
    start = last_record(first)
    patch(first, start, bytes(len(first.read_bytes()) - start))
    async with open_bookie(small_options(tmp_path / "b")):
        pass
    assert len(errors(caplog)) == 1
    assert "are missing" in caplog.text


async def test_a_payload_never_becomes_a_record(tmp_path: Path) -> None:
    """A client that knows the format hides a whole record, page-aligned, in an entry."""
    async with open_bookie(small_options(tmp_path / "evil")) as bookie:
        for entry_id in range(4):
            await add(bookie, 66, [entry_id])
        copy_files(tmp_path / "evil", tmp_path / "stolen")
    stolen = used_journal(tmp_path / "stolen")
    page = stolen.read_bytes()[last_record(stolen) :][:PAGE_BYTES]
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        await add(bookie, 1, [0])
        await add(bookie, 1, [1], size=100)
        copy_files(tmp_path / "a", tmp_path / "b")
        # Where an entry of a record of its own begins in its page.
        place = used_journal(tmp_path / "b").read_bytes().index(packet(1, 1, 0)) % PAGE_BYTES
        outcomes = Outcomes()
        body = packet(1, 2, size=PAGE_BYTES)[: PAGE_BYTES - place] + page
        bookie.add(1, KEY, 2, [body], outcomes)
        await outcomes.wait_for(1)
        copy_files(tmp_path / "a", tmp_path / "c")
    path = used_journal(tmp_path / "c")
    torn = path.read_bytes().index(body) // PAGE_BYTES * PAGE_BYTES
    assert path.read_bytes()[torn + PAGE_BYTES :].startswith(page)
    patch(path, torn, b"noise")
    async with open_bookie(small_options(tmp_path / "c")) as bookie:
        assert await read_all(bookie, 1, 0, 1) == packets(1, range(2))
        with pytest.raises(NoSuchLedger):
            await read_lac(bookie, 66)


async def recycled_and_killed(tmp_path: Path) -> BookieOptions:
    """A bookie killed soon after its first record in a journal that was used before."""
    options = small_options(tmp_path / "a", journal=RECYCLING)
    async with open_bookie(options) as port:
        bookie = storage_of(port)
        for first in range(30):
            await add(port, 1, [first], size=20_000)
            await bookie.checkpointer.checkpoint()
        await add(port, 1, [30], size=20_000)
        await add(port, 1, [31], size=100)
        copy_files(tmp_path / "a", tmp_path / "b")
    path = used_journal(tmp_path / "b")
    behind = path.read_bytes()[last_record(path) + PAGE_BYTES :]
    assert behind.strip(b"\0"), "the file was not used before: the test would pass on nothing"
    return small_options(tmp_path / "b", journal=RECYCLING)


async def test_a_kill_on_a_recycled_journal_leaves_nothing_unfinished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_bookie(await recycled_and_killed(tmp_path)) as bookie:
        assert await read_all(bookie, 1, 0, 30) == packets(1, range(31), 20_000)
        assert await read_all(bookie, 1, 31, 31) == packets(1, [31])
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_noise_in_the_last_record_of_a_recycled_journal_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = await recycled_and_killed(tmp_path)
    path = used_journal(tmp_path / "b")
    patch(path, last_record(path), random.Random(1).randbytes(PAGE_BYTES))
    async with open_bookie(options) as bookie:
        assert await read_all(bookie, 1, 0, 30) == packets(1, range(31), 20_000)
    assert len(errors(caplog)) == 1


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a journal has marked its end."""
    done, idle = threading.Event(), Journal.idle

    def noted(journal: Journal) -> None:
        idle(journal)
        done.set()

    monkeypatch.setattr(Journal, "idle", noted)
    return done


async def add_and_mark(
    bookie: BookiePort, entry_id: int, marked: threading.Event, *, size: int = 100
) -> None:
    """Add an entry, and wait until the end behind it is marked."""
    marked.clear()
    await add(bookie, 1, [entry_id], size=size)
    await until(marked.is_set)


async def test_an_idle_journal_marks_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, marked: threading.Event
) -> None:
    """Then even a record that is gone without a trace is known to have been there."""
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        await add_and_mark(bookie, 0, marked)
        await add_and_mark(bookie, 1, marked, size=9000)
        copy_files(tmp_path / "a", tmp_path / "b")
    path = used_journal(tmp_path / "b")
    patch(path, last_record(path) + PAGE_BYTES, bytes(PAGE_BYTES))
    async with open_bookie(small_options(tmp_path / "b")):
        pass
    assert "ledger 1: entries 1 to 1" in errors(caplog)[0]


async def test_the_end_mark_gives_way_to_the_next_record(
    tmp_path: Path, marked: threading.Event
) -> None:
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        for entry_id in range(4):
            await add_and_mark(bookie, entry_id, marked)
        copy_files(tmp_path / "a", tmp_path / "b")
    async with open_bookie(small_options(tmp_path / "b")) as bookie:
        report = storage_of(bookie).storage.reports[0]
        # The ledger's key is mostly in the first entry's record, or in one of its own.
        assert report.records in (4, 5)
        assert (report.damages, report.torn_tails) == ([], [])
        assert await read_all(bookie, 1, 0, 3) == packets(1, range(4))


async def test_a_failed_write_is_never_called_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next file names the end before it."""
    disk = FaultyDisk()
    async with open_bookie(small_options(tmp_path / "a"), disk=disk) as bookie:
        await add(bookie, 1, range(3))
        name = used_journal(tmp_path / "a").name
        fail_journal(disk)
        with pytest.raises(StorageFailed):
            await add(bookie, 1, range(3, 6), size=5000)
        disk.heal()
        await until_writable(bookie)
        await add(bookie, 2, range(3))
        copy_files(tmp_path / "a", tmp_path / "b")
    path = tmp_path / "b" / "journal" / name
    patch(path, last_record(path) + 5000, b"noise")
    caplog.clear()
    async with open_bookie(small_options(tmp_path / "b")) as bookie:
        assert await read_all(bookie, 1, 0, 2) == packets(1, range(3))
        assert await read_all(bookie, 2, 0, 2) == packets(2, range(3))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_key_whose_record_failed_goes_with_the_next_group(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with open_bookie(small_options(tmp_path / "a"), disk=disk) as bookie:
        await add(bookie, 1, [0])
        disk.fault = lambda step, path: (
            errno.EIO if step == "write" and path.parent.name == "journal" else 0
        )
        with pytest.raises(StorageFailed):
            await add(bookie, 2, [0])
        disk.heal()
        await until_writable(bookie)
        await add(bookie, 2, [0])
        copy_files(tmp_path / "a", tmp_path / "b")
    async with open_bookie(small_options(tmp_path / "b")) as bookie:
        with pytest.raises(UnauthorizedAccess):
            await add(bookie, 2, [1], key=OTHER_KEY)
        await add(bookie, 2, [1])


async def test_a_key_that_is_adopted_is_journaled(tmp_path: Path) -> None:
    """The record that held the key is damaged: whoever opens the ledger first brings it again."""
    async with open_bookie(small_options(tmp_path / "a")) as bookie:
        for entry_id in range(3):
            await add(bookie, 1, [entry_id])
        copy_files(tmp_path / "a", tmp_path / "b")
    path = used_journal(tmp_path / "b")
    patch(path, path.read_bytes().index(b"GREC"), b"noise")
    async with open_bookie(small_options(tmp_path / "b")) as bookie:
        await storage_of(bookie).checkpointer.checkpoint()
        await add(bookie, 1, [3])
        copy_files(tmp_path / "b", tmp_path / "c")
    async with open_bookie(small_options(tmp_path / "c")) as bookie:
        with pytest.raises(UnauthorizedAccess):
            await add(bookie, 1, [4], key=OTHER_KEY)


def test_five_old_journals_are_kept() -> None:
    assert JournalOptions().backups_max == 5


async def test_so_many_old_journals_are_kept(tmp_path: Path) -> None:
    """BookKeeper's `journalMaxBackups`: files wholly behind the mark."""
    journal = JournalOptions(segment_bytes=65536, first_segment_bytes=65536, backups_max=5)
    async with open_bookie(small_options(tmp_path, journal=journal)) as port:
        bookie = storage_of(port)
        for entry_id in range(60):
            await add(port, 1, [entry_id], size=20_000)
            await bookie.checkpointer.checkpoint()
        mark = read_mark(OsDisk(), tmp_path / "journal")
        assert mark is not None
        ids = journal_ids(OsDisk(), tmp_path / "journal")
        behind = [number for number in ids if number < mark.journal_id]
        assert len(behind) in (5, 6), "five, and one to be used again"
        assert mark.journal_id > 10


async def test_a_full_disk_uses_old_journals_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    journal = JournalOptions(segment_bytes=65536, first_segment_bytes=65536, backups_max=5)
    async with open_bookie(small_options(tmp_path, journal=journal), disk=disk) as port:
        bookie = storage_of(port)
        for entry_id in range(15):
            await add(port, 1, [entry_id], size=20_000)
            await bookie.checkpointer.checkpoint()
        disk.fail("create", "next.tmp", errno.ENOSPC)
        for entry_id in range(15, 30):
            await add(port, 1, [entry_id], size=20_000)
            await bookie.checkpointer.checkpoint()
        copy_files(tmp_path, tmp_path.with_name("killed"))
    async with open_bookie(small_options(tmp_path.with_name("killed"))) as port:
        assert await read_all(port, 1, 0, 29) == packets(1, range(30), 20_000)


async def test_a_bookie_of_the_first_format_opens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`version_1.zip` was left by a kill of a bookie that wrote journals of version 1."""
    with zipfile.ZipFile(Path(__file__).with_name("version_1.zip")) as archive:
        archive.extractall(tmp_path / "a")

    async def check(bookie: BookiePort) -> None:
        assert await read_all(bookie, 1, 0, 149) == packets(1, range(150), 1000)
        assert await read_all(bookie, 2, 0, 4) == packets(2, range(5))
        assert await read_all(bookie, 3, 0, 0) == packets(3, [0], 9000)
        # The explicit LAC of 149 had no packet that a client could check.
        assert await read_lac(bookie, 1) == 148
        with pytest.raises(LedgerFenced):
            await add(bookie, 2, [5])
        with pytest.raises(UnauthorizedAccess):
            await add(bookie, 3, [1], key=OTHER_KEY)

    async with open_bookie(small_options(tmp_path / "a", journal=RECYCLING)) as bookie:
        await check(bookie)
        await add(bookie, 3, [1])
        copy_files(tmp_path / "a", tmp_path / "b")
        for first in range(2, 30):
            await add(bookie, 3, [first], size=20_000)
            await storage_of(bookie).checkpointer.checkpoint()
        await check(bookie)
        copy_files(tmp_path / "a", tmp_path / "c")
    for name in ("b", "c"):
        async with open_bookie(small_options(tmp_path / name, journal=RECYCLING)) as bookie:
            await check(bookie)
            assert await read_all(bookie, 3, 1, 1) == packets(3, [1])
            report = storage_of(bookie).storage.reports[0]
            assert report.damages == []
    assert errors(caplog) == []
