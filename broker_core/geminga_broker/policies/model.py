"""A topic's options and policies, as plain data (spec BR-22, BR-23, BR-37)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from geminga_broker.log.options import Persistence, Retention
from geminga_broker.policies.quota import Quotas
from geminga_broker.policies.rate_limit import Rate
from geminga_broker.subscription.entry_filters import EntryFilter
from geminga_protocol.pb.pulsar_api_pb2 import CommandSubscribe

ALL_SUBSCRIPTION_TYPES = frozenset(CommandSubscribe.SubType.values())
DELIVERY_TICK_MS = 1000
"""What is told of `delayedDeliveryTickTimeMillis` where nobody has set another one."""


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Limits and switches of one topic; 0 is no limit. Defaults of Apache's broker.conf."""

    producers_max: int = 0
    consumers_max: int = 0
    consumers_per_subscription_max: int = 0
    subscriptions_max: int = 0
    unacked_per_consumer_max: int = 50_000
    unacked_per_subscription_max: int = 200_000
    encryption_required: bool = False
    batch_index_ack: bool = False
    expose_broker_entry_metadata: bool = False
    subscription_types: frozenset[int] = ALL_SUBSCRIPTION_TYPES
    dispatch_entries_max: int = 100
    dispatch_bytes_max: int = 5 << 20
    round_robin_entries_max: int = 20
    failover_delay_s: float = 1.0
    delayed_entries_max: int = 100_000
    delayed_delivery: bool = True
    """If off, delayed messages are delivered at once."""
    consistent_hashing: bool = True
    hash_points: int = 100
    look_ahead_per_consumer_entries: int = 2_000
    look_ahead_entries_max: int = 20_000
    entry_filters: tuple[EntryFilter, ...] = ()


@dataclass(frozen=True, slots=True)
class DeduplicationOptions:
    """Apache's `brokerDeduplication…` settings."""

    entries_interval: int = 1000
    """Entries between snapshots."""
    producers_max: int = 10_000
    """Known names; above it, producers that left first are forgotten first."""
    inactivity_s: float = 360 * 60
    """A producer is forgotten this long after it left."""


class Inactivity(NamedTuple):
    """When an unused topic is deleted (Apache's `InactiveTopicPolicies`)."""

    delete: bool = True
    after_s: int = 60
    mode: str = "delete_when_no_subscriptions"


class CompactionPolicy(NamedTuple):
    """When a topic is compacted automatically, and how."""

    threshold_bytes: int = 0
    """Uncompacted bytes that start a compaction; 0: never."""
    retain_null_key: bool = False
    """Whether messages without a key are retained."""
    read_s: float = 30.0
    """Timeout of each read."""


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """A topic's policies beside its options; 0 is no limit."""

    deduplication: DeduplicationOptions | None = None
    deduplication_snapshot_s: int = 120
    """Time between snapshots; 0: only by the number of entries."""
    message_ttl_s: int = 0
    """Older messages count as acknowledged; 0: never."""
    subscription_expiration_s: int = 0
    """A durable subscription is deleted after this time without consumers; 0: never."""
    retention: Retention = Retention()
    persistence: Persistence | None = None
    """Copies of ledgers that are made afterwards, and how often cursors are written; None: by the
    broker's configuration."""
    quotas: Quotas = Quotas()
    inactivity: Inactivity = Inactivity()
    publish_rate: Rate = Rate()
    dispatch_rate: Rate = Rate()
    """Rate of all subscriptions together."""
    subscription_dispatch_rate: Rate = Rate()
    """Rate of each subscription without one of its own."""
    dispatch_rates: Mapping[str, Rate] = field(default_factory=dict)
    """Rates of single subscriptions, by name."""
    subscribe_rate: Rate = Rate(0, 0, 30)
    """How often one consumer may subscribe."""
    message_bytes_max: int = 0
    """Bound of a message or batch with its metadata; not for chunks."""
    delivery_delay_ms_max: int = 0
    delivery_tick_ms: int = DELIVERY_TICK_MS
    """Only told: delivery is exact to the millisecond."""
    auto_subscription: bool = True
    """Whether SUBSCRIBE creates a missing subscription."""
    compaction: CompactionPolicy = CompactionPolicy()
