"""A crash in each step of a bookie's life (BK-02, BK-03, BK-06): what was acknowledged is there,
what was fenced stays fenced, nothing is called damaged, and collection takes nothing that is
needed."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from geminga_bookie._tests.power import (
    DIRECTORY,
    OPTIONS,
    Promises,
    Trouble,
    calm,
    check,
    content,
    failed_moments,
    failing_syncs,
    full_disk,
    lives,
    logged_errors,
    look,
    moments,
    opened,
    run,
)
from geminga_bookie._tests.power_canaries import CANARIES
from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_nodes import Loss, StoreNode
from geminga_bookie._tests.support import KEY, Outcomes
from geminga_bookie.errors import StorageFailed
from geminga_protocol._tests.rounds import IS_NIGHTLY, rounds

EVERY = 1 if IS_NIGHTLY else 5
"""A life has about 250 steps; a crash comes in each of so many."""
SEEDS = (2, 0, 1, 3)[: rounds(4)]
"""2 has compactions at many steps."""
CANARY_SEEDS = 6
"""Within so many seeds each mistake is found."""
LIKELY = {
    "sealed entry log not synced": (2, 152),
    "compacted log's directory not synced": (2, 156),
    "old log removed before the index is written": (2, 155),
    "journal kept after a failed sync": (31, 92),
    "journal used again after a failed sync": (1, 109),
}
"""A seed and a step of its life that show a mistake: tried first, not to search through those that
can't; else seed 0 from its first step."""
TROUBLES: dict[str, Trouble] = {"calm": calm, "failing syncs": failing_syncs, "full": full_disk}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("way", ["power", "kill"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_crash_in_each_step(trouble: str, way: str, seed: int) -> None:
    assert failed_moments(seed, TROUBLES[trouble], kill=way == "kill", every=EVERY) == []


async def crash_twice(disk: SimDisk, promises: Promises) -> None:
    """A kill after the index's batch under way, and right after the next start a loss of what
    neither has synced: all of the index, of the rest all, nothing or some; then check."""
    path = DIRECTORY / "ledgers" / "index"
    if isinstance(index := disk.find(path), StoreNode):
        index.settle()
    disk.start_after_kill()
    with logged_errors():
        try:
            async with opened(disk, promises):
                disk.stop()
        except Exception:
            if not disk.is_off:
                raise
    for kept in (0.0, 1.0, 0.5):
        twin = disk.clone(str(disk.chance.random()))
        if isinstance(index := twin.find(path), StoreNode):
            index.lose(Loss(0.0, 0.0), twin.chance)
        twin.start_after_power_loss(Loss(kept, 0.0))
        await check(twin, promises)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[: rounds(2)])
def test_a_loss_of_power_after_a_kill(seed: int) -> None:
    """What a kill left in the system's memory counts once the next start has relied on it."""
    assert failed_moments(seed, crashed=crash_twice) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CANARY_SEEDS))
def test_a_crash_after_a_failed_sync(seed: int) -> None:
    assert failed_moments(seed, failing_syncs, every=2 if IS_NIGHTLY else EVERY) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_that_tears_pages(seed: int) -> None:
    """The journal may report a record that was under way, but loses none."""
    assert failed_moments(seed, tears=True, every=EVERY) == []


@pytest.mark.parametrize("seed", range(rounds(40)))
@pytest.mark.slow
def test_crashes_follow_one_another(seed: int) -> None:
    """Also in the middle of recovery."""
    run(partial(lives, seed), seed)


def test_a_life_repeats_exactly() -> None:
    """What a seed finds, it finds again."""

    def steps() -> list[str]:
        found: list[str] = []

        async def main() -> None:
            found.extend(name for name, _, _ in await moments(0, full_disk))

        run(main, 0)
        return found

    assert steps() == steps()


@pytest.mark.slow
@pytest.mark.parametrize("name", CANARIES)
def test_a_mistake_is_found(name: str) -> None:
    trouble = failing_syncs if "after a failed sync" in name else calm
    with CANARIES[name]():
        likely, near = LIKELY.get(name, (0, 0))
        seeds = [likely, *(seed for seed in range(CANARY_SEEDS) if seed != likely)]
        found = any(
            failed_moments(seed, trouble, at_most=1, near=near if seed == likely else 0)
            for seed in seeds
        )
    assert found


UNSYNCED = replace(OPTIONS, journal=replace(OPTIONS.journal, sync_data=False))


async def test_force_holds_for_what_a_killed_bookie_wrote(autojump_clock: MockClock) -> None:
    """To a journal without syncing: the next start writes to another file."""
    disk, promises = SimDisk(), Promises({1: 5})
    with logged_errors(), suppress(Exception):
        async with opened(disk, promises, UNSYNCED) as bookie:
            outcomes = Outcomes()
            bookie.add(1, KEY, 0, [content(1, entry_id) for entry_id in range(5)], outcomes)
            await outcomes.wait_for(5)
            disk.stop()
    disk.start_after_kill()
    disk.fault = lambda _operation, path: errno.EIO if path.suffix == ".log" else 0
    with logged_errors(), suppress(Exception):
        async with opened(disk, promises, UNSYNCED) as bookie:
            await bookie.force(1)
            disk.stop()
    assert disk.is_off
    disk.fault = lambda _operation, _path: 0
    disk.start_after_power_loss(Loss(0.0, 0.0))
    with logged_errors():
        async with opened(disk, promises, UNSYNCED) as bookie:
            await look(bookie, promises)


@pytest.mark.parametrize("seed", range(6))
async def test_force_holds_after_a_failed_sync(seed: int, autojump_clock: MockClock) -> None:
    """What was written to a journal without syncing, and then could not be synced, is not made good
    by the sync of another file: only by a checkpoint."""
    disk, promises = SimDisk(seed), Promises({1: 5})
    packets = [content(1, entry_id) for entry_id in range(5)]
    async with opened(disk, promises, UNSYNCED) as bookie:
        outcomes = Outcomes()
        bookie.add(1, KEY, 0, packets, outcomes)
        await outcomes.wait_for(5)
        disk.fault = lambda operation, path: (
            errno.EIO if operation == "sync" and path.name == "next.tmp" else 0
        )
        with pytest.raises(StorageFailed):
            await bookie.force(1)
        disk.fault = lambda _operation, path: errno.EIO if path.suffix == ".log" else 0
        for _ in range(3):
            await trio.sleep(0.5)
            with pytest.raises(StorageFailed):
                await bookie.force(1)
        disk.fault = lambda _operation, _path: 0
        with trio.fail_after(60):
            while True:
                try:
                    await bookie.force(1)
                except StorageFailed:
                    await trio.sleep(0.1)
                else:
                    break
        forced = disk.clone(seed)
        forced.start_after_power_loss()
    async with opened(forced, promises, UNSYNCED) as bookie:
        await look(bookie, promises)
