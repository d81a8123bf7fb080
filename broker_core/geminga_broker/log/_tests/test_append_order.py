"""What is appended is answered, and stored, in the order in which it came."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_bookie.errors import StorageFailed
from geminga_broker.log._tests.held import HeldBookie
from geminga_broker.log._tests.world import NAME, World, drain, message, publish
from geminga_broker.log.api import AppendDone, LogError, LogWriteFailed
from geminga_broker.log.options import LogOptions, Retention
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol.ids import EARLIEST, Position

KEEP = LogOptions(retention=Retention(-1, -1))

End = tuple[str, type[LogError] | None]


@pytest.fixture
def bookie() -> HeldBookie:
    return HeldBookie()


def appender(log: TopicLog, ends: list[End]) -> Callable[[str], None]:
    """Appends a message and notes how, and when, it is answered."""

    def append(text: str) -> None:
        def done(first: Position, count: int, error: LogError | None) -> None:
            ends.append((text, None if error is None else type(error)))

        taken: AppendDone = done
        log.append([(message(text), 1)], taken)

    return append


async def test_nothing_is_stored_that_came_after_what_was_refused(
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
