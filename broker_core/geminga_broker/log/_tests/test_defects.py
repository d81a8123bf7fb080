"""A defect in one log's background work doesn't affect the broker and other logs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from geminga_bookie.client.append import CLOSE_WAIT_S
from geminga_broker.log import cursor_writer
from geminga_broker.log._tests.held import HeldBookie
from geminga_broker.log._tests.world import NAME, Answers, World, drain, message, numbered, publish
from geminga_broker.log.api import Ack, LogFenced, LogReadFailed
from geminga_broker.log.catalog import LogCatalog
from geminga_broker.log.options import LogOptions, Rollover
from geminga_broker.log.reading import LogReads
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.log.trim import LogTrimmer
from geminga_protocol.ids import EARLIEST

SMALL = LogOptions(rollover=Rollover(entries_max=3, min_s=0))
OTHER = "public/default/persistent/other"


@pytest.fixture
def world() -> World:
    return World()


async def broken(*_args: object, **_options: object) -> None:
    await trio.lowlevel.checkpoint()
    raise AssertionError("a defect")


async def test_a_failed_rollover_closes_only_its_log(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    async with world.broker(SMALL) as broker:
        log, other = await broker.open(NAME), await broker.open(OTHER)
        with monkeypatch.context() as patched:
            patched.setattr(LogCatalog, "save_with_new", broken)
            await publish(log, numbered(3))
            await trio.testing.wait_all_tasks_blocked()
            answers = Answers()
            log.append([(message("lost"), 1)], answers)
            await answers.wait(1)
            await trio.sleep(1)
        assert isinstance(answers.errors[0], LogFenced)
        assert "a defect" in caplog.text
        assert await publish(other, ["x"])
        again = await broker.open(NAME)
        assert again is not log
        await publish(again, ["m3"])
        assert await drain(again.open_reader("r", EARLIEST)) == numbered(4)


async def test_failures_of_background_work_do_not_affect_other_logs(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    options = replace(SMALL, roll_check_interval_s=1, retention_check_interval_s=1)
    async with world.broker(options) as broker:
        log, other = await broker.open(NAME), await broker.open(OTHER)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        with monkeypatch.context() as patched:
            patched.setattr(TopicLog, "roll_if_due", _broken_of(log))
            patched.setattr(TopicLog, "trim_if_due", _broken_of(log))
            patched.setattr(cursor_writer, "position_infos", lambda *_: 1 / 0)
            positions = await publish(log, numbered(2))
            cursor.ack([Ack(positions[0])])
            await trio.sleep(5)
        # Not by the text, which is JSON once Spark's logging was used in the process.
        broken = [record.exc_info[0] for record in caplog.records if record.exc_info]
        assert broken.count(ZeroDivisionError) <= 5
        assert broken.count(AssertionError) >= 4
        await publish(other, numbered(2))
        # Unpersisted changes are persisted when that works again.
        cursor.ack([Ack(positions[1])])
        await cursor.persist()
    async with world.broker() as broker:
        log = await broker.open(NAME)
        assert log.cursors["s"].mark_delete == positions[1]


def _broken_of(log: TopicLog) -> object:
    def method(self: TopicLog) -> None:
        if self is log:
            raise AssertionError("a defect")

    return method


async def test_a_failed_opening_raises_in_all_waiters(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with world.broker() as broker:
        other = await broker.open(OTHER)
        with monkeypatch.context() as patched:
            patched.setattr(LogCatalog, "load", broken)
            with pytest.raises(LogReadFailed, match="a defect"):
                await broker.open(NAME)
        await publish(other, ["x"])
        await publish(await broker.open(NAME), ["y"])


@pytest.mark.parametrize("rolling", [True, False])
async def test_a_cancelled_close_releases_the_logs_memory(
    rolling: bool, autojump_clock: MockClock
) -> None:
    bookie = HeldBookie()
    world = World(bookie)
    async with world.broker(SMALL) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        cursor.on_available(lambda: None)
        positions = await publish(log, numbered(2))
        assert await drain(log.open_reader("r", EARLIEST)) == numbered(2)
        assert broker.cache.size_bytes
        cursor.ack([Ack(positions[0])])
        bookie.holding = True
        log.append([(message("late"), 1)], Answers())
        if rolling:
            # The change to the next ledger waits for the bookie, too.
            broker._spawn(partial(log.roll))
            await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(CLOSE_WAIT_S - 1) as scope:
            await log.close()
        assert scope.cancelled_caught
        if not rolling:
            assert broker.cache.size_bytes == 0
        bookie.release()
        again = await broker.open(NAME)
        assert again is not log
        assert broker.cache.size_bytes == 0
        assert list(broker.flushes.dirty) == []
        assert len(broker.cache._logs) == 1
        assert await drain(again.open_reader("r2", EARLIEST)) == [*numbered(2), "late"]


async def test_a_cancelled_trim_keeps_the_record_of_its_ledgers(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A later change of the chain would list such ledgers again."""

    async def hang(*_args: object) -> None:
        await trio.sleep_forever()

    async with world.broker(SMALL) as broker:
        log = await broker.open(NAME)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        for _ in range(3):
            await publish(log, numbered(3))
            await trio.sleep(1)
        with monkeypatch.context() as patched:
            patched.setattr(LogTrimmer, "schedule", lambda _self: None)
            patched.setattr(LogReads, "forget", hang)
            cursor.ack_cumulative(log.last_position)
            with trio.move_on_after(5) as scope:
                await log.trim()
            assert scope.cancelled_caught
        assert log.context.catalog.deleting
        assert not {ledger.ledger_id for ledger in log.context.chain} & set(
            log.context.catalog.deleting
        )
        await log.trim()
        assert not log.context.catalog.deleting
