"""Schemas of topics, and checks of producers' and consumers' schemas (spec BR-51; Apache's
`AbstractTopic`, `PersistentTopic` and `ServerCnx`).
"""

from __future__ import annotations

import logging

import trio

from geminga_broker.cluster.catalog import is_system_topic
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.config import SchemaConfig
from geminga_broker.policies.resolve import TopicPoliciesStore
from geminga_broker.schema.model import (
    IncompatibleSchema,
    NoSchemaToCheck,
    SchemaData,
    SchemaStorageFailed,
    Strategy,
    VersionedSchema,
    version_bytes,
    version_number,
)
from geminga_broker.schema.policies import SchemaPolicies, schema_policies
from geminga_broker.schema.registry import SchemaRegistry
from geminga_broker.topic.topic import Topic
from geminga_protocol.schema_type import SchemaType
from geminga_protocol.topic_name import TopicName

_log = logging.getLogger(__name__)

COLLECT_INTERVAL_S = 60.0

_SYSTEM = SchemaPolicies(Strategy.ALWAYS_COMPATIBLE, auto_update=True, enforced=False)


class TopicSchemas:
    """Schemas by topic name; all partitions have their topic's.

    All methods raise SchemaStorageFailed, beside the errors that they name.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        namespaces: Namespaces,
        topics: TopicPoliciesStore,
        config: SchemaConfig,
    ) -> None:
        self.registry = registry
        self._namespaces = namespaces
        self._topics = topics
        self._config = config

    async def policies(self, topic: TopicName) -> SchemaPolicies:
        """The topic's current policies."""
        if is_system_topic(topic):
            return _SYSTEM
        namespace = await self._namespaces.tenants.get(topic.namespace)
        return schema_policies(await self._topics.get(topic), namespace, self._config)

    async def get(self, topic: TopicName, version: bytes = b"") -> VersionedSchema | None:
        """A version, or the latest; None if there is none."""
        if not version:
            return await self.registry.latest(topic.schema_name)
        number = version_number(version)
        return None if number is None else await self.registry.get(topic.schema_name, number)

    async def register(self, topic: TopicName, schema: SchemaData) -> bytes:
        """The schema's version, created if new. Raises IncompatibleSchema, InvalidSchemaData."""
        policies = await self.policies(topic)
        if policies.auto_update:
            number = await self.registry.register(topic.schema_name, schema, policies.strategy)
            return version_bytes(number)
        known = await self.registry.find(topic.schema_name, schema)
        if known is None:
            raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")
        return version_bytes(known)

    async def admit_producer(self, topic: TopicName, schema: SchemaData | None) -> bytes:
        """A producer's schema version, or empty. Raises IncompatibleSchema, InvalidSchemaData."""
        if schema is not None:
            return await self.register(topic, schema)
        if (await self.policies(topic)).enforced and await self.get(topic) is not None:
            raise IncompatibleSchema(
                "Producers cannot connect or send message without a schema to topics with a schema"
                "when SchemaValidationEnforced is enabled"
            )
        return b""

    async def admit_consumer(
        self, name: TopicName, topic: Topic, schema: SchemaData | None
    ) -> None:
        """Check a consumer's schema; an unused topic without a schema gets it. Raises
        IncompatibleSchema, InvalidSchemaData.
        """
        if schema is None or schema.type is SchemaType.AUTO_CONSUME:
            return
        if await self.get(name) is None and not _in_use(topic):
            await self.register(name, schema)
            return
        strategy = (await self.policies(name)).strategy
        try:
            await self.registry.check_consumer(name.schema_name, schema, strategy)
        except NoSchemaToCheck:
            raise IncompatibleSchema(
                "Failed to add schema to an active topic with empty(BYTES) schema: new schema "
                f"type {schema.type.name}"
            ) from None

    async def delete(self, topic: TopicName) -> None:
        """Delete all versions, if there are any."""
        await self.registry.delete(topic.schema_name)

    async def delete_namespace(self, namespace: str) -> None:
        """Delete all schemas of a namespace, also those without a topic."""
        for schema_id in await self.registry.storage.ids(namespace):
            await self.registry.delete(schema_id)

    async def run(self) -> None:
        """Delete dead brokers' leftover ledgers from time to time, until cancelled."""
        while True:
            try:
                await self.registry.storage.collect()
            except SchemaStorageFailed as error:
                _log.warning("collecting ledgers of schemas: %s", error)
            except Exception:
                # A defect here must not crash the broker.
                _log.exception("collecting ledgers of schemas failed")
            await trio.sleep(COLLECT_INTERVAL_S)


def _in_use(topic: Topic) -> bool:
    """Whether the topic is or was used: its messages have no schema then."""
    if topic.producers:
        return True
    for subscription in topic.subscriptions.values():
        if any(not each.request.auto_consume for each in subscription.consumers):
            return True
    stats = topic.stats()
    return bool(stats.storage_size if topic.persistent else stats.msg_in_counter)
