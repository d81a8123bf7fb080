"""Topics, subscriptions and consumers of the broker in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga_protocol.encode import MessageHeader
from geminga_protocol.payload import parse_metadata
from geminga_protocol.pb.pulsar_api_pb2 import CommandSubscribe, Schema

if TYPE_CHECKING:
    from geminga._tests.fake_broker import FakeSession

LEDGER = 7


class FakeSubscription:
    """Entries by index; a leaving consumer's pending ones are redelivered."""

    def __init__(self, topic: FakeTopic, name: str, next_entry: int, durable: bool) -> None:
        self.topic = topic
        self.name = name
        self.durable = durable
        self.next_entry = next_entry
        self.acked: set[int] = set()
        self.left: dict[int, int] = {}
        self.again: list[int] = []
        self.redeliveries: dict[int, int] = {}
        self.consumers: list[FakeConsumer] = []
        self.turn = 0

    @property
    def mark_delete(self) -> int:
        entry = -1
        while entry + 1 in self.acked:
            entry += 1
        return entry

    def dispatch(self) -> None:
        while self.consumers:
            chosen = self.choose()
            if chosen is None:
                return
            entry = self.next_of()
            if entry is None:
                return
            chosen.deliver(entry)

    def choose(self) -> FakeConsumer | None:
        shared = self.consumers[0].kind in (CommandSubscribe.Shared, CommandSubscribe.Key_Shared)
        candidates = self.consumers if shared else self.consumers[:1]
        for _ in candidates:
            self.turn += 1
            consumer = candidates[self.turn % len(candidates)]
            if consumer.permits > 0:
                return consumer
        return None

    def next_of(self) -> int | None:
        while self.again:
            entry = self.again.pop(0)
            if entry not in self.acked:
                return entry
        while self.next_entry < len(self.topic.entries):
            self.next_entry += 1
            if self.next_entry - 1 not in self.acked:
                return self.next_entry - 1
        return None

    def give_back(self, entries: list[int]) -> None:
        for entry in entries:
            self.redeliveries[entry] = self.redeliveries.get(entry, 0) + 1
        self.again = sorted({*self.again, *entries})

    def move(self, entry: int) -> None:
        self.acked = set(range(entry))
        self.left.clear()
        self.again.clear()
        self.next_entry = entry


class FakeConsumer:
    def __init__(
        self, session: FakeSession, subscription: FakeSubscription, command: CommandSubscribe
    ) -> None:
        self.session = session
        self.subscription = subscription
        self.id = command.consumer_id
        self.kind = command.subType
        self.permits = 0
        self.permits_given = 0
        self.messages_sent = 0
        self.pending: dict[int, None] = {}
        self.epoch = command.consumer_epoch

    def deliver(self, entry: int) -> None:
        payload = self.subscription.topic.entries[entry]
        count = parse_metadata(memoryview(payload)).num_messages_in_batch
        bits = self.subscription.left.get(entry)
        if bits is not None:
            count = bits.bit_count()
        self.permits -= count
        self.messages_sent += count
        self.pending[entry] = None
        shared = self.kind in (CommandSubscribe.Shared, CommandSubscribe.Key_Shared)
        head = MessageHeader(self.id, self.subscription.topic.partition).build(
            LEDGER,
            entry,
            len(payload),
            self.subscription.redeliveries.get(entry, 0) if shared else 0,
            () if bits is None else (bits,),
            None if shared else self.epoch,
        )
        self.session.stream.write(head, payload)

    def leave(self) -> None:
        self.subscription.consumers.remove(self)
        self.session.consumers.pop(self.id, None)
        self.subscription.give_back(list(self.pending))
        self.subscription.dispatch()


class FakeTopic:
    def __init__(self, name: str) -> None:
        self.name = name
        tail = name.rpartition("-partition-")
        self.partition = int(tail[2]) if tail[1] else -1
        self.entries: list[bytes] = []
        self.subscriptions: dict[str, FakeSubscription] = {}
        self.producers: dict[str, FakeSession] = {}
        self.last_sequence_ids: dict[str, int] = {}
        self.schemas: list[Schema] = []
