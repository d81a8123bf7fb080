"""Cursors that are created, deleted and unloaded during other operations."""

from __future__ import annotations

from itertools import count

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.log._tests.held import HeldBookie, HeldStore
from geminga_broker.log._tests.world import NAME, World, drain, numbered, publish
from geminga_broker.log.api import Ack, LogClosed, LogWriteFailed
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.options import LogOptions
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol.ids import EARLIEST, Position


@pytest.fixture
def store() -> HeldStore:
    return HeldStore()


@pytest.fixture
def bookie() -> HeldBookie:
    return HeldBookie()


@pytest.fixture
def world(bookie: HeldBookie, store: HeldStore) -> World:
    return World(bookie, store)


class Persists:
    """Calls of `persist`, and how each ended."""

    def __init__(self, cursor: LogCursor) -> None:
        self.cursor = cursor
        self.ends: dict[Position, type[Exception] | None] = {}

    async def ack(self, position: Position) -> None:
        self.cursor.ack([Ack(position)])
        try:
            await self.cursor.persist()
        except LogWriteFailed as error:
            self.ends[position] = type(error)
        else:
            self.ends[position] = None


async def with_a_ledger(log: TopicLog) -> tuple[LogCursor, list[Position]]:
    """A cursor whose state is in a ledger, and entries that it has not acknowledged."""
    cursor = await log.open_cursor("s", initial=EARLIEST)
    first, *left = await publish(log, numbered(4))
    cursor.ack([Ack(first)])
    await cursor.persist()
    return cursor, left


async def test_a_cursor_is_usable_after_its_creation_was_cancelled(
    world: World, store: HeldStore, autojump_clock: MockClock
) -> None:
    times = count()
    async with world.broker(LogOptions(now_ms=lambda: next(times))) as broker:
        log = await broker.open(NAME)
        store.holds = "/s"
        async with trio.open_nursery() as nursery:

            async def make() -> None:
                await log.open_cursor("s", initial=EARLIEST)

            nursery.start_soon(make)
            await store.reached.wait()
            nursery.cancel_scope.cancel()
            store.release()
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(3))
        cursor.ack([Ack(positions[0])])
        await cursor.persist()
    async with world.broker() as broker:
        assert await drain((await broker.open(NAME)).cursors["s"]) == ["m1", "m2"]


async def test_persisting_a_deleted_cursor_raises(
    world: World, bookie: HeldBookie, autojump_clock: MockClock
) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor, left = await with_a_ledger(log)
        persists = Persists(cursor)
        bookie.holding = True
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(persists.ack, left[0])
                await wait_all_tasks_blocked()
                nursery.start_soon(persists.ack, left[1])
                await wait_all_tasks_blocked()
                await log.delete_cursor("s")
                bookie.release()
        assert persists.ends[left[1]] is LogWriteFailed
        assert "s" not in log.cursors


async def test_a_cursor_can_be_persisted_after_a_failed_deletion(
    world: World, bookie: HeldBookie, store: HeldStore, autojump_clock: MockClock
) -> None:
    async with world.broker(crash=True) as broker:
        log = await broker.open(NAME)
        cursor, left = await with_a_ledger(log)
        persists = Persists(cursor)
        bookie.holding = True
        store.holds, store.fails = "/s", True
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:

                async def delete() -> None:
                    with pytest.raises(LogWriteFailed):
                        await log.delete_cursor("s")

                nursery.start_soon(persists.ack, left[0])
                await wait_all_tasks_blocked()
                nursery.start_soon(persists.ack, left[1])
                await wait_all_tasks_blocked()
                nursery.start_soon(delete)
                await store.reached.wait()
                bookie.release()
                await trio.sleep(2)
                # While the deletion is undecided, nothing is written and no caller fails.
                assert persists.ends == {left[0]: None}
                store.release()
        assert persists.ends == {left[0]: None, left[1]: None}
    async with world.broker() as broker:
        assert await drain((await broker.open(NAME)).cursors["s"]) == ["m3"]


async def test_persisting_an_unloaded_cursor_raises(
    world: World, store: HeldStore, autojump_clock: MockClock
) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor, left = await with_a_ledger(log)
        cursor.ack([Ack(left[0])])
        persists = Persists(cursor)
        store.holds = "/s"
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.close)
                await store.reached.wait()
                nursery.start_soon(persists.ack, left[1])
                await wait_all_tasks_blocked()
                store.release()
        assert persists.ends == {left[1]: LogWriteFailed}
    async with world.broker() as broker:
        assert await drain((await broker.open(NAME)).cursors["s"]) == ["m2", "m3"]


async def test_a_log_can_be_deleted_while_its_readers_leave(
    world: World, store: HeldStore, autojump_clock: MockClock
) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        await log.open_cursor("s", initial=EARLIEST)
        for n in range(3):
            log.open_reader(f"r{n}", EARLIEST)
        store.holds = "/s"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.delete)
            await store.reached.wait()
            await log.delete_cursor("r1")
            store.release()
        assert not log.cursors
        assert not await broker.exists(NAME)


async def test_a_cursor_of_a_closed_log_is_not_said_to_be_written() -> None:
    async with World().broker() as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        await publish(log, numbered(3))
        await log.close()
        with pytest.raises(LogClosed):
            await cursor.seek(log.last_position)
        with pytest.raises(LogClosed):
            await cursor.set_cursor_properties({"a": "b"})
        with pytest.raises(LogClosed):
            await log.delete_cursor("s")
        found = (await broker.open(NAME)).cursors["s"]
        assert await drain(found) == numbered(3)
        assert found.cursor_properties == {}


async def test_a_cursor_and_its_log_are_deleted_at_once() -> None:
    async with World().broker() as broker:
        log = await broker.open(NAME)
        await log.open_cursor("s", initial=EARLIEST)

        async def delete_cursor() -> None:
            with pytest.raises(LogClosed):
                await log.delete_cursor("s")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.delete)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(delete_cursor)
        assert not await broker.exists(NAME)
