"""The log as topics use it, over storage in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from geminga_bookie.errors import BookieReadOnly
from geminga_bookie.memory import MemoryBookie
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
from geminga_broker.log.api import (
    Ack,
    CursorNotFound,
    LogClosed,
    LogFenced,
    LogNotFound,
    LogTerminated,
    LogWriteFailed,
)
from geminga_broker.log.options import CursorOptions, LogOptions, Retention, Rollover
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol.ids import EARLIEST, LATEST, Position

SMALL = LogOptions(rollover=Rollover(entries_max=3, min_s=0))
KEEP = Retention(-1, -1)


@pytest.fixture
def world() -> World:
    return World()


async def test_appended_entries_are_read_acknowledged_and_survive_a_restart(
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


async def test_rollover_makes_a_chain_and_trimming_deletes_consumed_ledgers(
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
        left = [ledger_id async for ledger_id in broker.client.ledgers()]
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


async def test_retention_ends_by_the_clock(world: World, autojump_clock: MockClock) -> None:
    """Without an acknowledgement, a rollover or a publish."""
    start_s = trio.current_time()
    options = replace(
        SMALL,
        retention=Retention(60, -1),
        now_ms=lambda: 1 + int((trio.current_time() - start_s) * 1000),
    )
    async with world.broker(options) as broker:
        log = await broker.open(NAME)
        await publish(log, numbered(3))
        await trio.sleep(50)
        assert log.statistics().entries == 3
        await trio.sleep(200)
        assert log.statistics().entries == 0


async def test_a_search_by_time_skips_unreadable_entries(world: World) -> None:
    async with world.broker(LogOptions()) as broker:
        log = await broker.open(NAME)
        answers = Answers()
        log.append([(message("a", time_ms=10), 1), (b"\xff\xff\xff\xff", 1)], answers)
        log.append([(message("b", time_ms=30), 1)], answers)
        await answers.wait(3)
        assert await log.find_by_time(5) == answers.positions[0]
        assert await log.find_by_time(20) == answers.positions[1]


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


async def test_a_full_disk_fails_publishes_and_not_reads(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker(LogOptions(retention=KEEP)) as broker:
        log = await broker.open(NAME)
        await publish(log, numbered(5))
        with pytest.MonkeyPatch.context() as full:
            full.setattr(MemoryBookie, "add", refuse_add)
            world.store.set_available(False)
            await publish_in_vain(log)
            assert await drain(log.open_reader("r", EARLIEST)) == numbered(5)
            world.store.set_available(True)
            await publish_in_vain(log)
        # Not every failed publish cost a ledger: one is tried each second.
        made, _ = await world.store.put("/ledgers/idgen/ID-", b"", sequential=True)
        assert int(made[-10:]) < 9
        await trio.sleep(1)
        await publish(log, ["after"])
        assert await drain(log.open_reader("q", EARLIEST)) == [*numbered(5), "after"]


def refuse_add(
    bookie: MemoryBookie,
    ledger_id: int,
    master_key: bytes,
    first: int,
    packets: Sequence[bytes],
    done: Callable[[int, int, BookieReadOnly], None],
) -> None:
    """As a bookie with a full disk."""
    done(first, len(packets), BookieReadOnly("disk full"))


async def publish_in_vain(log: TopicLog) -> None:
    for _ in range(20):
        answers = Answers()
        log.append([(message("x"), 1)], answers)
        await trio.sleep(0.3)
        assert [type(error) for error in answers.errors] == [LogWriteFailed]


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
        # The same broker may own it again.
        again = await old.open(NAME)
        assert again is not log
        assert await drain(again.open_reader("r", EARLIEST)) == ["a", "d"]


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
        assert [ledger_id async for ledger_id in broker.client.ledgers()] == []
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
        assert len([ledger_id async for ledger_id in broker.client.ledgers()]) == 1


async def test_properties_outlive_the_broker(world: World, autojump_clock: MockClock) -> None:
    async with world.broker() as broker:
        log = await broker.open(NAME)
        await log.open_cursor("s", initial=EARLIEST)
        await publish(log, numbered(2))
        await log.set_property("pulsar.topic.epoch", "3")
        await log.set_property("pulsar.topic.epoch", "4")
        await log.roll()
        assert log.properties["pulsar.topic.epoch"] == "4"
    async with world.broker() as broker:
        log = await broker.open(NAME)
        assert log.properties["pulsar.topic.epoch"] == "4"
        cursor = await log.open_cursor("s", initial=EARLIEST)
        assert await drain(cursor) == numbered(2)


async def test_a_property_is_refused_if_another_broker_has_the_log(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.broker() as first, world.broker() as second:
        log = await first.open(NAME)
        await (await second.open(NAME)).set_property("a", "2")
        with pytest.raises(LogFenced):
            await log.set_property("a", "1")
        await log.close()
        with pytest.raises(LogClosed):
            await log.set_property("a", "1")
