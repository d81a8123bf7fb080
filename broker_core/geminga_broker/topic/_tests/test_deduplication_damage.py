"""A topic loads despite damage to deduplication's snapshots or the entries to replay."""

from __future__ import annotations

import logging

import pytest
import trio.testing
from trio.testing import MockClock

from geminga_broker._tests.fake_client import FakeConnection, item, producer_request
from geminga_broker.log._tests.world import World
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.reserved_cursors import DEDUPLICATION
from geminga_broker.topic._tests.test_truncate import topic_of


async def test_a_damaged_snapshot_of_sequence_ids(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The one before counts, and more is replayed."""
    world = World()
    async with topic_of(world, crash=True) as topic:
        producer = await topic.add_producer(producer_request(FakeConnection(), "p"))
        assert topic.deduplication is not None
        cursor = topic.log.cursors[DEDUPLICATION]
        assert isinstance(cursor, LogCursor)
        for n in range(9):
            producer.publish([item(n)])
            await trio.testing.wait_all_tasks_blocked(0.01)
            topic.deduplication.snapshot()
            await cursor.persist()
        store = cursor.writer._store
        assert store is not None
        ledger_id = store._ledger_id
    assert len(world.bookie._ledgers[ledger_id].entries) >= 8
    world.damage(ledger_id, *sorted(world.bookie._ledgers[ledger_id].entries)[-3:])
    with caplog.at_level(logging.WARNING):
        async with topic_of(world) as topic:
            assert topic.deduplication is not None
            assert topic.deduplication.stored("p") == 8
            assert "damaged" in caplog.text


@pytest.mark.parametrize("damaged", [[3], [0, 1, 8], [2, 3, 4, 5]])
async def test_damaged_messages_are_left_out_of_the_replay(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, damaged: list[int]
) -> None:
    world = World()
    async with topic_of(world, crash=True) as topic:
        producer = await topic.add_producer(producer_request(FakeConnection(), "p"))
        producer.publish([item(n) for n in range(10)])
        await trio.testing.wait_all_tasks_blocked(0.01)
        await topic.log.roll()
        ledger_id = topic.log.statistics().ledgers[0].ledger_id
    world.damage(ledger_id, *damaged)
    with caplog.at_level(logging.WARNING):
        async with topic_of(world) as topic:
            assert topic.deduplication is not None
            assert topic.deduplication.stored("p") == 9
            assert f"{len(damaged)} entries" in caplog.text
