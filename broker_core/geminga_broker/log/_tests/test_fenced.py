"""A log that another broker has taken: whoever finds out, it is told once, and then does nothing
(CL-04, CL-13; decision 36).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.log._tests.two_brokers import (
    OPTIONS,
    Broker,
    TwoBrokers,
    create_subscription,
    delete_subscription,
    delete_topic,
    keep_records,
    publish_one,
    roll,
    set_properties,
    switch_ledgers_of_cursor,
    trim,
    unload,
)
from geminga_broker.log._tests.world import NAME, World, drain, numbered, publish
from geminga_broker.log.api import Ack, LogError, LogFenced
from geminga_broker.log.catalog import ROOT
from geminga_broker.log.cursors import CURSORS_LOADED_MAX
from geminga_broker.log.state import LogState
from geminga_protocol.ids import EARLIEST
from geminga_runtime.metadata._tests.stepped import SteppedStore

FINDERS = [
    publish_one,
    switch_ledgers_of_cursor,
    roll,
    trim,
    create_subscription,
    delete_subscription,
    set_properties,
    keep_records,
]


@pytest.mark.parametrize("finder", FINDERS)
async def test_whatever_finds_it_tells_it_once(
    finder: Callable[[Broker], Awaitable[None]], autojump_clock: MockClock
) -> None:
    world = TwoBrokers()
    async with world.broker(first=True) as old, world.broker() as new:
        await world.begin(old)
        log = old.log
        assert log is not None
        told: list[str] = []
        log.on_fenced(told.append)
        await new.serve("a")
        if finder in (switch_ledgers_of_cursor, trim):
            with pytest.raises(LogError):
                await finder(old)  # its ledger is fenced: the next one can't be named
        with pytest.raises(LogError):
            await finder(old)
        assert log.context.state is LogState.FENCED
        for again in FINDERS:
            with pytest.raises(LogError):
                await again(old)
        with pytest.raises(LogFenced):
            await delete_topic(old)
        await wait_all_tasks_blocked()
        assert len(told) == 1
        late: list[str] = []
        log.on_fenced(late.append)
        assert late == told
        await new.serve("b")


async def test_a_deletion_finds_it(autojump_clock: MockClock) -> None:
    world = TwoBrokers()
    async with world.broker(first=True) as old, world.broker() as new:
        await world.begin(old)
        await new.serve("a")
        with pytest.raises(LogError):
            await delete_topic(old)
        await new.serve("b")
    world.facts.maybe_removed.clear()
    await world.check()


async def test_acknowledgements_alone_find_it(autojump_clock: MockClock) -> None:
    """By the timer, without anybody who waits for them."""
    world = TwoBrokers()
    options = replace(OPTIONS, cursors=replace(OPTIONS.cursors, flush_interval_s=1))
    async with World(world.bookie, world.first).broker(options, crash=True) as factory:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(2))
        cursor.ack([Ack(positions[0])])
        await cursor.persist()
        async with world.broker() as new:
            await new.open()
            cursor.ack([Ack(positions[1])])
            await trio.sleep(3)
            assert log.context.state is LogState.FENCED


async def test_a_read_of_what_the_new_owner_trimmed_finds_it(autojump_clock: MockClock) -> None:
    """It must not count as damaged: damaged entries are passed over."""
    world = TwoBrokers()
    async with world.broker(first=True) as old, world.broker() as new:
        await world.begin(old)
        log = old.log
        assert log is not None
        log.context.cache.clear()
        await log._reads.close()
        served = await new.open()
        for name in ("s", "o", "p"):
            await new.ack(name, 6)
        await served.trim()
        with pytest.raises(LogFenced):
            await drain(log.cursors["o"])


async def test_idle_logs_find_it_after_a_lost_session(autojump_clock: MockClock) -> None:
    """Consumers that wait on them would wait for ever."""
    world = TwoBrokers()
    async with world.broker(first=True) as old, world.broker() as new:
        await world.begin(old)
        other = await old.factory.open(NAME + "2")
        await new.open()
        old.store.set_available(False)
        old.store.expire_session()
        await trio.sleep(5)
        assert old.log is not None
        assert old.log.context.state is LogState.OPEN
        old.store.set_available(True)
        await trio.sleep(5)
        assert old.log.context.state is LogState.FENCED
        assert other.context.state is LogState.OPEN


class SlowStore(SteppedStore):
    """Each call takes a millisecond."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        self.calls += 1
        await trio.sleep(0.001)
        yield


async def test_cursors_are_loaded_side_by_side(autojump_clock: MockClock) -> None:
    """A failover takes as long as a few cursors one after the other."""
    store = SlowStore()
    world = World(store=store)
    cursors = 100
    async with world.broker(crash=True) as broker:
        log = await broker.open(NAME)
        positions = await publish(log, numbered(3))
        for number in range(cursors):
            cursor = await log.open_cursor(f"s{number}", initial=EARLIEST)
            cursor.ack([Ack(positions[1])])
            await cursor.persist()
    async with world.broker(crash=True) as broker:
        begun_s, calls = trio.current_time(), store.calls
        log = await broker.open(NAME)
        took_s = trio.current_time() - begun_s
        assert len(log.cursors) == cursors
        assert await drain(log.cursors["s7"]) == ["m0", "m2"]
        per_cursor = (store.calls - calls) / cursors
        assert per_cursor < 8.5
        assert took_s < 0.001 * (8.5 * cursors / CURSORS_LOADED_MAX + 40)


@pytest.mark.parametrize("write", [switch_ledgers_of_cursor, set_properties, unload])
async def test_a_cursor_is_not_written_once_its_log_is_claimed(
    write: Callable[[Broker], Awaitable[None]], autojump_clock: MockClock
) -> None:
    """Apache's broker claims the log's node, and writes a cursor's with its first state only."""
    world = TwoBrokers()
    async with world.broker(first=True) as old:
        await world.begin(old)
        assert old.log is not None
        before = await world.first.get(f"{ROOT}/{NAME}/s")
        node = await world.first.get(f"{ROOT}/{NAME}")
        assert node is not None
        await world.first.put(f"{ROOT}/{NAME}", node.value, node.stat.version)
        with suppress(LogError):
            await write(old)
        assert await world.first.get(f"{ROOT}/{NAME}/s") == before
        assert write is unload or old.log.context.state is LogState.FENCED
