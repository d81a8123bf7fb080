"""Cursors as subscriptions use them, over storage in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from geminga_broker.log import position_info
from geminga_broker.log._tests.world import (
    NAME,
    World,
    drain,
    numbered,
    publish,
    text_of,
)
from geminga_broker.log.api import (
    Ack,
    AckRun,
)
from geminga_broker.log.cursor_use import CACHE_GRACE_S, CursorUse
from geminga_broker.log.cursors import CURSORS_ASKED_MAX
from geminga_broker.log.options import CursorOptions, LogOptions, Retention, Rollover
from geminga_protocol.ids import EARLIEST, LATEST, Position

SMALL = LogOptions(rollover=Rollover(entries_max=3, min_s=0))
KEEP = Retention(-1, -1)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_crash_keeps_entries_and_persisted_acks(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(crash=True) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(6))
        cursor.ack([Ack(positions[0]), Ack(positions[2])])
        await cursor.persist()
        cursor.ack([Ack(positions[1])])
        await cursor.persist()
        cursor.ack([Ack(positions[5])])
    async with world.broker() as broker:
        log = await broker.open(NAME)
        assert await drain(log.cursors["s"]) == ["m3", "m4", "m5"]


async def test_the_timer_persists_acks(world: World, autojump_clock: MockClock) -> None:
    async with world.broker(crash=True) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        for position in await publish(log, numbered(4)):
            cursor.ack([Ack(position)])
            await trio.sleep(1.5)
    async with world.broker() as broker:
        assert (await broker.open(NAME)).cursors["s"].backlog_entries() == 0


async def test_it_tells_where_its_state_is_written(world: World, autojump_clock: MockClock) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(3))
        cursor.ack_cumulative(positions[0])
        await cursor.persist()
        first = cursor.statistics().written
        assert first is not None
        cursor.ack_cumulative(positions[1])
        assert cursor.statistics().written == first, "not yet"
        await cursor.persist()
        assert cursor.statistics().written == (first.ledger_id, first.entry_id + 1)


async def test_seek_forgets_holes_and_reads_from_there(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(replace(SMALL, retention=KEEP), crash=True) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions: list[Position] = []
        for n in range(10):
            positions += await publish(log, [f"m{n}"])
        await drain(cursor)
        cursor.ack([Ack(position) for position in positions[5:]])
        await cursor.seek(positions[3])
        assert await drain(cursor) == numbered(7, 3)
        cursor.ack_cumulative(positions[8])
        await cursor.seek(EARLIEST)
        assert await drain(cursor) == numbered(10)
        await cursor.seek(positions[7])
    async with world.broker(replace(SMALL, retention=KEEP)) as broker:
        log = await broker.open(NAME)
        cursor = log.cursors["s"]
        assert await drain(cursor) == numbered(3, 7)
        await cursor.seek(LATEST)
        assert await drain(cursor) == []
        assert cursor.backlog_entries() == 0
        await publish(log, ["new"])
        assert await drain(cursor) == ["new"]


async def test_skip_counts_unacknowledged_entries(world: World, autojump_clock: MockClock) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(10))
        cursor.ack([Ack(positions[1]), Ack(positions[2])])
        await cursor.skip(3)
        assert cursor.mark_delete == positions[4]
        assert await drain(cursor) == numbered(5, 5)
        await cursor.skip(100)
        assert cursor.mark_delete == positions[9]


async def test_replay_skips_acknowledged_entries(world: World, autojump_clock: MockClock) -> None:
    async with world.broker(replace(SMALL, retention=KEEP)) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions: list[Position] = []
        for n in range(8):
            positions += await publish(log, [f"m{n}"])
        await drain(cursor)
        cursor.ack([Ack(positions[4])])
        wanted = [positions[n] for n in (1, 2, 3, 4, 5, 7)] + [Position(999, 0)]
        found = await cursor.read_at(wanted)
        assert [text_of(entry) for entry in found] == ["m1", "m2", "m3", "m5", "m7"]
        cursor.rewind()
        assert await drain(cursor) == ["m0", "m1", "m2", "m3", "m5", "m6", "m7"]


async def test_reads_end_at_the_last_position_that_they_may_read(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(replace(SMALL, retention=KEEP)) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions: list[Position] = []
        for n in range(25):
            positions += await publish(log, [f"m{n}"])
        assert len({place.ledger_id for place in positions}) > 1
        texts: list[str] = []
        for last in (3, 12, 13, 13, 21):
            upto = positions[last]
            while cursor.available(upto):
                found = await cursor.read(entries_max=10, bytes_max=1 << 20, upto=upto)
                texts += [text_of(entry) for entry in found]
            assert await cursor.read(entries_max=10, bytes_max=1 << 20, upto=upto) == []
            assert texts == [f"m{n}" for n in range(last + 1)]
        assert await drain(cursor) == [f"m{n}" for n in range(22, 25)]


async def test_batch_acks_survive_a_restart(world: World, autojump_clock: MockClock) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        first, second = await publish(log, ["a", "b"])
        cursor.ack([Ack(second, (0b101,), 3)])
        cursor.ack_cumulative(first, (0b10,))
        assert cursor.ack_set(second) == (0b101,)
    async with world.broker() as broker:
        cursor = (await broker.open(NAME)).cursors["s"]
        assert (cursor.ack_set(first), cursor.ack_set(second)) == ((0b10,), (0b101,))
        assert cursor.ack([Ack(second, (0b010,), 3)]) == [second]


async def test_runs_of_acks_survive_a_restart(world: World, autojump_clock: MockClock) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(9))
        cursor.ack_run(AckRun(positions[0].ledger_id, 0, 3))
        cursor.ack_run(AckRun(positions[0].ledger_id, 5, 2))
        assert (cursor.mark_delete, cursor.backlog_entries()) == (positions[2], 4)
    async with world.broker() as broker:
        cursor = (await broker.open(NAME)).cursors["s"]
        assert await drain(cursor) == ["m3", "m4", "m7", "m8"]


async def test_waiters_are_woken_by_new_entries(world: World, autojump_clock: MockClock) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=LATEST)
        woken: list[int] = []
        cursor.on_available(lambda: woken.append(1))
        assert not cursor.available()
        await publish(log, numbered(5))
        assert woken
        assert cursor.available()
        await drain(cursor)
        assert not cursor.available()


async def test_tail_reads_never_touch_the_bookie(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=LATEST)
        cursor.on_available(lambda: None)
        monkeypatch.setattr(world.bookie, "read", None)
        texts: list[str] = []
        for n in range(20):
            await publish(log, numbered(30, 30 * n))
            texts += await drain(cursor, 7)
            cursor.ack_cumulative(cursor.mark_delete)
        assert texts == numbered(600)
        cursor.rewind()
        assert await drain(cursor) == numbered(600)


async def test_the_cache_is_not_filled_without_a_reader_near_the_tail(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(LogOptions(near_tail_entries=10)) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        await publish(log, numbered(100))
        assert broker.cache.size_bytes == 0
        cursor.on_available(lambda: None)
        await publish(log, numbered(100))
        assert broker.cache.size_bytes == 0
        await cursor.read(entries_max=195, bytes_max=1 << 20)
        await cursor.read(entries_max=195, bytes_max=1 << 20)
        await publish(log, numbered(100))
        assert broker.cache.size_bytes > 0


async def test_one_reader_near_the_tail_is_found_among_many_that_lag(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(LogOptions(near_tail_entries=10)) as broker:
        log = await broker.open(NAME)
        first, *_ = await publish(log, numbered(100))
        lagging = [log.open_reader(f"lags{n}", EARLIEST) for n in range(4 * CURSORS_ASKED_MAX)]
        for cursor in lagging:
            cursor.on_available(lambda: None)
        near = log.open_reader("near", LATEST)
        near.on_available(lambda: None)
        for _ in range(5):
            await publish(log, ["more"])
        assert broker.cache.size_bytes > 0, "all were asked"
        [entry] = await near.read(entries_max=1, bytes_max=1)
        assert text_of(entry) == "more"
        await near.seek(first)
        for _ in range(5):
            await publish(log, ["more"])
        before = broker.cache.size_bytes
        await publish(log, ["more"])
        assert broker.cache.size_bytes == before, "nobody reads it soon"
        for cursor in [*lagging, near]:
            cursor.on_available(None)
        await trio.sleep(CACHE_GRACE_S + 1)
        for _ in range(6):
            await publish(log, ["more"])
        assert broker.cache.size_bytes == 0, "nobody is there"


async def test_cursors_that_nobody_waits_on_are_not_asked_when_the_log_grows(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[CursorUse] = []
    monkeypatch.setattr(CursorUse, "grown", lambda use: asked.append(use))
    async with world.broker() as broker:
        log = await broker.open(NAME)
        for n in range(50):
            cursor = log.open_reader(f"r{n}", LATEST)
            if n % 25 == 0:
                cursor.on_available(lambda: None)
        await publish(log, ["more"])
        assert len(asked) == 2


async def test_cursor_properties(world: World, autojump_clock: MockClock) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor(
            "sub/with slash", initial=EARLIEST, properties={"n": 1}, cursor_properties={"k": "v"}
        )
        [position] = await publish(log, ["a"])
        cursor.ack_cumulative(position, properties={"n": 2})
        await cursor.persist()
        await cursor.set_cursor_properties({"k": "w"})
    async with world.broker() as broker:
        cursor = (await broker.open(NAME)).cursors["sub/with slash"]
        assert cursor.properties == {"n": 2}
        assert cursor.cursor_properties == {"k": "w"}
        assert cursor.mark_delete == position


async def test_a_reader_starts_at_the_given_position(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        positions = await publish(log, numbered(5))
        assert await drain(log.open_reader("a", positions[2])) == numbered(3, 2)
        late = log.open_reader("b", LATEST)
        assert await drain(late) == []
        await publish(log, ["new"])
        assert await drain(late) == ["new"]
        await log.delete_cursor("b")
        assert "b" not in log.cursors


@pytest.mark.parametrize("torn", [False, True])
async def test_a_state_of_many_entries_survives_a_crash(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    monkeypatch.setattr(position_info, "PART_BYTES_MAX", 500)
    monkeypatch.setattr(position_info, "_WINDOW_ENTRIES", 512)
    monkeypatch.setattr(position_info, "WORDS_MAX", 4)
    async with world.broker(crash=True) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(6000))
        cursor.ack([Ack(position) for position in positions[1:4000:2]])
        await cursor.persist()
        cursor.ack([Ack(position) for position in positions[4001::2]])
        assert cursor.writer._store is not None
        assert cursor.writer._store._writer is not None
        cursor_ledger = cursor.writer._store._ledger_id
        if torn:
            # Only the first part of the next state gets to the bookie before the crash.
            infos = position_info.position_infos(cursor.state, {}, 10)
            assert len(infos) > 2
            cursor.writer._store.append(infos[:2], lambda error: None)
        else:
            await cursor.persist()
        await trio.sleep(0.1)
        assert cursor_ledger == cursor.writer._store._ledger_id
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor = log.cursors["s"]
        expected = [n for n in range(6000) if n % 2 == 0 or (torn and n > 4000)]
        assert await drain(cursor, 1000) == [f"m{n}" for n in expected]
        cursor.ack([Ack(positions[0])])
        await cursor.persist()
    async with world.broker() as broker:
        cursor = (await broker.open(NAME)).cursors["s"]
        assert cursor.mark_delete == positions[1]
        assert cursor.backlog_entries() == len(expected) - 1


async def test_properties_survive_with_many_holes_and_beside_other_writes(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(LogOptions(cursors=CursorOptions(ranges_to_store_max=3))) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(40))
        async with trio.open_nursery() as nursery:
            for n in range(1, 40, 2):
                cursor.ack([Ack(positions[n])])
                nursery.start_soon(cursor.persist)
                nursery.start_soon(cursor.set_cursor_properties, {"n": str(n)})
                await trio.lowlevel.checkpoint()
    async with world.broker() as broker:
        cursor = (await broker.open(NAME)).cursors["s"]
        assert cursor.cursor_properties == {"n": "39"}
        assert cursor.backlog_entries() == 20
