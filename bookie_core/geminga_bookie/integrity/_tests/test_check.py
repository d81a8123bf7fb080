"""The end of doubts (BK-02): killed at each step, a bookie never denies what it should have, and in
the end has all of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from geminga_bookie._tests.planted import planted
from geminga_bookie._tests.power import logged_errors, run
from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_nodes import Loss
from geminga_bookie._tests.support import Outcomes
from geminga_bookie.autorecovery.task_store import TaskStore
from geminga_bookie.autorecovery.tools import Cluster, ToolFailed
from geminga_bookie.errors import NoSuchEntry, NoSuchLedger, UnknownLedgerState
from geminga_bookie.integrity._tests.world import OWN, REPAIR, SIZES, SYNCED, UNSYNCED, World
from geminga_bookie.integrity.check import QUIET_S, DataCheck
from geminga_bookie.integrity.doubts import Doubts, without
from geminga_bookie.shell.loss import accept_loss
from geminga_bookie.storage.doubt import LIMBO_NAME
from geminga_protocol._tests.rounds import IS_NIGHTLY
from geminga_protocol.bookkeeper.digest import master_key

EVERY = 1 if IS_NIGHTLY else 4


async def heal(world: World, written: dict[int, int]) -> None:
    """A life in which all doubts end."""
    async with world.living() as bookie:
        assert await world.claims(bookie, written) == []
        with trio.fail_after(3600):
            await world.check(bookie).run()
        assert await world.lacks(bookie, written) == []
        assert await Doubts(bookie).ledgers() == set()
        assert not bookie.storage.table.is_in_limbo
        assert LIMBO_NAME not in world.disk.names(SYNCED.journal_dirs[0])
    await world.all_closed(written)


async def live(crash_at: int, *, power: bool = True) -> bool:
    """Crash in that step of a life in doubt; returns whether it had so many."""
    world = World(SimDisk(crash_at))
    written = await world.lose()
    disk = world.disk
    disk.crash_at = disk.steps + crash_at
    with trio.CancelScope() as scope:
        disk.crashed = scope.cancel
        try:
            await heal(world, written)
        except Exception:
            if not disk.is_off:
                raise
    is_crashed = disk.is_off
    if is_crashed:
        if power:
            disk.start_after_power_loss()
        else:
            disk.start_after_kill()
    disk.crash_at = -1
    await heal(world, written)
    async with world.living() as bookie:
        assert await world.lacks(bookie, written) == []
        assert await Doubts(bookie).ledgers() == set()
    return is_crashed


def failed_step(*, power: bool = True, every: int = EVERY) -> int | None:
    """The first step after whose crash something doesn't hold."""
    for crash_at in range(1, 5000, every):
        crashed: list[bool] = []

        async def main(at: int = crash_at, crashed: list[bool] = crashed) -> None:
            crashed.append(await live(at, power=power))

        with logged_errors():
            try:
                run(main, crash_at)
            except Exception:
                return crash_at
        if not crashed[0]:
            assert crash_at > 20, "the life has steps"
            return None
    raise AssertionError("the life never ends")


@pytest.mark.slow
@pytest.mark.parametrize("power", [True, False])
def test_a_crash_in_each_step(power: bool) -> None:
    assert failed_step(power=power) is None


Canary = Callable[[], AbstractContextManager[object]]


def _all_of(*canaries: Canary) -> Canary:
    @contextmanager
    def planted_all() -> Iterator[None]:
        with ExitStack() as stack:
            for each in canaries:
                stack.enter_context(each())
            yield

    return planted_all


CANARIES: dict[str, Canary] = {
    "settled before the copies": partial(
        planted,
        DataCheck._heal,
        "        await self._complete(metadata)\n",
        "        await self._doubts.settle(ledger_id)\n"
        "        await self._bookie.checkpointer.checkpoint()\n"
        "        await self._complete(metadata)\n",
    ),
    "ended while a ledger is in doubt": _all_of(
        partial(planted, DataCheck.check, "if left or not is_quiet:", "if not is_quiet:"),
        partial(planted, Doubts.end, "if not await self.ledgers():", "if True:"),
    ),
    "not recovered": partial(
        planted, DataCheck._heal, "if own in open_ensemble(metadata):", "if 0:"
    ),
    "not copied": partial(planted, DataCheck._complete, "if not missing:", "if True:"),
}


def _is_found() -> bool:
    try:
        with logged_errors():
            run(alone, 0)
    except Exception:
        return True
    return failed_step(every=1) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", CANARIES)
def test_a_mistake_is_found(name: str) -> None:
    with CANARIES[name]():
        assert _is_found()


async def alone() -> None:
    """What no other bookie has stays in doubt, as long as it takes."""
    world = World(SimDisk(1))
    written = await world.lose()
    async with world.living() as bookie:
        for peer in world.peers:
            peer.is_gone = True
        with trio.move_on_after(1000):
            await world.check(bookie).run()
            raise AssertionError("it must not end")
        doubted = await Doubts(bookie).ledgers()
        assert len(doubted) >= len(SIZES)
        assert await world.claims(bookie, written) == []
        assert await world.lacks(bookie, written) != []
        for peer in world.peers:
            peer.is_gone = False
    await heal(world, written)


async def test_what_no_other_bookie_has_stays_in_doubt(autojump_clock: object) -> None:
    with logged_errors():
        await alone()


async def test_a_loss_that_is_accepted(autojump_clock: object) -> None:
    """The sole copies' ledgers are closed behind what is there, and the rest of them is read."""
    world = World(SimDisk(1))
    written: dict[int, int] = {}
    await world.register()
    with logged_errors():
        try:
            async with world.living(UNSYNCED) as bookie:
                world.directory.leave("b1:3181")
                world.directory.leave("b2:3181")
                for _ in range(2):
                    ledger_id = await world.write((1, 1, 1), 8, closed=False)
                    written[ledger_id] = 8
                await bookie.checkpointer.checkpoint()
                for ledger_id in written:
                    metadata = (await world.ledgers.read(ledger_id)).metadata
                    assert list(metadata.ensembles.values()) == [(OWN,)]
                world.disk.stop()
        except Exception:
            if not world.disk.is_off:
                raise
        world.disk.start_after_power_loss(Loss(0.0, 0.0))
        first, second = written
        async with world.living() as bookie:
            with trio.move_on_after(1000):
                await world.check(bookie).run()
                raise AssertionError("it must not end")
            with pytest.raises(UnknownLedgerState):
                await world.client.open(first, b"secret", recover=True)
            said: list[str] = []
            tasks = TaskStore(world.store, "me")
            at = Cluster(world.store, world.directory, tasks, REPAIR, said.append)
            assert await accept_loss(at, first) == 0
            assert "given up" in said[0]
            reader = await world.client.open(first, b"secret", recover=True)
            assert reader.last_add_confirmed == 7
            assert len(await reader.read(0, 7)) == 8
            with pytest.raises(UnknownLedgerState):
                await world.client.open(second, b"secret", recover=True)
            await accept_loss(at, second)
            with trio.fail_after(3600):
                await world.check(bookie).run()
            metadata = (await world.ledgers.read(second)).metadata
            assert metadata.last_entry_id == 7
            assert await Doubts(bookie).ledgers() == set()
        with pytest.raises(ToolFailed):
            await accept_loss(at, 999)


async def test_ledgers_that_are_not_its_own(autojump_clock: object) -> None:
    """A deleted one, and one that other bookies have, of which it was sent an entry."""
    world = World(SimDisk(2))
    written = await world.lose()
    gone, *_ = written
    await world.client.delete(gone)
    del written[gone]
    world.directory.leave(OWN)
    other = await world.write((2, 2, 2), 3, closed=True)
    async with world.living() as bookie:
        packet = await world.peers[0].read(other, 0, entries_max=1, bytes_max=1)
        outcomes = Outcomes()
        key = master_key(b"secret")
        bookie.add(other, key, 0, packet, outcomes, recovery=True)
        await outcomes.wait_for(1)
        with pytest.raises(UnknownLedgerState):
            await bookie.read(other, 1, entries_max=1, bytes_max=1)
        with pytest.raises(UnknownLedgerState):
            await bookie.read(gone, 99, entries_max=1, bytes_max=1)
        await world.check(bookie).run()
        assert await bookie.read(other, 0, entries_max=1, bytes_max=1) == packet
        for ledger_id in (other, gone):
            with pytest.raises(NoSuchEntry):
                await bookie.read(ledger_id, 99, entries_max=1, bytes_max=1)
        with pytest.raises(NoSuchLedger):
            await bookie.read(12345, 0, entries_max=1, bytes_max=1)
        assert await world.lacks(bookie, written) == []


async def test_entries_that_came_before_the_metadata(autojump_clock: object) -> None:
    """A worker copied to the bookie, which lost it, and only then changes the metadata."""
    world = World(SimDisk(4))
    written = await world.lose()
    ledger_id = list(written)[5]
    known = await world.ledgers.read(ledger_id)
    mine = known.metadata.ensembles[0]
    theirs = tuple("b3:3181" if each == OWN else each for each in mine)
    before = await world.ledgers.update(
        known, replace(known.metadata, ensembles={0: mine, 6: theirs})
    )
    ended = trio.Event()
    async with world.living() as bookie, trio.open_nursery() as nursery:

        async def check() -> None:
            await world.check(bookie).run()
            ended.set()

        nursery.start_soon(check)
        await trio.sleep(QUIET_S / 2)
        await world.ledgers.update(before, replace(before.metadata, ensembles={0: mine, 6: mine}))
        while not ended.is_set():
            assert await world.claims(bookie, written) == []
            await trio.sleep(1)
        assert await world.lacks(bookie, written) == []


async def test_an_end_that_fails_is_tried_again(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next start is in doubt again, and again."""
    world = World(SimDisk(3))
    await world.lose()
    limbo = SYNCED.journal_dirs[0] / LIMBO_NAME
    remove, failures = world.disk.remove, [OSError("a full disk")]

    def failing(path: Path) -> None:
        if path == limbo and failures:
            raise failures.pop()
        remove(path)

    monkeypatch.setattr(world.disk, "remove", failing)
    async with world.living() as bookie:
        with logged_errors():
            await world.check(bookie).run()
        assert not failures
        assert limbo.name not in world.disk.names(limbo.parent)
        assert not bookie.storage.table.is_in_limbo


RUNS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12)


@given(RUNS, RUNS)
def test_runs_without_others(wanted: list[tuple[int, int]], held: list[tuple[int, int]]) -> None:
    runs = []
    for first, count in sorted(wanted):
        if not runs or first >= runs[-1][1]:
            runs.append((first, first + count))
    here = sorted((first, first + count) for first, count in held)
    expected = {n for first, end in runs for n in range(first, end)}
    expected -= {n for first, end in here for n in range(first, end)}
    found = [n for first, end in without(runs, here) for n in range(first, end)]
    assert found == sorted(expected)


async def test_the_log_says_what_begins_and_ends(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    async with world.living() as bookie:
        with caplog.at_level(logging.INFO), trio.fail_after(3600):
            await world.check(bookie).run()
    first, last = [one.getMessage() for one in caplog.records if one.name.endswith(".check")]
    assert "may have lost entries: its ledgers are compared" in first
    assert "no ledger is in doubt" in last
