"""Loss of power at any operation of a journal that reuses its files (BK-01, BK-02): what was
acknowledged is read back, and a crash is never called damage."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.support import packets
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.options import JournalOptions
from geminga_bookie.storage.journal import Journal, Request
from geminga_bookie.storage.journal_files import JournalFiles, read_mark
from geminga_bookie.storage.journal_format import ENTRIES, JournalItem, JournalPosition
from geminga_bookie.storage.journal_replay import ReplayReport, replay
from geminga_bookie.workers import ThreadWorkers

DIRECTORY = Path("/journal")
OPTIONS = JournalOptions(
    segment_bytes=65536, first_segment_bytes=32768, backups_max=1, ahead_bytes=8192
)
SIZES = (10, 100, 3000, 9000)


class Life:
    """A journal directory over many losses of power."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimDisk(seed)
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory(DIRECTORY.parent)
        self.sizes: dict[int, int] = {}
        self.acknowledged: dict[int, JournalPosition] = {}
        self.next_entry = 0

    async def run_until_power_is_lost(self, report: ReplayReport) -> None:
        mark = read_mark(self.disk, DIRECTORY) or JournalPosition(0, 0)
        workers = ThreadWorkers()
        files = JournalFiles(self.disk, DIRECTORY, OPTIONS, report.next_id, mark, workers)
        journal = Journal(files, OPTIONS, workers, lambda _: None, report.end)
        self.disk.crash_at = self.disk.steps + self.chance.randint(1, 150)
        try:
            journal.start()
            while not self.disk.is_off:
                await self._add(journal)
                if self.chance.random() < 0.3:
                    journal.set_mark(self.chance.choice([mark, journal.position]))
                    mark = read_mark(self.disk, DIRECTORY) or mark
        except OSError:
            assert self.disk.is_off
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(journal.stop)

    async def _add(self, journal: Journal) -> None:
        waiting = self.chance.randint(1, 3)
        passed = trio.Event()

        def done(first: int, count: int, error: BookkeeperError | None) -> None:
            nonlocal waiting
            if error is None:
                self.acknowledged.update(
                    dict.fromkeys(range(first, first + count), journal.position)
                )
            waiting -= count
            if waiting == 0:
                passed.set()

        for _ in range(waiting):
            size = self.sizes[self.next_entry] = self.chance.choice(SIZES)
            run = packets(1, [self.next_entry], size)
            journal.submit(Request(ENTRIES, 1, self.next_entry, run, size, done))
            self.next_entry += 1
        with trio.fail_after(30):
            await passed.wait()

    def check(self) -> ReplayReport:
        """Restart, and read what is there."""
        self.disk.start_after_power_loss()
        found: set[int] = set()

        def apply(item: JournalItem) -> None:
            (packet,) = item.payload
            assert [packet] == packets(1, [item.number], self.sizes[item.number])
            found.add(item.number)

        report = replay(self.disk, DIRECTORY, apply)
        mark = read_mark(self.disk, DIRECTORY) or JournalPosition(0, 0)
        due = {entry for entry, position in self.acknowledged.items() if position > mark}
        assert due <= found, f"lost: {sorted(due - found)[:5]}"
        assert report.damages == []
        assert report.notes == []
        return report


@pytest.mark.parametrize("seed", range(12))
async def test_power_is_lost_again_and_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga_bookie.storage.journal.IDLE_MARK_S", 1e-6 if seed % 2 else 1.0)
    life = Life(seed)
    report = life.check()
    for _ in range(25):
        await life.run_until_power_is_lost(report)
        report = life.check()
    assert life.acknowledged
