"""Damage to compacted ledgers, or to the cursor that names them, hides no intact message."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from geminga_broker.compaction._tests.test_crashes import NEW, SECOND, ledgers_of
from geminga_broker.compaction._tests.world import (
    append,
    compact,
    messages_of,
    open_topic,
    read_all,
    single,
)
from geminga_broker.log._tests.world import World
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.reserved_cursors import COMPACTION
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST

KEYS = 12


async def compacted(world: World) -> int:
    """A topic with that many compacted keys and one later message; the compacted ledger."""
    async with open_topic(world) as topic:
        for n in range(KEYS):
            await append(topic, [single(f"k{n}", b"v", time_ms=1000 + n)])
        await compact(topic)
        await topic.log.roll()
        await append(topic, [single("behind", b"w", time_ms=5000)])
        found, named = await ledgers_of(topic)
        assert found == {named}
        assert named is not None
        return named


@pytest.mark.parametrize("damaged", [[0], [5], [11], [0, 1, 2], [4, 6, 10, 11], list(range(12))])
async def test_damaged_entries_are_skipped(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, damaged: list[int]
) -> None:
    world = World()
    world.damage(await compacted(world), *damaged)
    left = [f"k{n}" for n in range(KEYS) if n not in damaged]
    with caplog.at_level(logging.WARNING):
        async with open_topic(world) as topic:
            assert [key for key, _ in await read_all(topic)] == [*left, "behind"]
            assert "damaged" in caplog.text
            last = await topic.compaction.last_entry()
            assert (last is not None) == bool(left)
            if last is not None:
                assert messages_of(last.data)[0][0] == left[-1]
            for n in range(KEYS):
                position = await topic.compaction.find_by_time(1000 + n)
                found = await topic.compaction.read(position, entries_max=1, bytes_max=1)
                keys = [messages_of(entry.data)[0][0] for entry in found]
                assert keys == [f"k{m}" for m in range(n, KEYS) if m not in damaged][:1]
            await compact(topic)
            assert [key for key, _ in await read_all(topic)] == [*left, "behind"]


async def loaded(topic: PersistentTopic) -> PersistentTopic:
    await topic.compaction.recover()
    return topic


@pytest.mark.parametrize("damaged", [1, 100])
async def test_a_damaged_cursor_does_not_lose_the_compacted_ledger(
    autojump_clock: MockClock, damaged: int
) -> None:
    """Its state before names a ledger that was deleted, or none at all; the one that is listed
    counts.
    """
    world = World()
    async with open_topic(world, crash=True) as topic:
        await append(topic, [single("b", b"2"), single("a", b"3"), single("c", b"4")])
        await compact(topic)
        await append(topic, SECOND)
        await compact(topic)
        await topic.log.roll()
        await topic.log.trim()
        cursor = topic.log.cursors[COMPACTION]
        assert isinstance(cursor, LogCursor)
        store = cursor.writer._store
        assert store is not None
        ledger_id = store._ledger_id
        _, named = await ledgers_of(topic)
    entries = sorted(world.bookie._ledgers[ledger_id].entries)
    world.damage(ledger_id, *entries[-damaged:])
    for _ in range(2):
        async with open_topic(world) as topic:
            await loaded(topic)
            assert await read_all(topic) == NEW
            await trio.sleep(1)
            assert await ledgers_of(topic) == ({named}, named)
    async with open_topic(world) as topic:
        await loaded(topic)
        await append(topic, [single("e", b"9")])
        await compact(topic)
        assert await read_all(topic) == [*NEW, ("e", b"9")]


async def test_an_unfinished_ledger_is_no_result(autojump_clock: MockClock) -> None:
    world = World()
    async with open_topic(world, crash=True) as topic:
        await topic.create_subscription("holds", EARLIEST)
        await append(topic, SECOND)
        cursor = await topic.compaction.ensure_cursor()
        assert isinstance(cursor, LogCursor)
        await topic.compaction._ledgers(cursor).create(topic.log.last_position, -1)
    async with open_topic(world) as topic:
        await loaded(topic)
        assert topic.compaction.horizon is None
        assert await read_all(topic) == [("a", b"5"), ("c", b""), ("d", b"6")]
        await trio.sleep(1)
        assert (await ledgers_of(topic))[0] == set()
