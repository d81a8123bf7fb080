"""A bookie that starts under its id without some of its disks gets back what it should have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from geminga_bookie._tests.power import DIRECTORY, logged_errors, reason_of
from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_stores import SimStores
from geminga_bookie._tests.sim_workers import TaskWorkers
from geminga_bookie.errors import UnknownLedgerState
from geminga_bookie.host import Host
from geminga_bookie.integrity._tests.world import OWN, SIZES, SYNCED, World
from geminga_bookie.integrity.doubts import Doubts
from geminga_bookie.options import BookieOptions
from geminga_bookie.process.run import open_member
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_protocol.bookkeeper import paths

PLAIN = replace(SYNCED, index_dirs=(DIRECTORY / "index",))
HEALS = replace(PLAIN, heals_lost_disks=True)
LOSSES = [
    ["journal"],
    ["ledgers"],
    ["index"],
    ["ledgers", "journal"],
    ["journal", "ledgers", "index"],
]


@asynccontextmanager
async def living(world: World, options: BookieOptions) -> AsyncIterator[InProcessBookie]:
    """One life, as of a bookie's process."""
    async with trio.open_nursery() as nursery:
        host = Host(world.disk, SimStores(world.disk), TaskWorkers(nursery))
        async with open_member(world.store, options, host) as bookie:
            world.directory.join(bookie)
            try:
                yield bookie
            finally:
                world.directory.leave(OWN)
        nursery.cancel_scope.cancel()


async def start(world: World, options: BookieOptions) -> None:
    """Once, and stop."""
    async with living(world, options):
        pass


async def refusal(world: World, options: BookieOptions) -> str:
    """Why it doesn't start."""
    try:
        await start(world, options)
    except Exception as error:
        return reason_of(error)
    raise AssertionError("it must not start")


async def with_ledgers() -> tuple[World, dict[int, int]]:
    """A bookie that was stopped, and how many entries each ledger has."""
    world = World()
    await world.store.put(paths.INSTANCE_ID, b"cluster-1")
    await world.register()
    written: dict[int, int] = {}
    async with living(world, HEALS) as bookie:
        for closed in (True, False):
            for sizes in SIZES:
                written[await world.write(sizes, 9, closed=closed)] = 9
            await bookie.checkpointer.checkpoint()
    return world, written


def lose(disk: SimDisk, names: list[str]) -> None:
    """Their disks are gone, and empty ones in their places."""
    for name in names:
        parent = disk.directory(Path("/data/bookie"))
        parent.change(name, None, None)
        parent.flush()


@pytest.mark.parametrize("lost", LOSSES, ids=",".join)
async def test_lost_disks_are_healed(autojump_clock: MockClock, lost: list[str]) -> None:
    world, written = await with_ledgers()
    with logged_errors():
        lose(world.disk, lost)
        for _ in range(2):
            assert " empty" in await refusal(world, PLAIN)
        async with living(world, HEALS) as bookie:
            assert await world.claims(bookie, written) == []
            with pytest.raises(UnknownLedgerState):
                await bookie.read(next(iter(written)), 99, entries_max=1, bytes_max=1)
            await world.check(bookie).run()
            assert await world.lacks(bookie, written) == []
        async with living(world, PLAIN) as bookie:
            assert await world.lacks(bookie, written) == []
            assert await Doubts(bookie).ledgers() == set()
    await world.all_closed(written)


@pytest.mark.slow
@pytest.mark.parametrize("lost", LOSSES, ids=",".join)
async def test_a_crash_in_each_step_of_the_start(
    autojump_clock: MockClock, lost: list[str]
) -> None:
    """Whatever was done of it, the next start puts all in doubt."""
    for crash_at in range(1, 400, 3):
        world, written = await with_ledgers()
        disk = world.disk
        with logged_errors():
            lose(disk, lost)
            disk.crash_at = disk.steps + crash_at
            try:
                await start(world, HEALS)
            except Exception:
                if not disk.is_off:
                    raise
            is_crashed = disk.is_off
            disk.start_after_power_loss()
            async with living(world, HEALS) as bookie:
                assert await world.claims(bookie, written) == []
                await world.check(bookie).run()
                assert await world.lacks(bookie, written) == []
        if not is_crashed:
            return
    raise AssertionError("the start never ends")


async def test_other_directories_are_refused_all_the_same(autojump_clock: MockClock) -> None:
    """Those of a second bookie of the same id: they are in no doubt."""
    world, _ = await with_ledgers()
    with logged_errors():
        first, world.disk = world.disk, SimDisk("other")
        node = await world.store.get(paths.cookie(OWN))
        await world.store.delete(paths.cookie(OWN))
        await start(world, HEALS)
        assert node is not None
        await world.store.put(paths.cookie(OWN), node.value)
        for options in (PLAIN, HEALS):
            assert "was written for other directories" in await refusal(world, options)
        world.disk = first
        await start(world, PLAIN)
