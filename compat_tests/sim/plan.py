"""What a run does, drawn from its seed. Small workloads, many faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from geminga.options import BatchingType, ConsumerType, ProducerAccessMode
from geminga_broker.config import BrokerConfig

UNACKED_PER_CONSUMER_MAX = 40
BATCH_MAX = 5
KEYS = 4


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic; without partitions if their number is 0."""

    name: str
    partitions: int
    batching: str
    """off, default or key: the same for all its producers, since it decides about order."""
    chunked: bool


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """A producer, and what it sends."""

    label: str
    client: int
    topic: TopicPlan
    named: bool
    numbered: bool
    count: int
    lives: int
    """It is closed and made again so often."""
    pause_s: float
    burst: int
    style: str
    batch_max: int
    batch_delay_s: float
    pending_max: int
    send_timeout_s: float
    access: ProducerAccessMode
    lazy: bool

    def options(self) -> dict[str, object]:
        """Keywords of `create_producer`."""
        kind = BatchingType.KEY_BASED if self.topic.batching == "key" else BatchingType.DEFAULT
        chosen: dict[str, object] = {
            "producer_name": self.label if self.named else None,
            "batching_enabled": self.topic.batching != "off",
            "batching_type": kind,
            "batching_max_messages": self.batch_max,
            "batching_max_publish_delay_s": self.batch_delay_s,
            "max_pending_messages": self.pending_max,
            "send_timeout_s": self.send_timeout_s,
            "access_mode": self.access,
            "lazy_start_partitioned_producers": self.lazy,
        }
        if self.topic.chunked:
            chosen |= {"chunking_enabled": True, "chunk_max_message_size_bytes": 120}
        return chosen


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """One consumer of a subscription."""

    label: str
    client: int
    queue_size: int
    scaled: bool
    grouping_s: float
    think_s: float
    many: bool
    nacks: float
    forgets: float
    leaves: float
    """Chances for each message: to refuse it, to forget it, to close and subscribe again."""
    seeks: float


@dataclass(frozen=True, slots=True)
class SubscriptionPlan:
    """A durable subscription from the topic's beginning, and its consumers."""

    name: str
    topic: TopicPlan
    kind: ConsumerType
    batch_index: bool
    receipts: bool
    cumulative: bool
    ack_timeout_s: float
    nack_delay_s: float
    consumers: tuple[ConsumerPlan, ...]

    def options(self, consumer: ConsumerPlan) -> dict[str, object]:
        """Keywords of `subscribe`."""
        return {
            "consumer_type": self.kind,
            "consumer_name": consumer.label,
            "batch_index_ack_enabled": self.batch_index,
            "ack_receipt_enabled": self.receipts,
            "ack_timeout_s": self.ack_timeout_s,
            "negative_ack_redelivery_delay_s": self.nack_delay_s,
            "receiver_queue_size": consumer.queue_size,
            "auto_scaled_receiver_queue_size_enabled": consumer.scaled,
            "ack_grouping_time_s": consumer.grouping_s,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """All of it."""

    seed: int
    clients: int
    producers: tuple[ProducerPlan, ...]
    subscriptions: tuple[SubscriptionPlan, ...]
    topics: tuple[TopicPlan, ...]
    deduplication: bool
    retains: bool
    """Whether the log keeps all, so that it can be looked at in the end."""
    ledger_entries_max: int
    batch_index: bool
    mark_delete_rate: float
    faults: tuple[str, ...]
    fault_pause_s: float
    fault_count: int
    connections: int
    keep_alive_s: int

    def config(self) -> BrokerConfig:
        """The broker's configuration."""
        base = BrokerConfig()
        keep = -1 if self.retains else 0
        return replace(
            base,
            network=replace(
                base.network,
                keep_alive_interval_s=self.keep_alive_s,
                shutdown_timeout_ms=10_000,
            ),
            topics=replace(base.topics, delete_inactive=False),
            clients=replace(
                base.clients,
                batch_index_ack=self.batch_index,
                unacked_per_consumer_max=UNACKED_PER_CONSUMER_MAX,
                dispatch_entries_max=10,
            ),
            policies=replace(
                base.policies,
                deduplication=self.deduplication,
                deduplication_entries=7,
            ),
            log=replace(
                base.log,
                ledger_entries_max=self.ledger_entries_max,
                rollover_min_minutes=0,
                retention_minutes=keep,
                retention_mb=keep,
                mark_delete_rate_per_s=self.mark_delete_rate,
            ),
        )


FAULTS = (
    "cut",
    "cut-at-command",
    "cut-in-frame",
    "stall",
    "unload",
    "kill",
    "power-loss",
    "full-disk",
    "restart",
    "slow-disk",
    "failing-disk",
)


def make_plan(seed: int, rng: Random) -> Plan:
    """The plan of that seed."""
    clients = rng.randint(1, 3)
    topics = tuple(_topic(rng, n) for n in range(rng.choice((1, 1, 2))))
    deduplication = rng.random() < 0.4
    producers: list[ProducerPlan] = []
    subscriptions: list[SubscriptionPlan] = []
    for topic in topics:
        for _ in range(rng.randint(1, 3)):
            producers.append(_producer(rng, len(producers), topic, clients, deduplication))
        for _ in range(rng.choice((1, 1, 2))):
            subscriptions.append(_subscription(rng, len(subscriptions), topic, clients))
    return Plan(
        seed=seed,
        clients=clients,
        producers=tuple(_with_patience(each, producers) for each in producers),
        subscriptions=tuple(subscriptions),
        topics=topics,
        deduplication=deduplication,
        retains=rng.random() < 0.75,
        ledger_entries_max=rng.choice((7, 30, 50_000)),
        batch_index=rng.random() < 0.7,
        mark_delete_rate=rng.choice((0.5, 5.0, 20.0)),
        faults=tuple(rng.sample(FAULTS, rng.randint(1, 5))),
        fault_pause_s=rng.choice((0.1, 0.5, 2.0)),
        fault_count=rng.randint(2, 14),
        connections=rng.choice((1, 1, 2)),
        keep_alive_s=rng.choice((2, 5, 30)),
    )


def _topic(rng: Random, number: int) -> TopicPlan:
    partitions = rng.choice((0, 0, 0, 2, 3))
    batching = rng.choice(("off", "default", "default", "key"))
    chunked = batching == "off" and rng.random() < 0.4
    return TopicPlan(f"persistent://public/default/t{number}", partitions, batching, chunked)


def _producer(
    rng: Random, number: int, topic: TopicPlan, clients: int, deduplication: bool
) -> ProducerPlan:
    named = rng.random() < (0.7 if deduplication else 0.3)
    access = ProducerAccessMode.SHARED
    if rng.random() < 0.1:
        access = rng.choice(list(ProducerAccessMode))
    return ProducerPlan(
        label=f"p{number}",
        client=rng.randrange(clients),
        topic=topic,
        named=named,
        numbered=named and rng.random() < 0.5,
        count=rng.randint(5, 30),
        lives=rng.choice((1, 1, 1, 2, 3)),
        pause_s=rng.choice((0.0, 0.02, 0.3)),
        burst=rng.choice((1, 4, 10)),
        style=rng.choice(("send", "soon", "soon", "nowait")),
        batch_max=rng.randint(2, BATCH_MAX),
        batch_delay_s=rng.choice((0.0, 0.001, 0.05)),
        pending_max=rng.choice((1, 5, 1000)),
        send_timeout_s=rng.choice((0.0, 0.0, 0.0, 3.0)),
        access=access,
        lazy=rng.random() < 0.3,
    )


def _with_patience(plan: ProducerPlan, producers: list[ProducerPlan]) -> ProducerPlan:
    """One that waits for partitions for itself may get some of them when connections are lost, and
    wait for the others of a producer that can't send to the first ones: until that gives up, as at
    Apache's broker.
    """
    for other in producers:
        waits = other.access is ProducerAccessMode.WAIT_FOR_EXCLUSIVE and other is not plan
        if waits and other.topic == plan.topic and plan.topic.partitions:
            return replace(plan, send_timeout_s=3.0)
    return plan


def _subscription(rng: Random, number: int, topic: TopicPlan, clients: int) -> SubscriptionPlan:
    kind = rng.choice(list(ConsumerType))
    ack_timeout_s = rng.choice((0.0, 0.0, 1.5))
    consumers = 1 if kind is ConsumerType.EXCLUSIVE else rng.randint(1, 3)
    if kind is ConsumerType.EXCLUSIVE and rng.random() < 0.3:
        consumers = 2
    nacks = rng.choice((0.0, 0.0, 0.1, 0.3))
    return SubscriptionPlan(
        name=f"s{number}",
        topic=topic,
        kind=kind,
        batch_index=rng.random() < 0.5,
        receipts=rng.random() < 0.3,
        cumulative=not kind.is_shared and rng.random() < 0.5,
        ack_timeout_s=ack_timeout_s,
        nack_delay_s=rng.choice((0.0, 0.2, 1.0)),
        consumers=tuple(
            ConsumerPlan(
                label=f"s{number}c{index}",
                client=rng.randrange(clients),
                queue_size=_queue_size(rng, topic),
                scaled=rng.random() < 0.15,
                grouping_s=rng.choice((0.0, 0.01, 0.1)),
                think_s=rng.choice((0.0, 0.0, 0.05)),
                many=rng.random() < 0.3,
                nacks=nacks,
                forgets=0.1 if ack_timeout_s else 0.0,
                leaves=rng.choice((0.0, 0.0, 0.05)),
                seeks=rng.choice((0.0, 0.0, 0.0, 0.0, 0.02)),
            )
            for index in range(consumers)
        ),
    )


def _queue_size(rng: Random, topic: TopicPlan) -> int:
    if not topic.partitions and rng.random() < 0.1:
        return 0
    return rng.choice((1, 3, 10, 1000))
