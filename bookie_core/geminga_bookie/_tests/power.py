"""A bookie on a disk that loses power: work from a seed, and what must hold after each crash."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import trio
import trio.testing

from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_stores import SimStores
from geminga_bookie._tests.sim_workers import TaskWorkers
from geminga_bookie._tests.support import (
    KEY,
    Outcomes,
    ledgers,
    packet,
    read_all,
    read_lac,
    small_options,
    write_lac,
)
from geminga_bookie.errors import BookkeeperError, LedgerFenced
from geminga_bookie.host import Host
from geminga_bookie.inprocess import open_bookie
from geminga_bookie.options import BookieOptions, GcOptions, JournalOptions
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_runtime._tests.scheduling import scheduled_by

DIRECTORY = Path("/data/bookie")
OPTIONS = replace(
    small_options(DIRECTORY),
    journal=JournalOptions(
        segment_bytes=48 * 1024, first_segment_bytes=24 * 1024, backups_max=0, ahead_bytes=8 * 1024
    ),
    gc=GcOptions(gc_interval_s=3600.0, compaction_rate_bytes_s=1 << 50),
    entry_log_bytes_max=16 * 1024,
    read_cache_bytes=0,
)
LEDGERS_MAX = 4
SPARSE = 0.9
"""Logs with a smaller share of live bytes are compacted."""
ORPHANS = "restart the bookie to rebuild the index"
"""What collection says if a flush was cut off by the crash and had entries of a new ledger that
were not in the journal either: nothing was acknowledged of it, and the rebuild brings it back."""


def content(ledger_id: int, entry_id: int) -> bytes:
    """The packet of an entry, the same each time it is added."""
    size = (10, 300, 2000, 9000)[random.Random(f"{ledger_id}:{entry_id}").randrange(4)]
    return packet(ledger_id, entry_id, entry_id - 1, size)


@dataclass(slots=True)
class Promises:
    """What the bookie has acknowledged."""

    entries: dict[int, int] = field(default_factory=dict)
    """Ledgers that were not deleted, with the number of their first entries."""
    fenced: set[int] = field(default_factory=set)
    fencing: set[int] = field(default_factory=set)
    """Those that may be fenced."""
    lacs: dict[int, int] = field(default_factory=dict)
    next_ledger: int = 1

    def copy(self) -> Promises:
        """As they are now."""
        return Promises(
            dict(self.entries),
            set(self.fenced),
            set(self.fencing),
            dict(self.lacs),
            self.next_ledger,
        )


class _Errors(logging.Handler):
    def __init__(self, counts: Callable[[], bool]) -> None:
        super().__init__(logging.ERROR)
        self._counts = counts
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self._counts():
            self.found.append(record.getMessage())


@contextmanager
def logged_errors(counts: Callable[[], bool] = lambda: True) -> Iterator[list[str]]:
    """What the bookie logs as an error meanwhile, whenever that counts."""
    handler, logger = _Errors(counts), logging.getLogger("geminga_bookie")
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    try:
        yield handler.found
    finally:
        logger.removeHandler(handler)
        logger.propagate, level = before
        logger.setLevel(level)


@asynccontextmanager
async def opened(
    disk: SimDisk, live: Promises, options: BookieOptions = OPTIONS
) -> AsyncIterator[InProcessBookie]:
    """The bookie of that disk."""
    async with trio.open_nursery() as nursery:
        host = Host(disk, SimStores(disk), TaskWorkers(nursery))
        async with open_bookie(options, ledgers(*live.entries), host=host) as bookie:
            assert isinstance(bookie, InProcessBookie)
            yield bookie
        nursery.cancel_scope.cancel()


class Work:
    """What is done to a bookie, drawn from a seed."""

    def __init__(self, chance: random.Random, promises: Promises) -> None:
        self._chance = chance
        self.promises = promises

    async def step(self, bookie: InProcessBookie) -> None:
        """One piece. Raises BookkeeperError, OSError."""
        kinds: dict[Callable[[InProcessBookie], object], int] = {
            self.add: 12, self._fence: 1, self._lac: 1, self._checkpoint: 3, self._idle: 2,
            self._delete: 1, self._compact: 1, self._force: 1,
        }  # fmt: skip
        (chosen,) = self._chance.choices(list(kinds), list(kinds.values()))
        done = chosen(bookie)
        assert hasattr(done, "__await__")
        await done

    def _ledger(self) -> int:
        promises = self.promises
        open_ones = [each for each in promises.entries if each not in promises.fencing]
        if not open_ones or (len(promises.entries) < LEDGERS_MAX and self._chance.random() < 0.3):
            promises.entries[promises.next_ledger] = 0
            promises.next_ledger += 1
            return promises.next_ledger - 1
        return self._chance.choice(open_ones)

    async def add(self, bookie: InProcessBookie) -> None:
        """Some runs, to some ledgers, waited for together."""
        runs = self._chance.randint(1, 3)
        following = dict(self.promises.entries)
        waiting, passed = runs, trio.Event()
        failures: list[BookkeeperError] = []
        for _ in range(runs):
            ledger_id = self._ledger()
            first = following.setdefault(ledger_id, 0)
            count = self._chance.choice((1, 1, 2, 5))
            following[ledger_id] += count

            def done(
                first: int, count: int, error: BookkeeperError | None, ledger_id: int = ledger_id
            ) -> None:
                nonlocal waiting
                if error is None and ledger_id in self.promises.entries:
                    self.promises.entries[ledger_id] = first + count
                elif error is not None:
                    failures.append(error)
                waiting -= 1
                passed.set()

            run = [content(ledger_id, entry) for entry in range(first, first + count)]
            bookie.add(ledger_id, KEY, first, run, done)
        while waiting > 0:
            await passed.wait()
            passed = trio.Event()
        if failures:
            raise failures[0]

    async def _fence(self, bookie: InProcessBookie) -> None:
        ledger_id = self._ledger()
        self.promises.fencing.add(ledger_id)
        await bookie.fence(ledger_id, KEY)
        self.promises.fenced.add(ledger_id)

    async def _lac(self, bookie: InProcessBookie) -> None:
        ledger_id = self._ledger()
        lac = self.promises.entries[ledger_id] - 1
        await write_lac(bookie, ledger_id, lac)
        self.promises.lacs[ledger_id] = lac

    async def _checkpoint(self, bookie: InProcessBookie) -> None:
        with trio.fail_after(100):
            await bookie.checkpointer.checkpoint()

    async def _idle(self, bookie: InProcessBookie) -> None:
        await trio.sleep(1)

    async def _force(self, bookie: InProcessBookie) -> None:
        for ledger_id, count in self.promises.entries.items():
            if count:
                await bookie.force(ledger_id)
                return

    async def _delete(self, bookie: InProcessBookie) -> None:
        if len(self.promises.entries) == LEDGERS_MAX:
            doomed = self._chance.choice(list(self.promises.entries))
            del self.promises.entries[doomed]
            self.promises.fenced.discard(doomed)
            self.promises.lacs.pop(doomed, None)
            await bookie.gc.collect(ledgers(*self.promises.entries))

    async def _compact(self, bookie: InProcessBookie) -> None:
        await bookie.gc.collect(ledgers(*self.promises.entries), SPARSE)


async def check(disk: SimDisk, promises: Promises) -> None:
    """Start, look, collect, look again, work, stop, start once more and look.

    No damage may be reported, but on a disk that tears pages.
    """
    promises = promises.copy()
    with logged_errors() as errors:
        async with opened(disk, promises) as bookie:
            for report in bookie.storage.reports:
                assert disk.tears or not report.damages, report.damages
                assert disk.tears or not report.notes, report.notes
            assert not bookie.storage.table.is_in_limbo
            await look(bookie, promises)
            await bookie.checkpointer.checkpoint()
            assert bookie.gc.scrub() == []
            await bookie.gc.collect(ledgers(*promises.entries), SPARSE)
            await look(bookie, promises)
            work = Work(random.Random(1), promises)
            for _ in range(3):
                await work.add(bookie)
        unexpected = [line for line in errors if ORPHANS not in line]
        assert disk.tears or not unexpected, unexpected
        errors.clear()
        async with opened(disk, promises) as bookie:
            await look(bookie, promises)
        assert not errors, errors


async def look(bookie: InProcessBookie, promises: Promises) -> None:
    """Every promise holds."""
    for ledger_id, count in promises.entries.items():
        found = await read_all(bookie, ledger_id, 0, count - 1) if count else []
        expected = [content(ledger_id, entry_id) for entry_id in range(count)]
        assert found == expected, f"ledger {ledger_id} reads otherwise"
    for ledger_id, lac in promises.lacs.items():
        assert await read_lac(bookie, ledger_id) >= lac
    for ledger_id in promises.fenced:
        outcomes = Outcomes()
        bookie.add(ledger_id, KEY, 999, [packet(ledger_id, 999)], outcomes)
        await outcomes.wait_for(1)
        (error,) = outcomes.errors
        assert isinstance(error, LedgerFenced), f"ledger {ledger_id} is open again"


Moment = tuple[str, SimDisk, Promises]
Trouble = Callable[[SimDisk, random.Random], None]


def calm(disk: SimDisk, chance: random.Random) -> None:
    """Nothing fails but the power."""


def failing_syncs(disk: SimDisk, chance: random.Random) -> None:
    """A sync of a file fails now and then."""
    share = chance.choice((0.0, 0.1, 0.3))
    disk.fault = lambda operation, _path: (
        errno.EIO if operation == "sync" and chance.random() < share else 0
    )


def full_disk(disk: SimDisk, chance: random.Random) -> None:
    """There is no room, or little, for a while."""
    left = chance.choice((1 << 40, 1 << 40, 0, 20_000, 60_000))
    disk.capacity_bytes = disk.root.size_bytes + left


async def moments(
    seed: int, trouble: Trouble = calm, *, tears: bool = False, pieces: int = 25
) -> list[Moment]:
    """One life without a crash: the disk, and what was promised, in the middle of each step."""
    disk, promises = SimDisk(seed, tears=tears), Promises()
    chance = random.Random(f"trouble {seed}")
    found: list[Moment] = []

    def in_step(operation: str, path: Path) -> None:
        name = f"{seed}, step {disk.steps}: {operation} {path}"
        moment = disk.clone(name)
        moment.capacity_bytes = 1 << 40
        found.append((name, moment, promises.copy()))

    disk.in_step = in_step
    work = Work(random.Random(f"work {seed}"), promises)
    with logged_errors():
        async with opened(disk, promises) as bookie:
            for _ in range(pieces):
                trouble(disk, chance)
                try:
                    with trio.move_on_after(20):
                        await work.step(bookie)
                except (BookkeeperError, OSError):
                    assert trouble is not calm
            disk.fault = lambda _operation, _path: 0
            disk.capacity_bytes = 1 << 40
            await trio.sleep(5)
    return found


async def crash(disk: SimDisk, promises: Promises, *, kill: bool) -> None:
    """Of a moment; then check."""
    if kill:
        disk.start_after_kill()
    else:
        disk.start_after_power_loss()
    await check(disk, promises)


async def lives(seed: int, count: int = 12) -> None:
    """Crashes that follow one another, in work and in recovery. Raises at what doesn't hold."""
    disk, promises, chance = SimDisk(seed), Promises(), random.Random(f"lives {seed}")
    work = Work(chance, promises)
    for _ in range(count):
        disk.crash_at = disk.steps + chance.choice((chance.randint(1, 40), chance.randint(1, 200)))
        with logged_errors(lambda: not disk.is_off) as errors:
            try:
                async with opened(disk, promises) as bookie:
                    for report in bookie.storage.reports:
                        assert not report.damages, report.damages
                    await look(bookie, promises)
                    while not disk.is_off:
                        await work.step(bookie)
            except Exception:
                if not disk.is_off:
                    raise
        assert not errors, errors
        if chance.random() < 0.3:
            disk.start_after_kill()
        else:
            disk.start_after_power_loss()
    await check(disk, promises)


def run(main: Callable[[], object], seed: int) -> None:
    """A coroutine function in virtual time; the seed draws the order of tasks."""

    async def inner() -> None:
        done = main()
        assert hasattr(done, "__await__")
        await done

    with scheduled_by(random.Random(f"tasks {seed}")):
        trio.run(inner, clock=trio.testing.MockClock(autojump_threshold=0))


def reason_of(error: BaseException) -> str:
    """Its text, or that of the first in its group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def failed_moments(
    seed: int,
    trouble: Trouble = calm,
    *,
    kill: bool = False,
    tears: bool = False,
    at_most: int = 3,
    every: int = 1,
    near: int = 0,
    crashed: Callable[[SimDisk, Promises], Awaitable[None]] | None = None,
) -> list[str]:
    """Crash in each step of a life (or in one of `every`), those near one step first; what doesn't
    hold afterwards.
    """
    found: list[str] = []

    async def main() -> None:
        steps = (await moments(seed, trouble, tears=tears))[seed % every :: every]
        order = sorted(range(len(steps)), key=lambda at: abs(at - near))
        for name, disk, promises in (steps[at] for at in order):
            try:
                await (crashed or partial(crash, kill=kill))(disk, promises)
            except Exception as error:
                found.append(f"{name}: {reason_of(error)}")
                if len(found) >= at_most:
                    return

    run(main, seed)
    return found
