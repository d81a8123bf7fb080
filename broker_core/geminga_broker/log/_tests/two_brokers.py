"""Two brokers on one store, of which one stands still at a chosen call of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio
from trio.testing import wait_all_tasks_blocked

from geminga_bookie.memory import MemoryBookie
from geminga_broker.log._tests.world import NAME, Answers, World, drain, message, numbered, publish
from geminga_broker.log.api import Ack, LogError
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import CursorOptions, LogOptions, Retention, Rollover
from geminga_broker.log.snapshot_log import SnapshotLog
from geminga_broker.log.topic_log import TopicLog
from geminga_protocol.ids import EARLIEST, Position
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import SessionExpired

OPTIONS = LogOptions(
    rollover=Rollover(entries_max=3, min_s=0),
    retention=Retention(0, 0),
    cursors=CursorOptions(ledger_entries_max=2, ranges_to_store_max=1, flush_interval_s=1e6),
    retention_check_interval_s=1e6,
)
STORED = numbered(7)
OPENINGS_MAX = 6


class HaltingStore(SteppedStore):
    """One broker's session; its call number `at` waits, before it is done or after, for `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self._at: int | None = None
        self._late = False
        self.expires = False
        """Whether the session ends meanwhile: what is not done then fails, or else the next call
        does."""
        self._ended = False
        self.halted = trio.Event()
        self.go = trio.Event()

    def halt(self, at: int, *, late: bool) -> None:
        """Count calls from now on."""
        self.calls, self._at, self._late = 0, at, late

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        """See `SteppedStore.step`."""
        if self._ended:
            self._ended = False
            raise SessionExpired("the session ended")
        here = self.calls == self._at
        self.calls += 1
        if here and not self._late:
            await self._wait()
            if self.expires:
                raise SessionExpired("the session ended")
        yield
        if here and self._late:
            await self._wait()
            self._ended = self.expires

    async def _wait(self) -> None:
        self.halted.set()
        with trio.CancelScope(shield=True):
            await self.go.wait()


@dataclass
class Facts:
    """What clients were told, and what may be true besides."""

    published: list[str] = field(default_factory=lambda: list(STORED))
    acked: set[str] = field(default_factory=set)
    maybe_acked: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    maybe_removed: set[str] = field(default_factory=set)


@dataclass
class Broker:
    """One of them."""

    store: HaltingStore
    factory: ManagedLedgerFactory
    facts: Facts
    name: str = ""
    log: TopicLog | None = None

    async def open(self) -> TopicLog:
        """The log; another broker that still writes may fence it while it is loaded."""
        for left in range(OPENINGS_MAX, 0, -1):
            try:
                self.log = await self.factory.open(NAME)
                return self.log
            except LogError:
                if left == 1:
                    raise
        raise AssertionError

    async def ack(self, name: str, entries: int) -> None:
        """The next ones, in one durable write."""
        log = await self.opened()
        cursor = log.cursors[name]
        texts, positions = await unacked(log, cursor, entries)
        if name == "s":
            self.facts.maybe_acked.update(texts)
        cursor.ack([Ack(position) for position in positions])
        await cursor.persist()
        if name == "s":
            self.facts.acked.update(texts)

    async def publish(self, text: str) -> None:
        log = await self.opened()
        answers = Answers()
        log.append([(message(text), 1)], answers)
        await answers.wait(1)
        if answers.errors:
            raise answers.errors[0]
        self.facts.published.append(text)

    async def opened(self) -> TopicLog:
        """The log that it has."""
        return self.log if self.log is not None else await self.open()

    async def serve(self, prefix: str) -> None:
        """What a rightful owner's clients do: all of it must succeed."""
        log = await self.opened()
        if "s" not in log.cursors:
            await log.open_cursor("s", initial=EARLIEST)
        await self.publish(f"{prefix}0")
        for _ in range(2):
            await self.ack("s", 1)
        await log.roll()
        await self.publish(f"{prefix}1")
        name = f"made-{prefix}"
        await log.open_cursor(name, initial=EARLIEST)
        self.facts.made.add(name)
        await log.trim()
        assert self.facts.made <= set(log.cursors), "a subscription isn't known to the owner"
        assert not self.facts.removed.intersection(log.cursors)


async def unacked(
    log: TopicLog, cursor: LogCursor, entries: int
) -> tuple[list[str], list[Position]]:
    """The first entries that aren't acknowledged."""
    cursor.rewind()
    found = list(await cursor.read(entries_max=entries, bytes_max=1 << 30))
    reader = log.open_reader("texts", EARLIEST)
    reader.read_position = found[0].position if found else log.next_position(log.last_position)
    return (await drain(reader))[: len(found)], [entry.position for entry in found]


async def publish_one(broker: Broker) -> None:
    await broker.publish("old")


async def acknowledge(broker: Broker) -> None:
    await broker.ack("s", 1)


async def switch_ledgers_of_cursor(broker: Broker) -> None:
    for _ in range(3):
        await broker.ack("s", 1)


async def roll(broker: Broker) -> None:
    await (await broker.opened()).roll()
    await broker.publish("old")


async def trim(broker: Broker) -> None:
    log = await broker.opened()
    for name in ("s", "o", "p"):
        await broker.ack(name, 3)
    await log.trim()


async def create_subscription(broker: Broker) -> None:
    await (await broker.opened()).open_cursor("n", initial=EARLIEST)
    broker.facts.made.add("n")


async def delete_subscription(broker: Broker) -> None:
    log = await broker.opened()
    for name in ("p", "o"):  # without a ledger, and with one
        broker.facts.maybe_removed.add(name)
        await log.delete_cursor(name)
        broker.facts.removed.add(name)
    await log.trim()


async def set_properties(broker: Broker) -> None:
    log = await broker.opened()
    await log.set_property("a", "b")
    await log.cursors["s"].set_cursor_properties({"a": "b"})


async def keep_records(broker: Broker) -> None:
    log = await broker.opened()
    records = SnapshotLog(log.cursors["s"].writer, broker.factory.client, OPTIONS, (NAME, "s"))
    await records.append(b"record")
    await records.keep([])


async def delete_topic(broker: Broker) -> None:
    broker.facts.maybe_removed.update(["s", "o", "p", NAME])
    await (await broker.opened()).delete()
    broker.facts.removed.add(NAME)


async def unload(broker: Broker) -> None:
    await (await broker.opened()).close()


async def load(broker: Broker) -> None:
    """A broker that loads it while another one does."""
    if broker.log is not None:
        await broker.log.close()
        broker.log = None
    await broker.factory.open(NAME)
    broker.log = broker.factory.logs[NAME]
    await broker.ack("s", 1)


OPERATIONS: list[Callable[[Broker], Awaitable[None]]] = [
    publish_one,
    acknowledge,
    switch_ledgers_of_cursor,
    roll,
    trim,
    create_subscription,
    delete_subscription,
    set_properties,
    keep_records,
    delete_topic,
    unload,
    load,
]


@dataclass
class TwoBrokers:
    """A stored topic with subscriptions "s" and "o", which the old broker has open."""

    bookie: MemoryBookie = field(default_factory=MemoryBookie)
    first: HaltingStore = field(default_factory=HaltingStore)
    facts: Facts = field(default_factory=Facts)

    @asynccontextmanager
    async def broker(self, *, first: bool = False) -> AsyncIterator[Broker]:
        """One that is killed at the end."""
        store = self.first
        if not first:
            store = HaltingStore()
            store._join(self.first._rows)
        async with World(self.bookie, store).broker(OPTIONS, crash=True) as factory:
            try:
                yield Broker(store, factory, self.facts, "-old" if first else "-new")
            finally:
                store.go.set()

    async def begin(self, old: Broker) -> None:
        """Messages, of which each subscription has acknowledged the first, not in order."""
        log = await old.open()
        for name in ("s", "o", "p"):
            await log.open_cursor(name, initial=EARLIEST)
        for first in range(0, len(STORED), 3):
            await publish(log, STORED[first : first + 3])
            await wait_all_tasks_blocked()
        await old.ack("s", 1)
        await old.ack("o", 1)

    async def check(self) -> None:
        """A further broker finds what clients were told, and all ledgers that are named."""
        facts = self.facts
        async with self.broker() as last:
            log = await last.open()
            named = {each.ledger_id for each in log.context.chain}
            for cursor in log.cursors.values():
                named.update(cursor.writer.ledger_ids)
            ledgers = {each async for each in last.factory.client.ledgers()}
            assert named <= ledgers, f"deleted though named: {named - ledgers}"
            gone = NAME in facts.maybe_removed and "o" not in log.cursors
            assert gone or NAME not in facts.removed, "a deletion that was confirmed is undone"
            for name in facts.made:
                assert gone or name in log.cursors, f"{name} is gone"
            for name in ("s", "o", "p"):
                assert name not in facts.removed or name not in log.cursors
                assert name in log.cursors or name in facts.maybe_removed
            if "s" not in log.cursors:
                return
            log.cursors["s"].rewind()
            found = await drain(log.cursors["s"])
            again = facts.acked.intersection(found)
            assert not again, f"acknowledged, and come again: {again}"
            for text in facts.published:
                lost = text not in found and text not in facts.maybe_acked
                assert not lost or (gone and text in [*STORED, "old"]), f"{text} is lost"
