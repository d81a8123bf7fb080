"""What topics choose of their ledgers: copies, and how often cursors are written (BR-02, BR-05)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker.log._tests.world import NAME, numbered, publish
from geminga_broker.log.cursor_writer import CursorWriter
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import Persistence
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol.ids import EARLIEST, Position
from geminga_runtime.metadata.memory import MemoryMetadataStore

WIDE = Persistence(3, 3, 2, 1.0)
WIDER = Persistence(4, 2, 1, 1.0)
TICKS_A_SECOND = 100


@asynccontextmanager
async def factory() -> AsyncIterator[ManagedLedgerFactory]:
    bookies = KnownBookies([MemoryBookie(f"127.0.0.1:{port}") for port in range(3181, 3186)])
    store = MemoryMetadataStore()
    async with ManagedLedgerFactory(BookkeeperClient(bookies, store), store) as opened:
        yield opened


async def quorums(log: TopicLog, ledger_id: int) -> tuple[int, int, int]:
    found = await log.context.client.metadata(ledger_id)
    return found.ensemble_size, found.write_quorum, found.ack_quorum


async def of_last_ledger(log: TopicLog) -> tuple[int, int, int]:
    [position] = await publish(log, ["m"])
    return await quorums(log, position.ledger_id)


async def test_a_new_log_begins_with_what_was_chosen() -> None:
    async with factory() as logs:
        log = await logs.open(NAME, persistence=WIDE)
        assert await of_last_ledger(log) == (3, 3, 2)
        other = await logs.open(f"{NAME}2")
        assert await of_last_ledger(other) == (1, 1, 1)


async def test_ledgers_that_are_made_later_follow() -> None:
    async with factory() as logs:
        log = await logs.open(NAME)
        await log.open_cursor("keeps the ledgers", initial=EARLIEST)
        [before] = await publish(log, ["m"])
        log.set_persistence(WIDER)
        assert await of_last_ledger(log) == (1, 1, 1)
        await log.roll()
        assert await of_last_ledger(log) == (4, 2, 1)
        log.set_persistence(None)
        await log.roll()
        assert await of_last_ledger(log) == (1, 1, 1)
        assert await quorums(log, before.ledger_id) == (1, 1, 1)


async def test_cursors_keep_to_the_brokers_own() -> None:
    """As Apache's broker makes them: its policy is for messages."""
    async with factory() as logs:
        log = await logs.open(NAME, persistence=WIDE)
        cursor = await log.open_cursor("s", initial=EARLIEST)
        positions = await publish(log, numbered(3))
        cursor.ack([(positions[0], (), 0)])
        await cursor.persist()
        [ledger] = cursor.writer.ledger_ids
        assert await quorums(log, ledger) == (1, 1, 1)


async def writes_in_10_s(log: TopicLog) -> int:
    """How often a cursor is written that is acknowledged on all the time."""
    cursor = await log.open_cursor("s", initial=EARLIEST)
    positions = await publish(log, numbered(10 * TICKS_A_SECOND))
    seen: set[Position | None] = set()
    for position in positions:
        cursor.ack([(position, (), 0)])
        await trio.sleep(1 / TICKS_A_SECOND)
        seen.add(cursor.writer.written)
    return len(seen) - (None in seen)


@pytest.mark.parametrize(
    ("rate", "least", "most"),
    [(0.25, 2, 3), (1.0, 9, 10), (5.0, 44, 50), (0.0, 150, 200), (-1.0, 9, 10)],
)
async def test_cursors_are_written_as_often_as_chosen(
    rate: float, least: int, most: int, autojump_clock: MockClock
) -> None:
    async with factory() as logs:
        log = await logs.open(NAME, persistence=Persistence(1, 1, 1, rate))
        assert least <= await writes_in_10_s(log) <= most


async def test_a_faster_log_leaves_the_others_alone(autojump_clock: MockClock) -> None:
    async with factory() as logs:
        await logs.open(f"{NAME}2", persistence=Persistence(1, 1, 1, 10.0))
        log = await logs.open(NAME)
        assert 9 <= await writes_in_10_s(log) <= 10


async def test_without_the_faster_log_the_timer_is_slow_again(autojump_clock: MockClock) -> None:
    async with factory() as logs:
        fast = await logs.open(NAME, persistence=Persistence(1, 1, 1, 10.0))
        await logs.open(f"{NAME}2")
        assert list(logs.flushes.hurried) == [fast]
        fast.set_persistence(None)
        assert not logs.flushes.hurried


async def test_a_log_that_is_faster_for_a_moment(autojump_clock: MockClock) -> None:
    async with factory() as logs:
        log = await logs.open(NAME)
        await trio.sleep(0.5)
        log.set_persistence(Persistence(1, 1, 1, 10.0))
        log.set_persistence(None)
        assert 9 <= await writes_in_10_s(log) <= 10


async def test_a_faster_log_that_is_closed_is_forgotten(autojump_clock: MockClock) -> None:
    async with factory() as logs:
        fast = await logs.open(NAME, persistence=Persistence(1, 1, 1, 10.0))
        await fast.close()
        await trio.sleep(1)
        assert not logs.flushes.hurried


async def test_the_fast_timer_looks_at_its_own_cursors_only(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker has many cursors that wait for the slow one."""
    looked: list[CursorWriter] = []
    flush = CursorWriter.flush
    monkeypatch.setattr(
        CursorWriter, "flush", lambda self, tick_s: (looked.append(self), flush(self, tick_s))
    )
    async with factory() as logs:
        await logs.open(f"{NAME}2", persistence=Persistence(1, 1, 1, 0.0))
        log = await logs.open(NAME)
        await writes_in_10_s(log)
        assert 9 <= len(looked) <= 11


@pytest.mark.parametrize("rate", [1e-320, 5e-324, float("nan")])
def test_odd_rates_still_write(rate: float) -> None:
    assert Persistence(1, 1, 1, rate).flush_interval_s(1.0) <= 3600
