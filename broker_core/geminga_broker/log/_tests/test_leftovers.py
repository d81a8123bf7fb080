"""No ledger leaks, and none that is named is deleted, whatever happens in between (BR-04)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from random import Random

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.log import cursor_store, trim
from geminga_broker.log._tests.leftovers import Trouble, TroubledWorld
from geminga_broker.log._tests.world import NAME, Answers, World, drain, message, numbered, publish
from geminga_broker.log.api import Ack, LogError, LogFenced
from geminga_broker.log.catalog import DELETED_PROPERTY, DELETIONS, ROOT
from geminga_broker.log.chain import LedgerInfo
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.cursor_store import CursorKey, CursorStore, ledgers_of_cursor
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import LogOptions
from geminga_broker.log.snapshot_log import SnapshotLog
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.log.unnamed import clean, log_ledgers
from geminga_protocol.bookkeeper import paths
from geminga_protocol.ids import EARLIEST, Position
from geminga_protocol.pb.managed_ledger_pb2 import PositionInfo
from geminga_runtime.metadata.api import StoreUnavailable


class Life:
    """A log whose ledgers, cursors, cursors' ledgers and side ledgers come and go. What fails is
    left undone, and life goes on.
    """

    def __init__(self, world: TroubledWorld, broker: ManagedLedgerFactory) -> None:
        self._world = world
        self._broker = broker

    async def live(self) -> None:
        for step in (
            partial(self._publish, 4),
            partial(self._acknowledge, "s"),
            self._remember,
            partial(self._acknowledge, "s"),
            self._remember,
            self._forget,
            partial(self._acknowledge, "o"),
            partial(self._publish, 6),
            partial(self._acknowledge, "o"),
            partial(self._acknowledge, "s"),
            self._delete_cursor,
            self._trim,
            self._remember,
            self._close,
            partial(self._acknowledge, "s"),
            self._trim,
            self._truncate,
            partial(self._publish, 1),
            self._delete,
        ):
            try:
                await step()
            except LogError:
                continue

    async def _log(self) -> TopicLog:
        return await self._broker.open(NAME)

    async def _cursor(self, name: str) -> LogCursor:
        return await (await self._log()).open_cursor(name, initial=EARLIEST)

    async def _publish(self, count: int) -> None:
        await self._cursor("s")
        answers = Answers()
        log = await self._log()
        log.append([(message(text), 1) for text in numbered(count)], answers)
        await answers.wait(count)
        await wait_all_tasks_blocked()

    async def _acknowledge(self, name: str) -> None:
        """Every second message: more holes than a node may have, so that ledgers follow."""
        cursor = await self._cursor(name)
        log = await self._log()
        for _ in range(3):
            position = cursor.state.first_unacked(cursor.mark_delete)
            position = log.next_position(position)
            cursor.ack([Ack(position)])
            await cursor.persist()
        cursor.ack_cumulative(cursor.state.first_unacked(cursor.mark_delete))
        await cursor.persist()

    async def _side(self) -> SnapshotLog:
        cursor = await self._cursor("s")
        return SnapshotLog(cursor.writer, self._broker.client, self._world.options, (NAME, "s"))

    async def _remember(self) -> None:
        await (await self._side()).append(b"record")

    async def _forget(self) -> None:
        await (await self._side()).keep([])

    async def _delete_cursor(self) -> None:
        await (await self._log()).delete_cursor("o")
        await wait_all_tasks_blocked()

    async def _trim(self) -> None:
        log = await self._log()
        await log.trim()
        log.trim_if_due()
        await wait_all_tasks_blocked()

    async def _truncate(self) -> None:
        log = await self._log()
        for cursor in log.cursors.values():
            cursor.ack_cumulative(log.last_position)
            await cursor.persist()
        await log.truncate()

    async def _close(self) -> None:
        await (await self._log()).close()

    async def _delete(self) -> None:
        await (await self._log()).delete()


async def writes_of_a_life() -> int:
    """Also asserts that a life without troubles leaves nothing."""
    world = TroubledWorld()
    async with world.troubled(lambda _: None) as broker:
        await Life(world, broker).live()
        assert [each async for each in broker.client.ledgers()] == []
        assert await broker.client.unnamed.old(world.clock.now_ms + 1) == []
    return world.store.writes


@pytest.mark.parametrize("trouble", Trouble)
@pytest.mark.slow
async def test_trouble_at_each_write(trouble: Trouble, autojump_clock: MockClock) -> None:
    writes = await writes_of_a_life()
    assert writes > 60
    for at in range(writes):
        world = TroubledWorld()
        async with world.troubled(lambda n, at=at: trouble if n == at else None) as broker:
            await Life(world, broker).live()
        await world.assert_nothing_leaks(NAME)


@pytest.mark.parametrize("seed", range(40))
async def test_troubles_at_random(
    seed: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several lives, each with several troubles; what was published and not acknowledged stays."""
    chance = Random(seed)
    monkeypatch.setattr(cursor_store, "LEFTOVERS_MAX", chance.choice([1, 2, 64]))
    world = TroubledWorld()

    def trouble(_: int) -> Trouble | None:
        return chance.choice(list(Trouble)) if chance.random() < rate else None

    for _ in range(6):
        rate = chance.choice([0.01, 0.05, 0.3])
        async with world.troubled(trouble) as broker:
            world.bookie.away = chance.random() < 0.1
            await Life(world, broker).live()
        world.bookie.away = False
        if chance.random() < 0.5:
            await world.assert_nothing_leaks(NAME)
    await world.assert_nothing_leaks(NAME)
    async with world.broker(world.options) as broker:
        log = await broker.open(NAME)
        await publish(log, ["last"])
        assert (await drain(log.open_reader("r", EARLIEST)))[-1] == "last"
        await log.delete()
        assert [each async for each in broker.client.ledgers()] == []


async def test_a_former_owner_names_no_ledger_that_its_successor_deleted() -> None:
    world = TroubledWorld()
    async with world.troubled(lambda _: None) as broker:
        await (await broker.open(NAME)).open_cursor("s", initial=EARLIEST)

        def store() -> CursorStore:
            return CursorStore(CursorKey(NAME, "s"), broker.client, world.store, world.options)

        state = [PositionInfo(ledgerId=0, entryId=1)]
        former, successor = store(), store()
        await former.load()
        await former.write_to_new_ledger(state)
        [old] = former.ledger_ids
        at = world.store.writes + 3  # after its id, its metadata, and the state
        world.store.trouble = lambda n: Trouble.UNKNOWN if n == at - 1 else None
        with pytest.raises(StoreUnavailable):
            await former.write_to_new_ledger(state)
        assert (await successor.load()) is not None
        assert successor.ledger_ids != [old]
        if await successor.find_leftovers():
            await successor.write_properties(Position(0, 1))
        await successor.delete_leftovers()
        with pytest.raises(LogFenced):
            await former.write_properties(Position(0, 1))
        assert old not in {each async for each in broker.client.ledgers()}
        assert await ledgers_of_cursor(world.store, former.key.path) >= set(successor.ledger_ids)


async def test_writes_of_unknown_outcome_leave_few_ledgers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursor_store, "LEFTOVERS_MAX", 2)
    world = TroubledWorld()
    async with world.troubled(lambda _: None) as broker:
        await (await broker.open(NAME)).open_cursor("s", initial=EARLIEST)
        others = {each async for each in broker.client.ledgers()}
        store = CursorStore(CursorKey(NAME, "s"), broker.client, world.store, world.options)
        await store.load()
        for outcome in (Trouble.UNKNOWN, Trouble.REFUSED) * 4:
            world.store.trouble = lambda _, outcome=outcome: (
                outcome if world.store.path.endswith("/s") else None
            )
            with pytest.raises(StoreUnavailable):
                await store.write_to_new_ledger([PositionInfo(ledgerId=0, entryId=1)])
            assert len({each async for each in broker.client.ledgers()} - others) <= 3
        world.store.trouble = lambda _: None
        await store.write_to_new_ledger([PositionInfo(ledgerId=0, entryId=1)])
        assert {each async for each in broker.client.ledgers()} - others == set(store.ledger_ids)


async def test_a_write_under_way_when_its_cursor_is_removed() -> None:
    world = TroubledWorld()
    async with world.broker(world.options, crash=True) as broker:
        await (await broker.open(NAME)).open_cursor("s", initial=EARLIEST)
        key = CursorKey(NAME, "s")
        writes, removes = (
            CursorStore(key, broker.client, world.store, world.options) for _ in range(2)
        )
        await removes.load()
        await writes.load()
        state = [PositionInfo(ledgerId=0, entryId=1)]
        await writes.write_to_new_ledger(state)
        told: list[list[int]] = []

        async def listed(ledger_ids: Sequence[int]) -> None:
            told.append(list(ledger_ids))
            if len(told) == 1:
                await writes.write_to_new_ledger(state)

        await removes.remove(listed)
        assert set(writes.ledger_ids) <= set(told[-1])
        assert not await world.store.exists(key.path)


async def test_another_broker_that_used_a_log_in_deletion_keeps_it() -> None:
    """It doesn't know the mark, and made a ledger."""
    world = TroubledWorld()
    async with world.broker(world.options) as broker:
        log = await broker.open(NAME)
        await publish(log, numbered(2))
        catalog = log.context.catalog
        await catalog.note_deletion()
        catalog.properties[DELETED_PROPERTY] = "true"
        await catalog.save(log.context.chain)
    async with world.broker(world.options) as broker:
        await broker.finish_deletions()
        log = await broker.open(NAME)
        assert await drain(log.open_reader("r", EARLIEST)) == numbered(2)
        assert await world.store.children(DELETIONS) == []


async def test_a_long_list_of_ledgers_is_trimmed_part_by_part(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim, "DELETING_MAX", 2)
    world = TroubledWorld()
    longest = 0
    async with world.broker(world.options) as broker:
        log = await broker.open(NAME)
        save = log.context.catalog.save

        async def watched(ledgers: Iterable[LedgerInfo]) -> None:
            nonlocal longest
            longest = max(longest, len(log.context.catalog.deleting))
            await save(ledgers)

        monkeypatch.setattr(log.context.catalog, "save", watched)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        for _ in range(7):
            positions = await publish(log, numbered(2))
            await log.roll()
        assert len(log.context.chain) == 8
        cursor.ack_cumulative(positions[-1])
        await log.truncate()
        assert longest == 2
        assert len(log.context.chain) <= 2
        await log.delete_cursor("s")
        await log.trim()
        assert {each async for each in broker.client.ledgers()} == {
            ledger.ledger_id for ledger in log.context.chain
        }


OTHER = "public/default/persistent/other"


async def test_a_record_that_is_not_valid_stops_no_other_cleaning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    async with world.broker() as broker:
        made = [
            await broker.client.create(LogOptions().durability.ledger_options(name), unnamed=True)
            for name in (NAME, NAME, OTHER)
        ]
        ids = [writer.ledger_id for writer in made]
        await world.store.put(f"{ROOT}/{NAME}", b"\xff not valid")
        await world.store.put(paths.ledger(ids[1]), b"not valid")
        owners = log_ledgers(world.store)
        assert await clean(broker.client, world.store, owners, 1 << 62) == [ids[2]]
        assert {each async for each in broker.client.ledgers()} == set(ids[:2])
    assert [f"ledger {each} can't" in caplog.text for each in ids] == [True, True, False]


async def test_a_log_that_is_not_valid_stops_no_start() -> None:
    """Nor the deletion of another one."""
    world = TroubledWorld()
    async with world.broker(world.options) as broker:
        for name in (NAME, OTHER):
            catalog = (await broker.open(name)).context.catalog
            await catalog.note_deletion()
            catalog.properties[DELETED_PROPERTY] = "true"
            await catalog.save([])
    await world.store.put(f"{ROOT}/{NAME}", b"\xff not valid")
    async with world.broker(world.options) as broker:
        await broker.finish_deletions()
        assert not await broker.exists(OTHER)
        assert len(await world.store.children(DELETIONS)) == 1
