"""Policies of single topics: their store, and the effective policies of a topic (spec BR-60)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import JsonObject, Records, ResourceExists, ResourceMissing
from geminga_broker.config import BrokerConfig
from geminga_broker.policies.levels import Levels, topic_options, topic_policies
from geminga_broker.policies.model import TopicOptions, TopicPolicies
from geminga_broker.subscription.entry_filters import EntryFilter, load_filters
from geminga_protocol.topic_name import TopicName, url_encode
from geminga_runtime.metadata.api import MetadataStore

Change = Callable[[JsonObject], JsonObject]


class TopicPoliciesStore(Protocol):
    """Records with the fields of Apache's `TopicPolicies`; partitions have those of their topic."""

    async def get(self, topic: TopicName) -> JsonObject:
        """The record, empty if there is none."""

    async def update(self, topic: TopicName, change: Change) -> None:
        """Change the record; durable on return."""

    async def delete(self, topic: TopicName) -> None:
        """Delete the record, if there is one."""


class MetadataTopicPolicies:
    """Stores records at `/admin/topic-policies/{tenant}/{namespace}/{domain}/{topic}`."""

    def __init__(self, store: MetadataStore) -> None:
        self._records = Records(store, "/admin/topic-policies")

    async def get(self, topic: TopicName) -> JsonObject:
        """See `TopicPoliciesStore.get`."""
        return await self._records.get(_name_of(topic)) or {}

    async def update(self, topic: TopicName, change: Change) -> None:
        """See `TopicPoliciesStore.update`."""
        name = _name_of(topic)
        while True:
            try:
                await self._records.update(name, change)
            except ResourceMissing:
                try:
                    await self._records.create(name, change({}))
                except ResourceExists:
                    continue
            return

    async def delete(self, topic: TopicName) -> None:
        """See `TopicPoliciesStore.delete`."""
        try:
            await self._records.delete(_name_of(topic))
        except ResourceMissing:
            pass


def _name_of(topic: TopicName) -> str:
    whole = topic.partitioned_base if topic.is_partition else topic
    return f"{whole.namespace}/{whole.domain}/{url_encode(whole.local_name)}"


class Effective(NamedTuple):
    """The effective policies of one topic."""

    policies: TopicPolicies
    options: TopicOptions


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

    async def resolve(self, topic: TopicName) -> Effective:
        """The effective policies by all records. Raises ConfigError for an unknown entry filter."""
        return await self.effective(topic, await self.store.get(topic))

    async def effective(self, topic: TopicName, record: JsonObject) -> Effective:
        """As `resolve`, with this record of the topic."""
        config = self.config
        namespace = await self._namespaces.tenants.get(topic.namespace)
        levels = Levels(record, namespace, config.network.cluster_name)
        options = topic_options(levels, self.options)
        if config.policies.override_entry_filters:
            filters = levels.record("entryFilters", "entryFilters")
            if filters is not None:
                found = self.filters(str(filters.get("entryFilterNames") or ""))
                options = replace(options, entry_filters=found)
        return Effective(topic_policies(levels, config), options)

    def filters(self, names: str) -> tuple[EntryFilter, ...]:
        """The filters with these comma-separated names, created once. Raises ConfigError."""
        found = self._filters.get(names)
        if found is None:
            found = self._filters[names] = load_filters(names)
        return found
