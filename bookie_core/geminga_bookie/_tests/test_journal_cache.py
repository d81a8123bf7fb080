"""What a journal tells the system to drop from its memory (BK-01; journalRemovePagesFromCache)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from geminga_bookie._tests.sim_disk import SimDisk, SimFile
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.options import JournalOptions
from geminga_bookie.storage.journal import Journal, Request
from geminga_bookie.storage.journal_files import CACHED_FILE_BYTES_MAX, DROP_BYTES, JournalFiles
from geminga_bookie.storage.journal_format import ENTRIES, JournalPosition
from geminga_bookie.workers import ThreadWorkers

DIRECTORY = Path("/journal")
LARGE = JournalOptions(
    segment_bytes=2 * CACHED_FILE_BYTES_MAX, first_segment_bytes=2 * CACHED_FILE_BYTES_MAX
)
SMALL = JournalOptions(
    segment_bytes=CACHED_FILE_BYTES_MAX, first_segment_bytes=CACHED_FILE_BYTES_MAX
)
ENTRY = bytes(100_000)
WRITTEN_BYTES = 6 * DROP_BYTES

Dropped = tuple[int, int, int]
"""Begin, end, and the end of what is on disk."""


async def written(
    options: JournalOptions, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Dropped], int]:
    """What was dropped while WRITTEN_BYTES were written one by one, and where these end."""
    dropped: list[Dropped] = []
    monkeypatch.setattr(
        SimFile,
        "drop_cached",
        lambda _self, begin, end: dropped.append((begin, end, journal.position.offset)),
    )
    disk, workers = SimDisk(1), ThreadWorkers()
    disk.make_directory(DIRECTORY)
    files = JournalFiles(disk, DIRECTORY, options, 1, JournalPosition(0, 0), workers)
    journal = Journal(files, options, workers, lambda _: None)
    journal.start()
    try:
        for number in range(WRITTEN_BYTES // len(ENTRY)):
            passed = trio.Event()

            def done(
                _first: int, _count: int, error: BookkeeperError | None, passed: trio.Event = passed
            ) -> None:
                assert error is None
                passed.set()

            journal.submit(Request(ENTRIES, 1, number, [ENTRY], len(ENTRY), done))
            with trio.fail_after(30):
                await passed.wait()
        return dropped, journal.position.offset
    finally:
        await trio.to_thread.run_sync(journal.stop)


async def test_what_is_on_disk_is_dropped_some_way_behind_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped, end = await written(LARGE, monkeypatch)
    assert [begin for begin, _, _ in dropped] == [0, *(upto for _, upto, _ in dropped[:-1])]
    for begin, upto, durable in dropped:
        assert upto == durable - DROP_BYTES >= begin + DROP_BYTES
    assert dropped[-1][1] > end - 3 * DROP_BYTES


@pytest.mark.parametrize(
    "options",
    [SMALL, replace(LARGE, drops_cached=False), replace(LARGE, sync_data=False)],
    ids=["read again soon", "turned off", "not on disk"],
)
async def test_nothing_else_is_dropped(
    options: JournalOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await written(options, monkeypatch))[0] == []
