"""Appends complete, and are stored, in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_bookie._tests.asked_bookie import Add, AskedBookie, nobody
from geminga_bookie.errors import StorageFailed
from geminga_broker.log._tests.held import HeldBookie
from geminga_broker.log._tests.world import NAME, World, drain, message, publish
from geminga_broker.log.api import (
    AppendDone,
    LogClosed,
    LogError,
    LogFenced,
    LogTerminated,
    LogWriteFailed,
)
from geminga_broker.log.options import LogOptions, Retention
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol.ids import EARLIEST, Position

KEEP = LogOptions(retention=Retention(-1, -1))

End = tuple[str, type[LogError] | None]


@pytest.fixture
def bookie() -> HeldBookie:
    return HeldBookie()


def appender(log: TopicLog, ends: list[End]) -> Callable[[str], None]:
    """Appends messages and records the order and results of their completion."""

    def append(text: str) -> None:
        def done(first: Position, count: int, error: LogError | None) -> None:
            ends.append((text, None if error is None else type(error)))

        taken: AppendDone = done
        log.append([(message(text), 1)], taken)

    return append


async def test_appends_after_a_refused_one_are_refused_too(
    bookie: HeldBookie, autojump_clock: MockClock
) -> None:
    async with World(bookie).broker(KEEP) as broker:
        log = await broker.open(NAME)
        await publish(log, ["4"])
        ends: list[End] = []
        append = appender(log, ends)
        bookie.holding = True
        append("5")
        append("6")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.roll)
            await wait_all_tasks_blocked()
            append("7")
            append("8")
            bookie.release(StorageFailed("disk"))
        assert ends == [(text, LogWriteFailed) for text in "5678"]
        # Its producer sends all of it again.
        await publish(log, list("5678"))
        assert await drain(log.open_reader("r", EARLIEST)) == list("45678")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("refusal", [LogTerminated, LogClosed])
async def test_late_appends_are_refused_in_order(
    bookie: HeldBookie, autojump_clock: MockClock, refusal: type[LogError], fails: bool
) -> None:
    async with World(bookie).broker(KEEP) as broker:
        log = await broker.open(NAME)
        ends: list[End] = []
        append = appender(log, ends)
        bookie.holding = True
        append("in time")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.terminate if refusal is LogTerminated else log.close)
            await wait_all_tasks_blocked()
            append("too late")
            append("too late too")
            assert ends == []
            bookie.release(StorageFailed("disk") if fails else None)
        append("afterwards")
    assert [text for text, _ in ends] == ["in time", "too late", "too late too", "afterwards"]
    errors = [error for _, error in ends]
    assert errors[0] is (LogWriteFailed if fails else None)
    assert errors[1:] == [LogWriteFailed if fails else refusal] * 2 + [refusal]


class GroupingBookie(AskedBookie):
    """Completes the adds that `grouping` held back with one call, as a group commit does."""

    def __init__(self) -> None:
        super().__init__()
        self.grouping = False
        self.held: list[Add] = []

    def take(self, add: Add) -> None:
        if self.grouping:
            self.held.append(add)
            add = replace(add, done=nobody)  # the group answers for it
        self.store(add)

    def release(self) -> None:
        first = self.held[0]
        first.done(first.first_entry_id, sum(each.count for each in self.held), None)


async def test_each_append_completes_once_if_the_log_is_lost() -> None:
    bookie = GroupingBookie()
    async with World(bookie).broker(KEEP) as broker:
        log = await broker.open(NAME)
        answers: list[tuple[int, type[LogError] | None]] = []

        def done(_first: Position, count: int, error: LogError | None) -> None:
            answers.append((count, None if error is None else type(error)))
            if len(answers) == 1:
                log.context.fence("another broker has it")
                log.append([(message("late"), 1)], done)

        bookie.grouping = True
        for texts in ("12", "345", "6"):
            log.append([(message(text), 1) for text in texts], done)
        bookie.release()
        assert answers == [(2, None), (3, LogFenced), (1, LogFenced), (1, LogFenced)]


async def test_readers_are_woken_though_an_answer_fails(
    bookie: HeldBookie, autojump_clock: MockClock
) -> None:
    async with World(bookie).broker(KEEP) as broker:
        log = await broker.open(NAME)
        reader = log.open_reader("r", EARLIEST)
        woken: list[str] = []
        reader.on_available(lambda: woken.append("r"))

        def done(first: Position, count: int, error: LogError | None) -> None:
            raise RuntimeError("planted")

        log.append([(message("1"), 1)], done)
        await wait_all_tasks_blocked()
        assert woken == ["r"]
        assert await drain(reader) == ["1"]
