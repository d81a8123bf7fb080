"""Failures, crashes, seeks and acknowledgements between two steps of a log's work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_bookie.errors import StorageFailed
from geminga_bookie.memory import MemoryBookie
from geminga_broker.log._tests.held import HeldBookie
from geminga_broker.log._tests.world import (
    NAME,
    Answers,
    World,
    drain,
    message,
    numbered,
    publish,
    text_of,
)
from geminga_broker.log.api import Ack, LogFenced, LogWriteFailed
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import CursorOptions, LogOptions, Retention, Rollover
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol.ids import EARLIEST, Position
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import StoreUnavailable

FOREVER = Retention(-1, -1)
KEEP = LogOptions(
    rollover=Rollover(entries_max=3, min_s=0),
    retention=FOREVER,
    cursors=CursorOptions(flush_interval_s=3600),
)


class TornStore(SteppedStore):
    """While it `fails`, writes of a log's own node raise an error; while it `hangs`, its deletion
    never returns. Neither is done.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fails = self.hangs = False
        self.deletion = trio.Event()
        """Set when the node's deletion is called."""

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        if self.fails and operation == "put" and path.endswith(NAME):
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("away")
        if self.hangs and operation == "delete" and path.endswith(NAME):
            self.deletion.set()
            await trio.sleep_forever()
        yield


class SlowReads(MemoryBookie):
    """A bookie whose reads complete when a test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.go = trio.Event()
        self.go.set()

    async def read(
        self, ledger_id: int, first_entry_id: int, *, entries_max: int, bytes_max: int
    ) -> list[bytes]:
        found = await super().read(
            ledger_id, first_entry_id, entries_max=entries_max, bytes_max=bytes_max
        )
        await self.go.wait()
        return found


async def ledgers(broker: ManagedLedgerFactory) -> set[int]:
    return {ledger_id async for ledger_id in broker.client.ledgers()}


def chain(log: TopicLog) -> set[int]:
    return {ledger.ledger_id for ledger in log.context.chain}


async def consumed(log: TopicLog) -> list[Position]:
    """Three ledgers whose entries a subscription has all acknowledged."""
    cursor = await log.open_cursor("s", initial=EARLIEST)
    positions: list[Position] = []
    for start in (0, 3, 6):
        positions += await publish(log, numbered(3, start))
        await wait_all_tasks_blocked()
    cursor.ack(Ack(position) for position in positions)
    return positions


# ---- the chain ----


async def test_what_was_not_written_takes_no_memory(autojump_clock: MockClock) -> None:
    bookie = HeldBookie()
    async with World(bookie).broker(KEEP) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        cursor.on_available(lambda: None)
        await publish(log, ["m0"])
        kept_bytes = broker.cache.size_bytes
        assert kept_bytes
        bookie.holding = True
        answers = Answers()
        log.append([(message("lost"), 1)] * 5, answers)
        assert broker.cache.size_bytes > kept_bytes
        bookie.release(StorageFailed("disk"))
        await answers.wait(5)
        assert broker.cache.size_bytes == kept_bytes


async def test_a_ledger_that_no_save_has_named_is_deleted(autojump_clock: MockClock) -> None:
    store = TornStore()
    async with World(store=store).broker(KEEP) as broker:
        log = await broker.open(NAME)
        await publish(log, ["m0"])
        store.fails = True
        await log.roll()
        assert log.statistics().state == "no ledger"
        store.fails = False
        await trio.sleep(KEEP.create_retry_s + 1)
        await publish(log, ["m1"])
        await log.trim()
        assert await ledgers(broker) == chain(log)
        assert await drain(log.open_reader("r", EARLIEST)) == ["m0", "m1"]


async def test_a_full_ledger_is_closed_at_once(autojump_clock: MockClock) -> None:
    """Also by its size in bytes, without waiting for the timer."""
    options = replace(KEEP, rollover=Rollover(size_bytes_max=1000, min_s=0))
    async with World().broker(options) as broker:
        log = await broker.open(NAME)
        await publish(log, ["x" * 700])
        await wait_all_tasks_blocked()
        assert len(chain(log)) == 1
        await publish(log, ["x" * 700])
        await wait_all_tasks_blocked()
        assert len(chain(log)) == 2


async def test_what_a_failed_trim_has_kept_is_not_deleted_later(autojump_clock: MockClock) -> None:
    store = TornStore()
    world = World(store=store)
    async with world.broker(KEEP) as broker:
        log = await broker.open(NAME)
        await consumed(log)
        before = chain(log)
        store.fails = True
        with pytest.raises(LogWriteFailed, match="trimmed"):
            await log.trim(Retention())
        store.fails = False
        await log.trim(FOREVER)
        assert before <= await ledgers(broker)
    async with world.broker(KEEP) as broker:
        reader = (await broker.open(NAME)).open_reader("r", EARLIEST)
        assert await drain(reader) == numbered(9)


async def test_properties_are_stored_before_what_they_tell_of_is_trimmed(
    autojump_clock: MockClock,
) -> None:
    """Deduplication replays later entries, which would be missing otherwise."""
    world = World()
    async with world.broker(KEEP, crash=True) as broker:
        log = await broker.open(NAME)
        positions = await consumed(log)
        cursor = log.cursors["s"]
        await cursor.persist()
        cursor.ack_cumulative(positions[-1], properties={"producer": 8})
        await log.trim(Retention())
        assert len(chain(log)) == 1
    async with world.broker(KEEP) as broker:
        assert (await broker.open(NAME)).cursors["s"].properties == {"producer": 8}


async def test_a_deletion_that_was_cut_off_is_carried_on(autojump_clock: MockClock) -> None:
    """The next owner finds the log empty, even if some ledgers still exist."""
    store = TornStore()
    world = World(store=store)
    async with world.broker(KEEP, crash=True) as broker:
        log = await broker.open(NAME)
        await consumed(log)
        store.hangs = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.delete)
            await store.deletion.wait()
            nursery.cancel_scope.cancel()
        store.hangs = False
    async with world.broker(KEEP) as broker:
        log = await broker.open(NAME)
        assert log.statistics().entries == 0
        assert not log.cursors
        await publish(log, ["new"])
        assert await drain(log.open_reader("r", EARLIEST)) == ["new"]
        await log.trim()
        assert await ledgers(broker) == chain(log)


@pytest.mark.parametrize("knows", [True, False])
async def test_a_fenced_log_leaves_its_cursors_to_the_new_owner(
    knows: bool, autojump_clock: MockClock
) -> None:
    """The new owner must be able to write a cursor that it hasn't written yet, also if the old one
    first asks at its close.
    """
    world = World()
    async with world.broker(KEEP, crash=True) as first, world.broker(KEEP) as second:
        old = await first.open(NAME)
        cursor = await old.open_cursor("s", initial=EARLIEST)
        positions = await publish(old, numbered(2))
        new = await second.open(NAME)
        if knows:
            answers = Answers()
            old.append([(message("late"), 1)], answers)
            await answers.wait(1)
            assert isinstance(answers.errors[0], LogFenced)
        cursor.ack([Ack(positions[0])])
        await old.close()
        await new.cursors["s"].set_cursor_properties({"by": "the new owner"})
        assert await drain(new.cursors["s"]) == numbered(2)


# ---- cursors ----


async def test_a_cursors_ledger_is_named_when_its_state_is_stored(
    autojump_clock: MockClock,
) -> None:
    """Before, a crash would leave neither the state of the node nor that of the ledger."""
    bookie = HeldBookie()
    world = World(bookie)
    async with world.broker(KEEP) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(6))
        cursor.ack([Ack(positions[1])])
    async with world.broker(KEEP, crash=True) as broker:
        log = await broker.open(NAME)
        cursor = log.cursors["s"]
        cursor.ack([Ack(positions[3])])
        bookie.holding = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cursor.persist)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    bookie.holding = False
    async with world.broker(KEEP) as broker:
        left = await drain((await broker.open(NAME)).cursors["s"])
        assert "m1" not in left


async def test_what_is_acknowledged_while_a_ledger_is_made_is_written_too(
    autojump_clock: MockClock,
) -> None:
    bookie = HeldBookie()
    world = World(bookie)
    async with world.broker(KEEP, crash=True) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(4))
        bookie.holding = True
        cursor.ack([Ack(positions[0])])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cursor.persist)
            await wait_all_tasks_blocked()
            cursor.ack([Ack(positions[1])])
            bookie.release()
        assert cursor.writer.is_dirty
        await cursor.persist()
    async with world.broker(KEEP) as broker:
        assert await drain((await broker.open(NAME)).cursors["s"]) == ["m2", "m3"]


async def test_a_hole_at_the_place_of_a_cumulative_acknowledgement_goes(
    autojump_clock: MockClock,
) -> None:
    async with World().broker(replace(KEEP, rollover=Rollover())) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(6))
        cursor.ack([Ack(positions[2]), Ack(positions[4])])
        cursor.ack_cumulative(positions[2])
        assert cursor.statistics().holes == 1
        assert cursor.backlog_entries() == 2
        cursor.ack_cumulative(positions[4])
        assert (cursor.statistics().holes, cursor.backlog_entries()) == (0, 1)


@pytest.mark.parametrize("how", ["seek", "rewind"])
async def test_a_move_during_a_read_counts(how: str, autojump_clock: MockClock) -> None:
    bookie = SlowReads()
    async with World(bookie).broker(replace(KEEP, rollover=Rollover())) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(6))
        wanted = numbered(2)
        if how == "rewind":
            assert await cursor.read(entries_max=2, bytes_max=1 << 20)
        found: list[str] = []
        bookie.go = trio.Event()

        async def read() -> None:
            entries = await cursor.read(entries_max=2, bytes_max=1 << 20)
            found.extend(map(text_of, entries))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            if how == "seek":
                wanted = numbered(2, 3)
                await cursor.seek(positions[3])
            else:
                cursor.rewind()
            bookie.go.set()
        assert found == wanted
        assert await drain(cursor) == numbered(6)[numbered(6).index(wanted[-1]) + 1 :]
