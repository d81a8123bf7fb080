"""The auditor is elected, waits for bookies that come back, and marks what is missing."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_bookie.autorecovery._tests.world import World
from geminga_bookie.autorecovery.auditor import due
from geminga_bookie.autorecovery.daemon import run, run_beside
from geminga_bookie.autorecovery.election import current_auditor, run_elected
from geminga_bookie.autorecovery.options import AutoRecoveryOptions
from geminga_bookie.wire.options import RemoteOptions
from geminga_protocol.bookkeeper import underreplication as tree
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import SessionExpired
from geminga_runtime.metadata.memory import MemoryMetadataStore

PATIENT = AutoRecoveryOptions(lost_bookie_delay_s=600, ledger_check_interval_s=0)


def test_one_bookie_is_waited_for_and_two_are_not() -> None:
    assert due({}, 5.0, 10.0) == (False, math.inf)
    assert due({"a": 1.0}, 5.0, 10.0) == (False, 11.0)
    assert due({"a": 1.0}, 11.0, 10.0) == (True, 11.0)
    assert due({"a": 1.0, "b": 4.0}, 5.0, 10.0) == (True, 5.0)


@pytest.fixture
async def world() -> World:
    found = World(6, PATIENT)
    await found.register()
    return found


async def test_a_bookie_that_comes_back_in_time_is_not_lost(
    autojump_clock: object, world: World, nursery: trio.Nursery
) -> None:
    ledger = await world.ledger((3, 3, 2), 5)
    nursery.start_soon(world.auditor().run)
    await wait_all_tasks_blocked()
    lost = world.peer(ledger.ensembles[0][0])
    await world.remove(lost)
    await trio.sleep(590)
    assert await world.marked() == []
    await world.register(lost)
    await trio.sleep(2_000)
    assert await world.marked() == []
    await world.remove(lost)
    await trio.sleep(605)
    assert await world.marked() == [ledger.ledger_id]
    task = await world.tasks.read(ledger.ledger_id)
    assert task is not None
    assert task.missing.replicas == (lost.bookie_id,)


async def test_a_second_bookie_is_not_waited_for(
    autojump_clock: object, world: World, nursery: trio.Nursery
) -> None:
    ledger = await world.ledger((3, 3, 2), 5)
    nursery.start_soon(world.auditor().run)
    await wait_all_tasks_blocked()
    for bookie_id in ledger.ensembles[0][:2]:
        await world.remove(world.peer(bookie_id))
    await trio.sleep(5)
    assert await world.marked() == [ledger.ledger_id]


async def test_a_bookie_that_was_lost_before_the_auditor_came(
    autojump_clock: object, world: World, nursery: trio.Nursery
) -> None:
    """Found in the metadata; it is waited for from then on."""
    ledger = await world.ledger((3, 3, 2), 5)
    await world.remove(world.peer(ledger.ensembles[0][0]))
    nursery.start_soon(world.auditor().run)
    await trio.sleep(590)
    assert await world.marked() == []
    await trio.sleep(20)
    assert await world.marked() == [ledger.ledger_id]


class PublishingStore(SteppedStore):
    """Something happens before the first task is published."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        meanwhile = self.meanwhile
        if operation == "put" and path.startswith(f"{tree.TASKS}/") and meanwhile is not None:
            self.meanwhile = None
            await meanwhile()
        yield


@pytest.mark.parametrize("pause_s", [1, 0.02])
async def test_a_bookie_that_comes_and_goes_during_an_audit(
    autojump_clock: object, nursery: trio.Nursery, pause_s: float
) -> None:
    """Ledgers that it got meanwhile would stay unmarked until the periodic check. Another one had
    come back right before the audit.
    """
    world = World(3, AutoRecoveryOptions(ledger_check_interval_s=0))
    await world.register()
    ledgers = [await world.ledger((3, 3, 2), 5)]
    store = PublishingStore()
    store._join(world.store._rows)
    lost = world.peers[0]

    async def come_and_go() -> None:
        await world.register(lost)
        ledgers.append(await world.ledger((3, 3, 2), 5))
        await trio.sleep(pause_s)
        await world.remove(lost)
        await trio.sleep(pause_s)

    nursery.start_soon(world.auditor(store).run)
    await wait_all_tasks_blocked()
    store.meanwhile = come_and_go
    await world.remove(lost)
    await trio.sleep(0.05)
    await world.remove(world.peers[1])
    await world.register(world.peers[1])
    await trio.sleep(600)
    assert await world.marked() == [each.ledger_id for each in ledgers]
    task = await world.tasks.read(ledgers[0].ledger_id)
    await trio.sleep(600)
    assert await world.tasks.read(ledgers[0].ledger_id) == task, "audited for ever"


@pytest.mark.parametrize("delay_s", [0, 600])
async def test_a_delay_that_is_set_again_asks_for_an_audit(
    autojump_clock: object, world: World, nursery: trio.Nursery, delay_s: int
) -> None:
    ledger = await world.ledger((3, 3, 2), 5)
    nursery.start_soon(world.auditor().run)
    await wait_all_tasks_blocked()
    await world.remove(world.peer(ledger.ensembles[0][0]))
    await trio.sleep(5)
    await world.tasks.set_lost_bookie_delay(delay_s)
    await trio.sleep(5)
    assert await world.marked() == [ledger.ledger_id]


async def test_an_empty_ledger_of_a_lost_bookie_is_not_marked(
    autojump_clock: object, world: World, nursery: trio.Nursery
) -> None:
    ledger = await world.ledger((3, 3, 2), 0)
    await world.tasks.set_lost_bookie_delay(0)
    nursery.start_soon(world.auditor().run)
    await wait_all_tasks_blocked()
    await world.kill(world.peer(ledger.ensembles[0][0]))
    await trio.sleep(100)
    assert await world.marked() == []


async def test_one_is_elected_and_the_next_follows(autojump_clock: object) -> None:
    """The first one's session ends: it leads no more before the second one does."""
    first = MemoryMetadataStore()
    second = first.another_session()
    leading: list[str] = []

    async def lead(name: str) -> None:
        leading.append(name)
        try:
            await trio.sleep_forever()
        finally:
            leading.remove(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_elected, first, "one:3181", lambda: lead("one"))
        await wait_all_tasks_blocked()
        nursery.start_soon(run_elected, second, "two:3181", lambda: lead("two"))
        await wait_all_tasks_blocked()
        assert leading == ["one"]
        assert await current_auditor(second) == "one:3181"
        node = await second.get(tree.ELECTION)
        assert node is not None
        assert node.value == b'bookieId: "one:3181"\n'
        first.expire_session()
        await wait_all_tasks_blocked()
        assert leading == ["two"]
        await trio.sleep(10)
        assert await current_auditor(first) == "two:3181"
        votes = tree.in_order(await first.children(tree.ELECTION))
        await second.delete(f"{tree.ELECTION}/{votes[0]}")
        await trio.sleep(10)
        assert leading == ["one"]
        # The one whose vote was deleted stands again, in the same session.
        votes = tree.in_order(await first.children(tree.ELECTION))
        await second.delete(f"{tree.ELECTION}/{votes[0]}")
        await trio.sleep(10)
        assert leading == ["two"]
        nursery.cancel_scope.cancel()


async def test_a_vote_whose_answer_was_lost_is_taken(autojump_clock: object) -> None:
    """Another vote of the same session would wait for it for ever."""
    store = MemoryMetadataStore()
    epoch = store.session.epoch
    await store.put(tree.VOTE, tree.encode_vote("one:1"), -1, epoch=epoch, sequential=True)
    led = trio.Event()

    async def lead() -> None:
        led.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_elected, store, "one:1", lead)
        with trio.fail_after(60):
            await led.wait()
        nursery.cancel_scope.cancel()


async def test_the_daemon_repairs_what_is_lost(autojump_clock: object, world: World) -> None:
    """Also after its session ended, and with the store away for a while."""
    ledger = await world.ledger((3, 3, 2), 50)
    store = world.store.another_session()
    async with trio.open_nursery() as nursery:
        options = AutoRecoveryOptions(ledger_check_interval_s=3_600)

        async def daemon() -> None:
            await run(store, world.directory, options, owner="daemon:3181")

        nursery.start_soon(daemon)
        await wait_all_tasks_blocked()
        await world.kill(world.peer(ledger.ensembles[0][0]))
        await trio.sleep(60)
        await world.check_whole(ledger.ledger_id)
        store.expire_session()
        store.set_available(False)
        await trio.sleep(60)
        store.set_available(True)
        world.peer(ledger.ensembles[0][1]).lose(ledger.ledger_id, 7)
        await world.store.delete(tree.CHECK_ALL_LEDGERS_TIME)
        await trio.sleep(2 * 3_600)
        await world.check_whole(ledger.ledger_id)
        assert await world.marked() == []
        nursery.cancel_scope.cancel()
    assert await world.store.children(tree.ELECTION) == []
    assert await world.store.children(tree.LOCKS) == []


async def test_the_daemon_ends_with_its_store(autojump_clock: object, world: World) -> None:
    store = world.store.another_session()
    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:

            async def daemon() -> None:
                await run(store, world.directory, PATIENT, owner="daemon:3181")

            nursery.start_soon(daemon)
            await wait_all_tasks_blocked()
            await store.aclose()
    assert caught.group_contains(SessionExpired)


async def test_in_a_bookies_process_errors_end_nothing(autojump_clock: object) -> None:
    """A tree of another layout is logged, and tried again."""
    store = MemoryMetadataStore()
    await store.put(tree.LAYOUT, b'type: "OTHER"\nversion: 7\n')
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_beside, store, RemoteOptions(), PATIENT, "bookie:3181")
        await trio.sleep(100)
        assert await current_auditor(store) is None
        await store.put(tree.LAYOUT, tree.layout())
        await trio.sleep(100)
        assert await current_auditor(store) == "bookie:3181"
        nursery.cancel_scope.cancel()
