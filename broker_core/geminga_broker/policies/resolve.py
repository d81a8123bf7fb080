"""Policies of single topics: their store, and the effective policies of a topic (spec BR-60)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

from geminga_broker.cluster.catalog import is_system_topic
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import JsonObject, decode
from geminga_broker.config import BrokerConfig
from geminga_broker.errors import BrokerError
from geminga_broker.loadbalance.names import heartbeat_broker
from geminga_broker.policies.levels import Levels, topic_options, topic_policies
from geminga_broker.policies.model import (
    ALL_SUBSCRIPTION_TYPES,
    Inactivity,
    TopicOptions,
    TopicPolicies,
)
from geminga_broker.subscription.entry_filters import EntryFilter, load_filters
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.settings import overwritten

Change = Callable[[JsonObject], JsonObject]

NAMESPACES_KEPT_MAX = 1000
"""Namespaces whose policies stay decoded: each topic without policies of its own has them."""


class TopicPoliciesStore(Protocol):
    """Records with the fields of Apache's `TopicPolicies`; partitions have those of their topic.
    All methods raise BrokerError ServiceNotReady and MetadataError if they can't be found out.
    """

    async def get(self, topic: TopicName) -> JsonObject:
        """What holds for the topic, empty if nothing is set; don't change it."""

    async def at(self, topic: TopicName, *, is_global: bool) -> JsonObject:
        """What is set for this cluster, or (`is_global`) for all; empty if nothing is."""

    async def update(self, topic: TopicName, change: Change, *, is_global: bool = False) -> None:
        """Change what is set; on return it is durable, and `get` returns it."""

    async def delete(self, topic: TopicName) -> None:
        """Delete everything that is set."""


class NoTopicPolicies:
    """No topic has policies of its own (Apache's TopicPoliciesServiceDisabled)."""

    async def get(self, topic: TopicName) -> JsonObject:
        """See `TopicPoliciesStore.get`."""
        return {}

    async def at(self, topic: TopicName, *, is_global: bool) -> JsonObject:
        """See `TopicPoliciesStore.at`."""
        return {}

    async def update(self, topic: TopicName, change: Change, *, is_global: bool = False) -> None:
        """Raises BrokerError UnknownError: they can't be changed."""
        raise BrokerError(
            ServerError.UnknownError, "Topic policies service is disabled (systemTopicEnabled)."
        )

    async def delete(self, topic: TopicName) -> None:
        """See `TopicPoliciesStore.delete`."""


class Effective(NamedTuple):
    """The effective policies of one topic."""

    policies: TopicPolicies
    options: TopicOptions


class _OfNamespace(NamedTuple):
    """What topics without policies of their own have, and what it was made from."""

    value: bytes | None
    overwritten: int
    options: TopicOptions
    effective: Effective


def of_system_topic(found: Effective) -> Effective:
    """The policies of one of the broker's own topics, by what its namespace would have (Apache's
    SystemTopic): it is compacted, and neither limited nor expired, deduplicated or deleted.
    """
    policies, options = found
    return Effective(
        TopicPolicies(
            persistence=policies.persistence,
            inactivity=Inactivity(delete=False),
            compaction=policies.compaction._replace(
                threshold_bytes=max(policies.compaction.threshold_bytes, 1)
            ),
        ),
        replace(
            options,
            producers_max=0,
            consumers_max=0,
            subscriptions_max=0,
            encryption_required=False,
            subscription_types=ALL_SUBSCRIPTION_TYPES,
            entry_filters=(),
        ),
    )


class PolicyResolver:
    """Finds the policies and options of topics. `options` are those of the broker."""

    def __init__(
        self,
        store: TopicPoliciesStore,
        namespaces: Namespaces,
        config: BrokerConfig,
        options: TopicOptions,
    ) -> None:
        self.store = store
        self.config = config
        self.options = options
        self._namespaces = namespaces
        self._filters: dict[str, tuple[EntryFilter, ...]] = {}
        self._known: dict[str, _OfNamespace] = {}

    async def resolve(self, topic: TopicName) -> Effective:
        """The effective policies by all records. Raises ConfigError for an unknown entry filter."""
        return await self.effective(topic, await self.store.get(topic))

    async def effective(self, topic: TopicName, record: JsonObject) -> Effective:
        """As `resolve`, with this record of the topic."""
        name = topic.namespace
        value = await self._namespaces.tenants.value(name)
        if record or is_system_topic(topic):
            return self._made(topic, record, value)
        known, now = self._known.get(name), overwritten()
        if (
            known is None
            or (known.value, known.overwritten) != (value, now)
            or (known.options is not self.options)
        ):
            if len(self._known) >= NAMESPACES_KEPT_MAX:
                self._known.clear()
            made = self._made(topic, record, value)
            known = self._known[name] = _OfNamespace(value, now, self.options, made)
        return known.effective

    def _made(self, topic: TopicName, record: JsonObject, value: bytes | None) -> Effective:
        config = self.config
        namespace = None if value is None else decode(value)
        levels = Levels(record, namespace, config.network.cluster_name)
        options = topic_options(levels, self.options)
        if config.policies.override_entry_filters:
            filters = levels.record("entryFilters", "entryFilters")
            if filters is not None:
                found = self.filters(str(filters.get("entryFilterNames") or ""))
                options = replace(options, entry_filters=found)
        effective = Effective(topic_policies(levels, config), options)
        if heartbeat_broker(topic.namespace):
            # As in Apache: each health check is a producer of its own, that would be remembered.
            policies = replace(effective.policies, deduplication=None)
            return Effective(policies, options)
        return of_system_topic(effective) if is_system_topic(topic) else effective

    def filters(self, names: str) -> tuple[EntryFilter, ...]:
        """The filters with these comma-separated names, created once. Raises ConfigError."""
        found = self._filters.get(names)
        if found is None:
            found = self._filters[names] = load_filters(names)
        return found
