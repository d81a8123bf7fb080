"""The policies of single topics, as rows: path, field, type, checks, responses (spec BR-60).

Paths, fields and responses are Apache's (`PersistentTopics`, `TopicPolicies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

import msgspec

from geminga_broker.admin import policy_values as values
from geminga_broker.admin.namespaces.policies import check_entry_filters
from geminga_broker.admin.rest import RestError
from geminga_broker.cluster.records import JsonObject
from geminga_broker.policies.rate_limit import Rate
from geminga_broker.policies.resolve import Effective
from geminga_broker.service import BrokerService
from geminga_broker.topic.api import SubType

Told = Callable[[Effective], object]
Read = Callable[[JsonObject], object]
Write = Callable[[JsonObject, object], JsonObject]


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """A policy at `path`, stored under `field` of the topic's record by `read` and `write`.

    `applied` returns the effective value; if it is None, only the topic's own is shown. `empty` is
    the effect of a request without a body: "refuse", "unset" or "keep". Without a value the status
    is `absent` and the body `unset`.
    """

    path: str
    field: str
    kind: type
    check: values.Check = values.anything
    applied: Told | None = None
    empty: str = "refuse"
    absent: int = 200
    unset: object = None
    read: Read | None = None
    write: Write | None = None

    def of(self, record: JsonObject) -> object:
        """The record's value."""
        found = record.get(self.field) if self.read is None else self.read(record)
        return values.in_order(found, self.kind)

    def put(self, record: JsonObject, value: object) -> JsonObject:
        """The record with the value, or (None) without."""
        if self.write is not None:
            return self.write(record, value)
        return _with(record, {self.field: value})


def _with(record: JsonObject, fields: Mapping[str, object]) -> JsonObject:
    """The record with these fields, without those that are None."""
    return {key: value for key, value in {**record, **fields}.items() if value is not None}


def rate_json(rate: Rate) -> object:
    """A dispatch rate as the REST API returns it."""
    return msgspec.to_builtins(
        values.DispatchRate(rate.messages, rate.bytes, rate.relative, rate.period_s)
    )


def _retention_json(effective: Effective) -> object:
    kept = effective.policies.retention
    return {
        "retentionTimeInMinutes": int(kept.time_s) // 60,
        "retentionSizeInMB": kept.size_bytes >> 20,
    }


def _inactivity_json(effective: Effective) -> object:
    inactivity = effective.policies.inactivity
    return {
        "inactiveTopicDeleteMode": inactivity.mode,
        "maxInactiveDurationSeconds": inactivity.after_s,
        "deleteWhileInactive": inactivity.delete,
    }


def _delayed_json(effective: Effective) -> object:
    active = effective.options.delayed_delivery
    policies = effective.policies
    tick_ms, delay_ms_max = policies.delivery_tick_ms, policies.delivery_delay_ms_max
    return msgspec.to_builtins(values.DelayedDelivery(tick_ms, active, delay_ms_max))


_DELAYED = {
    "tickTime": "delayedDeliveryTickTimeMillis",
    "active": "delayedDeliveryEnabled",
    "maxDeliveryDelayInMillis": "delayedDeliveryMaxDelayInMillis",
}


def _read_delayed(record: JsonObject) -> object:
    found = {name: record[field] for name, field in _DELAYED.items() if field in record}
    return found or None


def _write_delayed(record: JsonObject, value: object) -> JsonObject:
    given = value if isinstance(value, dict) else {}
    return _with(record, {field: given.get(name) for name, field in _DELAYED.items()})


def _limit(
    path: str, field: str, applied: Told | None = None, reason: str = "", absent: int = 200
) -> TopicPolicy:
    # As in Apache, a request without a body removes limits of unacknowledged messages only.
    boxed = "Unacked" in path
    kind = cast(type, int | None) if boxed else int
    check = values.not_negative(reason or f"{path} must be 0 or more")
    return TopicPolicy(path, field, kind, check, applied, "unset" if boxed else "refuse", absent)


def _rate(path: str, kind: type, applied: Told | None = None, absent: int = 200) -> TopicPolicy:
    return TopicPolicy(path, path, kind, applied=applied, empty="keep", absent=absent)


def policies(service: BrokerService) -> tuple[TopicPolicy, ...]:
    """All policies whose value is the body of a POST."""
    largest = service.config.network.max_message_size_bytes

    def check_size(value: object) -> None:
        if not isinstance(value, int) or not 0 <= value <= largest:
            raise RestError(
                412,
                "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller "
                "than that in the broker-level",
            )

    return (
        *POLICIES,
        TopicPolicy("maxMessageSize", "maxMessageSize", int, check_size, absent=204),
        TopicPolicy(
            "subscriptionTypesEnabled",
            "subscriptionTypesEnabled",
            cast(type, list[values.SubscriptionType]),
            applied=partial(_types_json, service),
            unset=[],
        ),
        TopicPolicy(
            "entryFilters",
            "entryFilters",
            values.EntryFilters,
            partial(check_entry_filters, service),
            lambda e: {"entryFilterNames": service.config.policies.entry_filters},
            "unset",
        ),
    )


def _types_json(service: BrokerService, effective: Effective) -> object:
    """The types that a higher level allows; empty if all are allowed, as in Apache."""
    types = effective.options.subscription_types
    if types == service.policies.options.subscription_types:
        return []
    return sorted(SubType.Name(SubType.ValueType(each)) for each in types)


def _subscribe_json(effective: Effective) -> object:
    rate = effective.policies.subscribe_rate
    return {
        "subscribeThrottlingRatePerConsumer": rate.messages,
        "ratePeriodInSecond": rate.period_s,
    }


_UNACKED = "maxUnackedNum must be 0 or more"
POLICIES = (
    _limit("maxProducers", "maxProducerPerTopic", lambda e: e.options.producers_max),
    _limit("maxConsumers", "maxConsumerPerTopic", lambda e: e.options.consumers_max),
    _limit(
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
        reason="Invalid value for maxConsumersPerSubscription",
        absent=204,
    ),
    _limit("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", absent=204),
    _limit(
        "maxUnackedMessagesOnConsumer",
        "maxUnackedMessagesOnConsumer",
        lambda e: e.options.unacked_per_consumer_max,
        _UNACKED,
    ),
    _limit(
        "maxUnackedMessagesOnSubscription",
        "maxUnackedMessagesOnSubscription",
        lambda e: e.options.unacked_per_subscription_max,
        _UNACKED,
    ),
    TopicPolicy(
        "deduplicationEnabled",
        "deduplicationEnabled",
        cast(type, bool | None),
        applied=lambda e: e.policies.deduplication is not None,
        empty="unset",
    ),
    TopicPolicy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        cast(type, int | None),
        values.not_negative("interval must be 0 or more"),
        empty="unset",
    ),
    _rate("publishRate", values.PublishRate, absent=204),
    _rate("dispatchRate", values.DispatchRate, lambda e: rate_json(e.policies.dispatch_rate)),
    _rate(
        "subscriptionDispatchRate",
        values.DispatchRate,
        lambda e: rate_json(e.policies.subscription_dispatch_rate),
    ),
    _rate("subscribeRate", values.SubscribeRate, _subscribe_json),
    TopicPolicy(
        "compactionThreshold",
        "compactionThreshold",
        int,
        values.not_negative("Invalid value for compactionThreshold"),
        lambda e: e.policies.compaction.threshold_bytes,
    ),
    TopicPolicy(
        "delayedDelivery",
        "",
        values.DelayedDelivery,
        applied=_delayed_json,
        empty="keep",
        read=_read_delayed,
        write=_write_delayed,
    ),
    TopicPolicy(
        "inactiveTopicPolicies",
        "inactiveTopicPolicies",
        values.InactiveTopicPolicies,
        applied=_inactivity_json,
        empty="unset",
    ),
    TopicPolicy(
        "autoSubscriptionCreation",
        "autoSubscriptionCreationOverride",
        values.AutoSubscriptionCreation,
        applied=lambda e: {"allowAutoSubscriptionCreation": e.policies.auto_subscription},
        empty="unset",
    ),
)
"""Policies that don't need the broker."""
RETENTION = TopicPolicy(
    "retention", "retentionPolicies", values.RetentionPolicies, applied=_retention_json
)
TTL = TopicPolicy(
    "messageTTL", "messageTTLInSeconds", int, applied=lambda e: e.policies.message_ttl_s
)
