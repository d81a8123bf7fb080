"""The log as topics use it, over storage in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from geminga_broker.log._tests.world import NAME, Answers, World, message, publish, text_of
from geminga_broker.log.api import (
    Ack,
    CursorNotFound,
    LogClosed,
    LogFenced,
    LogNotFound,
    LogTerminated,
)
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.options import CursorOptions, LogOptions, Retention, Rollover
from geminga_protocol.ids import EARLIEST, LATEST, EntryId, LedgerId, Position

SMALL = LogOptions(rollover=Rollover(entries_max=3, min_s=0))
KEEP = Retention(-1, -1)


@pytest.fixture
def world() -> World:
    return World()


async def drain(cursor: LogCursor, entries_max: int = 100) -> list[str]:
    texts: list[str] = []
    while entries := await cursor.read(entries_max=entries_max, bytes_max=1 << 30):
        texts += [text_of(entry) for entry in entries]
    return texts


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"m{n}" for n in range(start, start + count)]


async def test_what_is_appended_is_read_acked_and_there_after_a_restart(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(5))
        assert log.last_position == positions[-1]
        assert await drain(cursor) == numbered(5)
        assert cursor.ack([Ack(positions[0]), Ack(positions[1]), Ack(positions[3])]) == [
            positions[0],
            positions[1],
            positions[3],
        ]
        assert cursor.mark_delete == positions[1]
        assert cursor.backlog_entries() == 2
    async with world.broker() as broker:
        log = await broker.open(NAME)
        assert log.last_position == positions[-1]
        cursor = log.cursors["s"]
        assert await drain(cursor) == ["m2", "m4"]
        await publish(log, ["new"])
        assert await drain(cursor) == ["new"]


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


async def test_rollover_makes_a_chain_and_trimming_takes_what_is_consumed(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(SMALL) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions: list[Position] = []
        for start in range(0, 12, 3):
            positions += await publish(log, numbered(3, start))
            await trio.sleep(0.1)
        assert len({position.ledger_id for position in positions}) == 4
        assert len(log.statistics().ledgers) == 5
        assert await drain(cursor, 2) == numbered(12)
        assert log.entries_between(positions[0], positions[-1]) == 11
        cursor.ack_cumulative(positions[6])
        await trio.sleep(0.1)
        assert log.statistics().ledgers[0].ledger_id == positions[6][0]
        cursor.ack_cumulative(positions[-1])
        await trio.sleep(0.1)
        assert [ledger.entries for ledger in log.statistics().ledgers] == [0]
        assert cursor.backlog_entries() == 0
        last = await publish(log, ["after"])
        assert await drain(cursor) == ["after"]
        assert last > positions
    async with world.broker(SMALL) as broker:
        log = await broker.open(NAME)
        assert await drain(log.cursors["s"]) == ["after"]


async def test_trimmed_ledgers_are_deleted_in_bookkeeper(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(SMALL) as broker:
        log = await broker.open(NAME)
        for start in range(0, 9, 3):
            await publish(log, numbered(3, start))
            await trio.sleep(0.1)
        left = [ledger_id async for ledger_id in broker._client.ledgers()]
        assert left == [log.statistics().ledgers[-1].ledger_id]


async def test_retention_keeps_consumed_ledgers(world: World, autojump_clock: MockClock) -> None:
    now_ms = 1000
    options = replace(SMALL, retention=Retention(60, -1), now_ms=lambda: now_ms)
    async with world.broker(options) as broker:
        log = await broker.open(NAME)
        await publish(log, numbered(3))
        await trio.sleep(0.1)
        assert log.statistics().entries == 3
        now_ms += 60_001
        await log.trim()
        assert log.statistics().entries == 0
        log.set_retention(KEEP)
        await publish(log, numbered(3))
        now_ms += 60_001
        await trio.sleep(0.1)
        assert log.statistics().entries == 3
        log.set_retention(Retention())
        await trio.sleep(0.1)
        assert log.statistics().entries == 0


async def test_an_idle_topic_rolls_by_the_clock(world: World, autojump_clock: MockClock) -> None:
    seldom = CursorOptions(flush_interval_s=3600)
    async with world.broker(LogOptions(retention=KEEP, cursors=seldom)) as broker:
        log = await broker.open(NAME)
        await publish(log, ["a"])
        await trio.sleep(14_500)
        assert [ledger.entries for ledger in log.statistics().ledgers] == [1, 0]
        await trio.sleep(30_000)
        assert len(log.statistics().ledgers) == 2


async def test_appends_during_a_rollover_wait_and_keep_their_order(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(replace(SMALL, retention=KEEP)) as broker:
        log = await broker.open(NAME)
        answers = Answers()
        for n in range(50):
            buffer = bytearray(message(f"m{n}"))
            log.append([(buffer, 1)], answers)
            buffer[-1:] = b"!"
            if n % 7 == 0:
                await trio.lowlevel.checkpoint()
        await answers.wait(50)
        assert answers.positions == sorted(answers.positions)
        reader = log.open_reader("r", EARLIEST)
        assert await drain(reader) == numbered(50)


async def test_the_broker_entry_index_is_contiguous(
    world: World, autojump_clock: MockClock
) -> None:
    options = replace(SMALL, broker_entry_metadata=True, now_ms=lambda: 1234)
    texts: list[str] = []
    for crash in (True, False, False):
        async with world.broker(replace(options, retention=KEEP), crash=crash) as broker:
            log = await broker.open(NAME)
            answers = Answers()
            for n in range(100):
                log.append([(message("x", batch=3), 3), (message("y"), 1)], answers)
                await trio.sleep(0.001 * (n % 3))
            await answers.wait(200)
            texts += ["x", "y"] * 100
            reader = log.open_reader("r", EARLIEST)
            indexes: list[int] = []
            found: list[str] = []
            while entries := await reader.read(entries_max=7, bytes_max=1 << 20):
                for entry in entries:
                    assert entry.broker_metadata is not None
                    indexes.append(entry.broker_metadata.index)
                    assert entry.time_ms == 1234
                    found.append(text_of(entry))
            assert found == texts
            assert indexes == [
                index for n in range(len(texts) // 2) for index in (4 * n + 2, 4 * n + 3)
            ]


async def test_the_index_goes_on_when_everything_is_trimmed(
    world: World, autojump_clock: MockClock
) -> None:
    options = replace(SMALL, broker_entry_metadata=True)
    async with world.broker(options, crash=True) as broker:
        log = await broker.open(NAME)
        await publish(log, numbered(3))
        await trio.sleep(0.1)
        assert log.statistics().entries == 0
    async with world.broker(options) as broker:
        log = await broker.open(NAME)
        [position] = await publish(log, ["a"])
        [entry] = await log.read_range(position, entries_max=1, bytes_max=1)
        assert entry.broker_metadata is not None
        assert entry.broker_metadata.index == 3


async def test_terminate_is_durable_and_idempotent(world: World, autojump_clock: MockClock) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        [position] = await publish(log, ["end"])
        assert await log.terminate() == position
        assert await log.terminate() == position
        answers = Answers()
        log.append([(b"x", 1)], answers)
        assert [type(error) for error in answers.errors] == [LogTerminated]
    async with world.broker() as broker:
        log = await broker.open(NAME)
        assert log.terminated
        assert log.last_position == position
        cursor = await log.open_cursor("s", initial=EARLIEST)
        assert await drain(cursor) == ["end"]


async def test_another_broker_takes_over(world: World, autojump_clock: MockClock) -> None:
    options = LogOptions(retention=KEEP)
    async with world.broker(options) as old, world.broker(options) as new:
        log = await old.open(NAME)
        await publish(log, ["a"])
        taken = await new.open(NAME)
        answers = Answers()
        log.append([(b"b", 1)], answers)
        await answers.wait(1)
        log.append([(b"c", 1)], answers)
        assert [type(error) for error in answers.errors] == [LogFenced, LogFenced]
        assert await drain(taken.open_reader("r", EARLIEST)) == ["a"]
        await publish(taken, ["d"])
        with pytest.raises(LogFenced):
            await log.open_cursor("s", initial=LATEST)
        # The same broker may get it back.
        again = await old.open(NAME)
        assert again is not log
        assert await drain(again.open_reader("r", EARLIEST)) == ["a", "d"]


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


async def test_find_by_time(world: World, autojump_clock: MockClock) -> None:
    async with world.broker(replace(SMALL, retention=KEEP)) as broker:
        log = await broker.open(NAME)
        assert await log.find_by_time(5) == log.next_position(log.last_position)
        answers = Answers()
        for n in range(10):
            log.append([(message(f"m{n}", time_ms=100 + 10 * n), 1)], answers)
            await trio.sleep(0.01)
        await answers.wait(10)
        positions = answers.positions
        assert await log.find_by_time(0) == positions[0]
        assert await log.find_by_time(100) == positions[0]
        assert await log.find_by_time(131) == positions[4]
        assert await log.find_by_time(190) == positions[9]
        assert await log.find_by_time(191) == log.next_position(positions[9])


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


async def test_replay_leaves_out_what_was_acknowledged(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(replace(SMALL, retention=KEEP)) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions: list[Position] = []
        for n in range(8):
            positions += await publish(log, [f"m{n}"])
        await drain(cursor)
        cursor.ack([Ack(positions[4])])
        wanted = [positions[n] for n in (1, 2, 3, 4, 5, 7)] + [Position(LedgerId(999), EntryId(0))]
        found = await cursor.read_at(wanted)
        assert [text_of(entry) for entry in found] == ["m1", "m2", "m3", "m5", "m7"]
        cursor.rewind()
        assert await drain(cursor) == ["m0", "m1", "m2", "m3", "m5", "m6", "m7"]


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


async def test_deleting_leaves_nothing(world: World, autojump_clock: MockClock) -> None:
    async with world.broker(replace(SMALL, retention=KEEP)) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        await publish(log, numbered(10))
        cursor.ack_cumulative(log.last_position)
        await cursor.persist()
        await log.open_cursor("other", initial=LATEST)
        await log.delete_cursor("other")
        with pytest.raises(CursorNotFound):
            await log.delete_cursor("other")
        assert await broker.names("public/default/persistent") == [NAME]
        await broker.delete(NAME)
        await broker.delete(NAME)
        assert await broker.names("public/default/persistent") == []
        assert not await broker.exists(NAME)
        assert [ledger_id async for ledger_id in broker._client.ledgers()] == []
        answers = Answers()
        log.append([(b"x", 1)], answers)
        assert [type(error) for error in answers.errors] == [LogClosed]
        with pytest.raises(LogNotFound):
            await broker.open(NAME, create=False)
        assert await drain((await broker.open(NAME)).open_reader("r", EARLIEST)) == []


async def test_opening_is_single_flight(world: World, autojump_clock: MockClock) -> None:
    async with world.broker() as broker:
        opened: list[object] = []

        async def open_it() -> None:
            opened.append(await broker.open(NAME))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(open_it)
        assert len(set(map(id, opened))) == 1
        assert len([ledger_id async for ledger_id in broker._client.ledgers()]) == 1


async def test_a_reader_starts_where_it_is_told(world: World, autojump_clock: MockClock) -> None:
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
