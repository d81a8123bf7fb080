"""Checks inside the broker while random clients use it: at each dispatch and each ack."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import pytest
import trio

from geminga_bookie.errors import StorageFailed
from geminga_bookie.memory import MemoryBookie
from geminga_broker._tests.chaos import BATCH_MAX, Books, SubType
from geminga_broker.log.api import Entry
from geminga_broker.log.context import LogContext
from geminga_broker.log.entry import LogEntry
from geminga_broker.log.reading import LogReads
from geminga_broker.session import session as sessions
from geminga_broker.subscription import pump
from geminga_broker.subscription.consumer import INDIVIDUAL_ACK, Consumer
from geminga_broker.subscription.strategies.key_shared import KeyShared
from geminga_broker.subscription.subscription import Subscription
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_protocol.ids import Position

CONSUMER_UNACKED_MAX = 40


class Audit:
    """Checks each dispatch as it happens, over all consumers of a subscription."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.sends = 0
        self.failures: list[str] = []
        self._keys: dict[tuple[str, Position], str] = {}
        self._delivered: dict[Subscription, tuple[set[Position], dict[str, Position]]] = {}

    def sent(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        self.sends += 1
        check_consumer(consumer)
        owner = consumer.subscription
        if consumer.sub_type == SubType.Key_Shared and isinstance(owner, Subscription):
            self._check_keys(owner, consumer, entries)

    def _check_keys(
        self, subscription: Subscription, consumer: Consumer, entries: Sequence[Entry]
    ) -> None:
        topic = subscription.topic_name
        seen, highest = self._delivered.setdefault(subscription, (set(), {}))
        for entry in entries:
            key = self._keys[topic, entry.position] = entry.metadata.partition_key
            if entry.position not in seen:
                seen.add(entry.position)
                last = highest.get(key)
                assert last is None or last < entry.position, f"{entry.position} after {last}"
                highest[key] = entry.position
        for other in subscription.consumers:
            if other is not consumer:
                # Entries that the same step gave to others, not sent yet, have no key here.
                theirs = {self._keys.get((topic, position)) for position in other.pending}
                mine = {entry.metadata.partition_key for entry in entries}
                assert not theirs & mine, "a key at two consumers at once"

    def seeked(self, subscription: Subscription) -> None:
        self._delivered.pop(subscription, None)
        self.books.seeked(
            subscription.topic_name, subscription.name, subscription.cursor.mark_delete
        )


def check_consumer(consumer: Consumer) -> None:
    assert consumer.given == consumer.sent + consumer.permits + consumer.held
    assert consumer.blocked or not consumer.held
    if consumer.sub_type in INDIVIDUAL_ACK and isinstance(consumer.subscription, Subscription):
        assert consumer.unacked == sum(consumer.pending.values())
        assert all(count > 0 for count in consumer.pending.values())
        assert consumer.unacked < CONSUMER_UNACKED_MAX + BATCH_MAX
    else:
        assert not consumer.pending
        assert not consumer.unacked


def check_subscription(subscription: Subscription) -> None:
    machine = subscription.machine
    deleted = subscription.cursor.is_deleted
    assert subscription.backlog_entries() >= 0
    for consumer in subscription.consumers:
        check_consumer(consumer)
        assert not [p for p in consumer.pending if deleted(p)], "acknowledged, yet pending"
    if isinstance(machine, TrackedMachine):
        members = machine.state.members
        held = {p: c for c in members for p in c.pending}
        assert len(held) == sum(len(c.pending) for c in members), "held twice"
        assert not [p for p in held if p in machine.strategy.replay], "held and to be sent again"
        assert not [p for p in machine.holdings.counts if deleted(p)], "counted for ever"
        if isinstance(machine.strategy, KeyShared):
            check_holders(machine.strategy, held)


def check_holders(strategy: KeyShared[Consumer], held: dict[Position, Consumer]) -> None:
    holders = strategy.draining
    assert held.keys() == holders._hashes.keys()
    assert len(holders._holders) + sum(holders._more.values()) == len(held)
    assert all(holders.get(holders.hash_of(p)) is consumer for p, consumer in held.items())


def install(monkeypatch: pytest.MonkeyPatch, books: Books) -> Audit:
    """Check whatever happens; reads are slow, and the cache forgets, now and then."""
    found = Audit(books)
    send, seek, take = Consumer.send, Subscription.seek, Subscription.acknowledge

    def audited_send(self: Consumer, entries: Sequence[Entry], *more: object) -> int:
        size = send(self, entries, *more)
        found.sent(self, entries)
        return size

    async def audited_seek(self: Subscription, position: Position, ack_set: object = ()) -> None:
        try:
            await seek(self, position, ack_set)
        finally:
            found.seeked(self)

    def audited_take(self: Subscription, *details: object) -> None:
        take(self, *details)
        check_subscription(self)

    def failed(message: str, *details: object) -> None:
        found.failures.append(traceback.format_exc())

    monkeypatch.setattr(pump._log, "exception", failed)
    monkeypatch.setattr(sessions._log, "exception", failed)

    start, fetch = LogReads.__init__, LogReads._fetch

    def forgetful(self: LogReads, context: LogContext) -> None:
        start(self, context)
        cached = self.cached
        self.cached = lambda *run: cached(*run) if found.books.rng.random() < 0.5 else []

    async def slow_fetch(self: LogReads, *details: object) -> list[LogEntry]:
        await trio.sleep(found.books.rng.random() * 0.3)
        return await fetch(self, *details)

    complete = MemoryBookie._complete

    def later_complete(self: MemoryBookie) -> None:
        trio.lowlevel.spawn_system_task(completed_later, self)

    async def completed_later(bookie: MemoryBookie) -> None:
        await trio.sleep(found.books.rng.random() * 0.3)
        if found.books.rng.random() < found.books.failing:
            bookie._completed = [
                (done, first, count, error or StorageFailed("by the test"))
                for done, first, count, error in bookie._completed
            ]
        complete(bookie)

    monkeypatch.setattr(MemoryBookie, "_complete", later_complete)
    monkeypatch.setattr(LogReads, "__init__", forgetful)
    monkeypatch.setattr(LogReads, "_fetch", slow_fetch)
    monkeypatch.setattr(Consumer, "send", audited_send)
    monkeypatch.setattr(Subscription, "seek", audited_seek)
    monkeypatch.setattr(Subscription, "acknowledge", audited_take)
    return found
