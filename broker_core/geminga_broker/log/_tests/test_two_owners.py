"""Two brokers that consider themselves a log's owner: only one can change its metadata."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_bookie.client.api import LedgerOptions
from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.memory import MemoryBookie
from geminga_broker.log._tests.held import HeldStore
from geminga_broker.log._tests.world import NAME, World, drain, numbered, publish
from geminga_broker.log.api import Ack, LogFenced, LogWriteFailed
from geminga_broker.log.catalog import ROOT, LogCatalog
from geminga_broker.log.chain import LedgerInfo
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import LogOptions, Retention, Rollover
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol.bookkeeper import paths
from geminga_protocol.ids import EARLIEST, Position
from geminga_runtime.metadata.api import StoreUnavailable, Writes
from geminga_runtime.metadata.memory import MemoryMetadataStore

KEEP = LogOptions(rollover=Rollover(entries_max=3, min_s=0), retention=Retention(-1, -1))
LEFT = numbered(2, start=4)
"""What the second owner did not acknowledge."""


@asynccontextmanager
async def two_owners(world: World) -> AsyncIterator[tuple[TopicLog, TopicLog]]:
    """A log with six messages; the first owner has acknowledged one, the second one four. The first
    owner doesn't know of the second, and is not closed properly.
    """
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(world.broker(KEEP, crash=True))
        old = await first.open(NAME)
        cursor = await old.open_cursor("s", initial=EARLIEST)
        positions = await publish(old, numbered(6))
        await wait_all_tasks_blocked()
        await acknowledge(cursor, positions[:1])
        second = await stack.enter_async_context(world.broker(KEEP, crash=True))
        new = await second.open(NAME)
        await acknowledge(new.cursors["s"], positions[:4])
        yield old, new


async def acknowledge(cursor: LogCursor, positions: list[Position]) -> None:
    """Durably."""
    cursor.ack(Ack(position) for position in positions)
    await cursor.persist()


async def persist(log: TopicLog) -> None:
    """Needs a new ledger and the node, as the cursor's ledger is the new owner's."""
    cursor = log.cursors["s"]
    cursor.ack([Ack(cursor.state.first_unacked(cursor.mark_delete))])
    try:
        await cursor.persist()
    except LogFenced:
        raise
    except LogWriteFailed:
        await cursor.persist()


async def set_properties(log: TopicLog) -> None:
    await log.cursors["s"].set_cursor_properties({"by": "the old owner"})


async def hand_over(log: TopicLog) -> None:
    await log.cursors["s"].writer.persist_to_node()


@pytest.mark.parametrize("write", [persist, set_properties, hand_over])
async def test_a_cursor_is_not_moved_back_by_its_old_owner(
    write: Callable[[TopicLog], Awaitable[None]], autojump_clock: MockClock
) -> None:
    world = World()
    async with two_owners(world) as (old, _):
        with pytest.raises(LogFenced, match="another broker"):
            await write(old)
    async with world.broker(KEEP) as broker:
        cursor = (await broker.open(NAME)).cursors["s"]
        assert await drain(cursor) == LEFT
        assert cursor.cursor_properties == {}


async def test_a_chain_is_not_changed_by_its_old_owner(autojump_clock: MockClock) -> None:
    world = World()
    async with two_owners(world) as (old, new):
        await publish(new, ["new"])
        before = await world.store.get(f"{ROOT}/{NAME}")
        with pytest.raises(LogFenced, match="another broker"):
            await old.context.catalog.save([LedgerInfo(1)])
        with pytest.raises(LogFenced, match="another broker"):
            await old.context.catalog.remove()
        assert await world.store.get(f"{ROOT}/{NAME}") == before
        await new.roll()
        await publish(new, ["newer"])
    async with world.broker(KEEP) as broker:
        reader = (await broker.open(NAME)).open_reader("r", EARLIEST)
        assert await drain(reader) == [*numbered(6), "new", "newer"]


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_save_whose_outcome_is_unknown_is_settled_before_the_next(
    meanwhile: bool, autojump_clock: MockClock
) -> None:
    """Our own save that succeeded is no conflict; another broker's later one is."""
    store = HeldStore()
    path = NAME.rpartition("/")[2]
    catalog = LogCatalog(store, NAME)
    await catalog.save([LedgerInfo(1)])
    store.holds, store.fails = path, True
    store.release()
    store.holds = path
    with pytest.raises(StoreUnavailable):
        await catalog.save([LedgerInfo(1), LedgerInfo(2)])
    store.holds = None
    if meanwhile:
        other = LogCatalog(store, NAME)
        await other.load()
        await other.save([LedgerInfo(3)])
        with pytest.raises(LogFenced, match="another broker"):
            await catalog.save([LedgerInfo(4)])
    else:
        await catalog.save([LedgerInfo(4)])
    info = await LogCatalog(store, NAME).load()
    assert info is not None
    assert [ledger.ledgerId for ledger in info.ledgerInfo] == [3 if meanwhile else 4]


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_ledger_whose_making_has_an_unknown_outcome_is_not_forgotten(is_done: bool) -> None:
    """It was made together with the node that names it, or neither was."""

    class Unanswered(MemoryMetadataStore):
        fails = True

        async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
            found = await super().put_numbered(at, writes) if is_done or not self.fails else None
            if found is None or self.fails:
                writes(7)  # as it was sent
                raise StoreUnavailable("no answer")
            return found

    store = Unanswered()
    world = World(store=store)
    async with world.broker() as broker:
        catalog = LogCatalog(store, NAME)
        create = partial(broker.client.create_named, LedgerOptions(1, 1, 1))
        with pytest.raises(StoreUnavailable):
            await catalog.save_with_new([], create)
        made = [each async for each in broker.client.ledgers()]
        assert len(made) == is_done
        store.fails = False
        writer = await catalog.save_with_new([], create)
        again = LogCatalog(store, NAME)
        info = await again.load()
        assert info is not None
        assert [each.ledgerId for each in info.ledgerInfo] == [writer.ledger_id]
        assert list(again.deleting) == made  # nobody has it, so it goes


async def test_ledgers_may_be_in_a_store_of_their_own() -> None:
    """Their metadata and the node that names them can't be written together then."""
    own, ledgers = MemoryMetadataStore(), MemoryMetadataStore()
    client = BookkeeperClient(KnownBookies([MemoryBookie()]), ledgers)
    async with ManagedLedgerFactory(client, own, KEEP) as logs:
        log = await logs.open(NAME)
        for start in (0, 3, 6):
            await publish(log, numbered(3, start))
            await wait_all_tasks_blocked()  # it rolls over
        names = [each.ledger_id for each in log.context.chain]
        assert len(names) > 2
        assert [each async for each in client.ledgers()] == names
        assert not await ledgers.exists(ROOT)
        assert not await own.exists(paths.ROOT)
        assert await client.unnamed.old(1 << 62) == []
        await log.close()
        assert await drain((await logs.open(NAME)).open_reader("r", EARLIEST)) == numbered(9)


async def test_a_cursor_takes_its_own_write_and_no_other_for_done(
    autojump_clock: MockClock,
) -> None:
    """The result of a write was lost; then the new owner writes."""
    store = HeldStore()
    world = World(store=store)
    async with two_owners(world) as (old, new):
        cursor = new.cursors["s"]
        store.holds, store.fails = "/s", True
        store.release()
        store.holds = "/s"
        with pytest.raises(LogWriteFailed):
            await cursor.set_cursor_properties({"answer": "lost"})
        store.holds = None
        await cursor.set_cursor_properties({"answer": "came"})
        with pytest.raises(LogFenced, match="another broker"):
            await old.cursors["s"].set_cursor_properties({"by": "the old owner"})
    async with world.broker(KEEP) as broker:
        cursor = (await broker.open(NAME)).cursors["s"]
        assert await drain(cursor) == LEFT
        assert cursor.cursor_properties == {"answer": "came"}


async def test_a_ledger_ends_where_its_recovery_found_it(autojump_clock: MockClock) -> None:
    """The old owner closes it last: another end would lose entries."""
    world = World()
    async with world.broker(KEEP, crash=True) as first:
        old = await first.open(NAME)
        await publish(old, ["m0"])
        writer = old.context.writer
        assert writer is not None
        known = await LedgerMetadataStore(world.store).read(writer.ledger_id)
        async with world.broker(KEEP) as second:
            new = await second.open(NAME)
            shorter = known.closed(-1, 0)
            with pytest.raises(Exception, match="changed"):
                await LedgerMetadataStore(world.store).update(known, shorter)
            assert await drain(new.open_reader("r", EARLIEST)) == ["m0"]
        async with world.broker(KEEP) as third:
            log = await third.open(NAME)
            assert await drain(log.open_reader("r", EARLIEST)) == ["m0"]
