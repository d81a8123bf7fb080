"""The zeros that a journal writes ahead of small records (BK-01), and what must stay as it is."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from geminga_bookie._tests.sim_disk import SimDisk, SimFile
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.options import JournalOptions
from geminga_bookie.storage.journal import Journal, Request
from geminga_bookie.storage.journal_files import (
    SMALL_RECORD_BYTES_MAX,
    JournalFiles,
    journal_name,
)
from geminga_bookie.storage.journal_format import ENTRIES, PAGE_BYTES, JournalPosition
from geminga_bookie.workers import ThreadWorkers
from geminga_protocol.buffers import Buffer

DIRECTORY = Path("/journal")
AHEAD_BYTES = JournalOptions().ahead_bytes
OPTIONS = JournalOptions(
    segment_bytes=4 * AHEAD_BYTES, first_segment_bytes=4 * AHEAD_BYTES, backups_max=0
)
SMALL = b"small entry"

Written = tuple[int, int]
"""Begin and end of one durable write."""


class Life:
    """A journal, and what it wrote durably to its files of records."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk = SimDisk(1)
        self.disk.make_directory(DIRECTORY)
        self.written: list[Written] = []
        write = SimFile.write_durably

        def record(file: SimFile, buffers: Sequence[Buffer], offset: int) -> None:
            write(file, buffers, offset)
            self.written.append((offset, offset + sum(map(len, buffers))))

        monkeypatch.setattr(SimFile, "write_durably", record)

    @asynccontextmanager
    async def journal(self, options: JournalOptions = OPTIONS) -> AsyncIterator[Journal]:
        workers = ThreadWorkers()
        files = JournalFiles(self.disk, DIRECTORY, options, 1, JournalPosition(0, 0), workers)
        journal = Journal(files, options, workers, lambda _: None)
        journal.start()
        try:
            yield journal
        finally:
            await trio.to_thread.run_sync(journal.stop)

    def content(self, number: int) -> bytes:
        file = self.disk.open(DIRECTORY / journal_name(number), writable=False)
        try:
            return file.read(file.size(), 0)
        finally:
            file.close()


async def add(journal: Journal, number: int, entry: bytes) -> BookkeeperError | None:
    passed = trio.Event()
    failed: list[BookkeeperError | None] = []

    def done(_first: int, _count: int, error: BookkeeperError | None) -> None:
        failed.append(error)
        passed.set()

    journal.submit(Request(ENTRIES, 1, number, [entry], len(entry), done))
    with trio.fail_after(30):
        await passed.wait()
    return failed[0]


async def test_small_records_go_where_zeros_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(monkeypatch)
    async with life.journal() as journal:
        for number in range(3 * AHEAD_BYTES // PAGE_BYTES):
            assert await add(journal, number, SMALL) is None
            if journal.position.journal_id > 1:
                break
    # Of one file: each write begins behind the record before, and few are longer than a page.
    upto = 0
    longer = 0
    for begin, end in life.written:
        if end - begin > PAGE_BYTES:
            longer += 1
            assert begin >= upto or not upto  # only where nothing was written
            assert AHEAD_BYTES < end - begin <= 2 * AHEAD_BYTES + PAGE_BYTES
            assert end <= OPTIONS.segment_bytes
            upto = end
        assert end <= upto
    assert 2 <= longer <= 4


@pytest.mark.parametrize(
    ("options", "entry"),
    [
        (OPTIONS, bytes(SMALL_RECORD_BYTES_MAX)),
        (replace(OPTIONS, sync_data=False), SMALL),
        (replace(OPTIONS, ahead_bytes=0), SMALL),
    ],
    ids=["large", "not synced", "turned off"],
)
async def test_nothing_is_written_ahead(
    options: JournalOptions, entry: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(monkeypatch)
    async with life.journal(options) as journal:
        assert await add(journal, 0, entry) is None
        end = journal.position.offset
    assert [stop for _, stop in life.written] == ([end] if options.sync_data else [])
    assert not any(life.content(1)[end + PAGE_BYTES :])


async def test_zeros_end_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last record's place has room for less than what goes behind it elsewhere."""
    life = Life(monkeypatch)
    small = replace(OPTIONS, segment_bytes=8 * PAGE_BYTES, first_segment_bytes=8 * PAGE_BYTES)
    async with life.journal(small) as journal:
        assert await add(journal, 0, SMALL) is None
    assert life.written[-1][1] == 8 * PAGE_BYTES == len(life.content(1))


async def test_a_file_that_is_used_again_keeps_what_it_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its header has the checksums of that, by which a start tells it from damage."""
    life = Life(monkeypatch)
    async with life.journal() as journal:
        number = 0
        while True:
            assert await add(journal, number, b"\1" * 64 * 1024) is None
            number += 1
            if journal.position.journal_id > 1:
                journal.set_mark(JournalPosition(journal.position.journal_id, 0))
            earlier = journal.position.journal_id
            if earlier >= 4:
                break
        before = life.content(earlier)
        life.written.clear()
        assert await add(journal, number, SMALL) is None
        begin, end = life.written[-1]
        assert end - begin == PAGE_BYTES
        assert journal.position == (earlier, end)
    after = life.content(earlier)
    assert b"\1" * PAGE_BYTES in before[end + PAGE_BYTES :]
    assert after[end + PAGE_BYTES :] == before[end + PAGE_BYTES :]


async def test_after_a_failed_sync_another_file_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file holds whose sync failed is not known, zeros behind it or not."""
    life = Life(monkeypatch)
    async with life.journal() as journal:
        assert await add(journal, 0, SMALL) is None
        first = journal.position.journal_id
        life.disk.fault = lambda step, _path: errno.EIO if step == "sync" else 0
        assert await add(journal, 1, SMALL) is not None
        life.disk.fault = lambda _step, _path: 0
        assert await add(journal, 2, SMALL) is None
        assert journal.position.journal_id > first
