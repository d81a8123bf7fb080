"""What was sent, confirmed, received and stored, and what must hold of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from geminga.message import Message
from geminga.options import ConsumerType
from geminga_protocol.message_id import MessageId

from .chance import EventLog
from .plan import Plan, ProducerPlan, SubscriptionPlan

Place = tuple[int, int, int]
"""Ledger, entry, batch index."""


@dataclass(slots=True)
class Sent:
    """A message that a producer was asked to send."""

    producer: ProducerPlan
    life: int
    number: int
    data: bytes
    key: str | None
    confirmed: MessageId | None = None
    failed: str | None = None


@dataclass(slots=True)
class Received:
    """What the consumers of a subscription got."""

    plan: SubscriptionPlan
    contents: set[bytes] = field(default_factory=set)
    firsts: dict[str, list[tuple[Place, str | None]]] = field(default_factory=dict)
    """By topic or partition: places in the order of their first delivery, with keys."""
    seen: set[tuple[str, Place]] = field(default_factory=set)
    seeks: int = 0
    deliveries: int = 0


class Violation(Exception):
    """Something that must hold doesn't."""


class Books:
    """Kept by the workload, read by the checks."""

    def __init__(self, plan: Plan, log: EventLog) -> None:
        self.plan = plan
        self.log = log
        self.sent: dict[bytes, Sent] = {}
        self.received = {each.name: Received(each) for each in plan.subscriptions}
        self.violations: list[str] = []
        self.draining = False
        self.on_violation: Callable[[], None] | None = None

    def violate(self, text: str) -> None:
        self.log.add(f"VIOLATION {text}")
        self.violations.append(text)
        if self.on_violation is not None:
            self.on_violation()

    # ---- by the workload ----

    def sends(self, sent: Sent) -> None:
        self.sent[content_of(sent.data)] = sent

    def settled(self, sent: Sent, message_id: MessageId | None, error: str | None) -> None:
        sent.confirmed, sent.failed = message_id, error
        self.log.add(f"{sent.data[:12]!r} confirmed {message_id} {error}")

    def delivered(self, plan: SubscriptionPlan, consumer: str, message: Message) -> None:
        books = self.received[plan.name]
        data = message.data
        content = content_of(data)
        place = place_of(message.message_id)
        topic = message.topic_name
        self.log.add(f"{consumer} got {content!r} {place} {topic[-3:]}")
        books.deliveries += 1
        known = self.sent.get(content)
        if known is None or known.data != data or known.key != message.partition_key:
            self.violate(f"{consumer} received what was never sent: {data[:40]!r}")
            return
        books.contents.add(content)
        if (topic, place) not in books.seen:
            books.seen.add((topic, place))
            books.firsts.setdefault(topic, []).append((place, known.key))

    # ---- the checks ----

    def missing(self, plan: SubscriptionPlan) -> list[bytes]:
        """Confirmed messages that the subscription has not delivered."""
        got = self.received[plan.name].contents
        return [
            content
            for content, sent in self.sent.items()
            if sent.producer.topic is plan.topic and sent.confirmed and content not in got
        ]

    def check_order(self) -> None:
        """First deliveries go upwards: all of a partition, or those of a key."""
        for books in self.received.values():
            plan = books.plan
            if plan.kind is ConsumerType.SHARED:
                continue
            by_key = plan.kind is ConsumerType.KEY_SHARED
            if by_key and plan.topic.batching == "default":
                continue
            for topic, firsts in books.firsts.items():
                highest: dict[str | None, Place] = {}
                entries: set[Place] = set()
                for place, key in firsts:
                    entry = (place[0], place[1], 0) if by_key else place
                    if entry in entries:
                        continue
                    entries.add(entry)
                    if by_key and key is None:
                        continue  # spread like messages that have keys of their own
                    group = key if by_key else None
                    last = highest.get(group)
                    if last is not None and entry < last:
                        self.violate(f"{plan.name} {topic} key {group}: {place} after {last}")
                    highest[group] = max(entry, last or entry)

    def check_log(self, topic: str, stored: Iterable[tuple[bytes, Place, str]]) -> None:
        """All that is stored of a topic: nothing confirmed is missing or elsewhere, nothing is
        stored twice with deduplication, and each producer's messages are in order.
        """
        places: dict[bytes, list[tuple[Place, str]]] = {}
        for content, place, partition in stored:
            places.setdefault(content, []).append((place, partition))
        highest: dict[tuple[str, int, str, str | None], int] = {}
        for content, found in places.items():
            sent = self.sent.get(content)
            if sent is None:
                self.violate(f"{topic} holds what was never sent: {content!r}")
                continue
            if self.plan.deduplication and len(found) > 1:
                self.violate(f"{topic} holds {content!r} {len(found)} times: {found}")
            by_key = sent.key if sent.producer.topic.batching == "key" else None
            group = (sent.producer.label, sent.life, found[0][1], by_key)
            if sent.number < highest.get(group, -1):
                self.violate(f"{topic}: {content!r} stands after number {highest[group]}")
            highest[group] = max(sent.number, highest.get(group, -1))
        for content, sent in self.sent.items():
            if sent.producer.topic.name != topic or sent.confirmed is None:
                continue
            if content not in places:
                self.violate(f"{topic} lost {content!r}, confirmed as {sent.confirmed}")
            elif sent.producer.topic.chunked and not self.plan.deduplication:
                pass  # its last chunks may have been stored twice, and the later ones confirmed
            elif sent.confirmed.entry_id >= 0:
                place = place_of(sent.confirmed)
                if place not in [each for each, _ in places[content]]:
                    self.violate(f"{content!r} confirmed as {place}, stands at {places[content]}")


def content_of(data: bytes) -> bytes:
    """The message's name; what follows fills it up."""
    return data.partition(b"|")[0]


def place_of(message_id: MessageId) -> Place:
    return message_id.ledger_id, message_id.entry_id, message_id.batch_index
