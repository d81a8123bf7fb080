"""A broker that dies, or storage that fails, at any step of a compaction leaves the old result or
the new one, and no ledger that nobody names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import pytest
import trio
from trio.testing import MockClock

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_broker.compaction._tests.world import (
    KeyValue,
    append,
    batch,
    compact,
    open_topic,
    read_all,
    single,
)
from geminga_broker.compaction.outcome import Status
from geminga_broker.log._tests.world import World
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.reserved_cursors import COMPACTION
from geminga_broker.log.unnamed import clean, log_ledgers
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST
from geminga_runtime.metadata.api import StoreUnavailable
from geminga_runtime.metadata.memory import MemoryMetadataStore

P = ParamSpec("P")
R = TypeVar("R")

FIRST = [single("a", b"1"), batch([("b", b"2"), ("a", b"3")]), single("c", b"4")]
SECOND = [single("a", b"5"), single("c", b""), single("d", b"6")]
OLD = [("b", b"2"), ("a", b"3"), ("c", b"4"), ("a", b"5"), ("c", b""), ("d", b"6")]
WHOLE_LOG = [("a", b"1"), *OLD]
NEW = [("b", b"2"), ("a", b"5"), ("d", b"6")]


class Faults:
    """Storage does that many steps; at the next one `act` is called, before or after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.act: Callable[[], None] = lambda: None
        self.afterwards = False
        for kind, names in (
            (MemoryMetadataStore, ("put", "delete")),
            (BookkeeperClient, ("create", "open")),
            (LedgerMetadataStore, ("delete",)),
        ):
            for name in names:
                monkeypatch.setattr(kind, name, self._counted(getattr(kind, name)))

    def _counted(self, run: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        async def counted(*args: P.args, **kwargs: P.kwargs) -> R:
            due = self.left == 0
            if self.left is not None:
                self.left -= 1
            if due and not self.afterwards:
                await self._fail()
            result = await run(*args, **kwargs)
            if due and self.afterwards:
                await self._fail()
            return result

        return counted

    async def _fail(self) -> None:
        self.act()
        await trio.lowlevel.checkpoint()

    @property
    def hit(self) -> bool:
        """Whether it came to that step."""
        return self.left is not None and self.left < 0


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


async def ledgers_of(topic: PersistentTopic) -> tuple[set[int], int | None]:
    """All compacted ledgers that there are, and the one that counts."""
    client = topic.log.context.client
    found = set()
    async for ledger_id in client.ledgers():
        about = (await client.metadata(ledger_id)).custom_metadata
        if about.get("component") == b"compacted-ledger":
            found.add(ledger_id)
    return found, topic.log.cursors[COMPACTION].properties.get("CompactedTopicLedger")


async def prepare(world: World) -> None:
    """A topic with a result, and later messages; a subscription retains all."""
    async with open_topic(world) as topic:
        await topic.create_subscription("holds", EARLIEST)
        await append(topic, FIRST)
        await compact(topic)
        await append(topic, SECOND)


async def check(world: World, *expected: list[KeyValue]) -> None:
    """After a reload readers see one of these; a new compaction succeeds and leaves one ledger."""
    async with open_topic(world) as topic:
        await topic.compaction.recover()
        assert await read_all(topic) in expected
        await trio.sleep(1)
        # As after `UNNAMED_S_MAX`.
        await clean(topic.log.context.client, world.store, log_ledgers(world.store), 1 << 62)
        found, named = await ledgers_of(topic)
        assert found == {named}
        await compact(topic)
        assert topic.compaction.outcome.status is Status.SUCCESS
        assert await read_all(topic) == NEW
        found, named = await ledgers_of(topic)
        assert found == {named}


@pytest.mark.parametrize("afterwards", [False, True])
async def test_a_broker_that_dies_at_any_step(
    faults: Faults, autojump_clock: MockClock, afterwards: bool
) -> None:
    hits = 0
    for step in range(100):
        world = World()
        await prepare(world)
        faults.afterwards = afterwards
        with trio.CancelScope() as broker:
            faults.act = broker.cancel
            async with open_topic(world, crash=True) as topic:
                faults.left = step
                await compact(topic)
                done = not faults.hit
                faults.left = None
        faults.left = None
        if broker.cancelled_caught:
            hits += 1
            await check(world, OLD, NEW)
        else:
            assert done
            break
    assert hits >= 6


@pytest.mark.parametrize("afterwards", [False, True])
async def test_storage_that_fails_at_any_step(
    faults: Faults, autojump_clock: MockClock, afterwards: bool
) -> None:
    def fail() -> None:
        raise StoreUnavailable("no metadata")

    failures = 0
    for step in range(100):
        world = World()
        await prepare(world)
        faults.act, faults.afterwards = fail, afterwards
        async with open_topic(world, crash=step % 2 == 0) as topic:
            faults.left = step
            await compact(topic)
            hit = faults.hit
            faults.left = None
            failures += topic.compaction.outcome.status is Status.ERROR
            assert await read_all(topic) in (OLD, NEW)
        await check(world, OLD, NEW)
        if not hit:
            break
    assert failures >= 4


async def test_trimming_waits_until_the_result_is_stored(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    world = World()
    async with open_topic(world, crash=True) as topic:
        await append(topic, FIRST)
        await topic.log.roll()
        await compact_failing(topic, monkeypatch)
        await topic.log.trim()
    async with open_topic(world) as topic:
        assert await read_all(topic) == [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4")]


async def compact_failing(topic: PersistentTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose result can't be stored in the cursor."""
    cursor = await topic.compaction.ensure_cursor()

    async def fail() -> None:
        raise StoreUnavailable("no metadata")

    with monkeypatch.context() as patched:
        patched.setattr(cursor, "persist", fail)
        await compact(topic)
    assert topic.compaction.outcome.status is Status.ERROR


async def test_a_run_that_is_stopped_leaves_nothing(autojump_clock: MockClock) -> None:
    world = World()
    await prepare(world)
    async with open_topic(world) as topic:
        topic.compaction.trigger()
        for _ in range(12):
            await trio.lowlevel.checkpoint()
        assert topic.compaction.running
        await topic.close()
        assert not topic.compaction.running
        assert topic.compaction.outcome.status is Status.ERROR
    await check(world, OLD)


async def test_a_deleted_topic_leaves_no_ledger(autojump_clock: MockClock) -> None:
    world = World()
    await prepare(world)
    async with open_topic(world) as topic:
        client = topic.log.context.client
        topic.compaction.trigger()
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        await topic.delete(force=True)
        assert [each async for each in client.ledgers()] == []


async def test_deleting_the_subscription_restores_plain_reads(autojump_clock: MockClock) -> None:
    world = World()
    await prepare(world)
    async with open_topic(world) as topic:
        assert await read_all(topic) == OLD
        client = topic.log.context.client
        await topic.delete_subscription(COMPACTION)
        assert topic.compaction.horizon is None
        assert await read_all(topic) == WHOLE_LOG
        async for ledger_id in client.ledgers():
            about = (await client.metadata(ledger_id)).custom_metadata
            assert about["component"] == b"managed-ledger"
        await compact(topic)
        assert await read_all(topic) == NEW


async def test_truncating_also_deletes_compacted_messages(autojump_clock: MockClock) -> None:
    world = World()
    await prepare(world)
    async with open_topic(world) as topic:
        await topic.truncate()
        assert await read_all(topic) == []
        await append(topic, [single("z", b"9")])
        assert await read_all(topic) == [("z", b"9")]
    async with open_topic(world) as topic:
        assert await read_all(topic) == [("z", b"9")]


@pytest.mark.parametrize("afterwards", [False, True])
async def test_a_killed_truncation_restores_no_message(
    faults: Faults, autojump_clock: MockClock, afterwards: bool
) -> None:
    """Either all is as before, or only the log's rest is left. Never compacted
    messages without the newer ones.
    """
    hits = 0
    for step in range(100):
        world = World()
        await prepare(world)
        faults.afterwards = afterwards
        with trio.CancelScope() as broker:
            faults.act = broker.cancel
            async with open_topic(world, crash=True) as topic:
                faults.left = step
                await topic.truncate()
                faults.left = None
        faults.left = None
        if not broker.cancelled_caught:
            break
        hits += 1
        async with open_topic(world) as topic:
            cursor = topic.log.cursors[COMPACTION]
            assert isinstance(cursor, LogCursor)
            emptied = "CompactedTopicLedger" not in cursor.properties
            await topic.compaction.recover()
            found = await read_all(topic)
            assert found in (([], WHOLE_LOG) if emptied else (OLD,)), step
            await trio.sleep(1)
            ledgers, named = await ledgers_of(topic)
            assert ledgers == (set() if named is None else {named})
    assert hits >= 4
