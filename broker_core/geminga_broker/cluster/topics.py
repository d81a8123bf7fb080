"""The broker's topics by name: load, list, unload and delete them (spec BR-01, BR-09, BR-39)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from geminga_broker.authz import granting
from geminga_broker.cluster.catalog import TopicCatalog
from geminga_broker.cluster.changes import PolicyChanges
from geminga_broker.cluster.deletions import Resumed
from geminga_broker.cluster.ending import close_topic
from geminga_broker.cluster.loader import TopicLoader
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogError, LogWriteFailed
from geminga_broker.policies.resolve import TopicPoliciesStore
from geminga_broker.schema.model import SchemaStorageFailed
from geminga_broker.schema.topic_schemas import TopicSchemas
from geminga_broker.topic.topic import Topic
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import PARTITION_SUFFIX, TopicName
from geminga_runtime.metadata.api import MetadataError


class Topics:
    """Operations of clients and administrators on topics."""

    def __init__(
        self,
        loader: TopicLoader,
        catalog: TopicCatalog,
        namespaces: Namespaces,
        records: TopicPoliciesStore,
        schemas: TopicSchemas,
        changes: PolicyChanges,
    ) -> None:
        self.loaded = loader.topics
        """Loaded topics by full name."""
        self.get = loader.get
        self.wait_load = loader.wait_load
        self.resize = loader.resize
        self._loader = loader
        self.load_counts = loader.counts
        self._catalog = catalog
        self._namespaces = namespaces
        self._records = records
        self._schemas = schemas
        self._changes = changes

    @property
    def loading(self) -> int:
        """See `TopicLoader.loading`."""
        return self._loader.loading

    async def create(self, name: TopicName, properties: Mapping[str, str] | None = None) -> Topic:
        """The topic, created `by_hand` with these properties if missing. See `TopicLoader.get`."""
        return await self._loader.get(name, create=True, by_hand=True, properties=properties)

    def loaded_now(self, name: TopicName) -> Topic | None:
        """The topic, if it is loaded and nothing is about to close it."""
        return self._loader.loaded_now(str(name))

    async def exists(self, name: TopicName) -> bool:
        """Whether a topic of exactly this name exists; not for partitioned topics."""
        if name.is_persistent:
            return await self._catalog.is_stored(name)
        return str(name) in self.loaded

    async def partition_count(self, name: TopicName, *, create: bool) -> int:
        """The number of partitions, for a client; creates a topic's record by policy."""
        exists = await self.exists(name)
        return await self._catalog.resolve_partitions(name, create=create, exists=exists)

    async def names(self, namespace: str) -> list[str]:
        """A namespace's stored and loaded non-persistent topics, with all partitions."""
        prefix = f"non-persistent://{namespace}/"
        loaded = sorted(name for name in self.loaded if name.startswith(prefix))
        return await self._catalog.persistent(namespace) + loaded

    async def unload(self, name: TopicName) -> bool:
        """Close a loaded topic; its clients reconnect and load it again. False if not loaded."""
        return await self._loader.leave(str(name), close_topic)

    def refuse_loads(self) -> None:
        """Load no more topics: the broker stops."""
        self._loader.closed = True

    def end_by(self, deadline: float) -> None:
        """See `Endings.end_by`."""
        self._loader.endings.end_by(deadline)

    async def shut_down(self) -> None:
        """Load no more topics, and close all loaded ones. Idempotent."""
        self.refuse_loads()
        await self._loader.unload_all()

    async def delete(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a topic with its subscriptions, log and (unless it is a partition) schemas. Raises
        BrokerError TopicNotFound, also if another call removed it meanwhile, and the errors of
        `Topic.delete`.
        """

        async def delete(topic: Topic) -> None:
            await self._delete(topic, name, force=force)

        failure: BrokerError | LogError | None = None
        try:
            await self.get(name, create=False)
            while not await self._loader.leave(str(name), delete):
                # Unloaded in between: it still exists.
                await self.get(name, create=False)
        except (BrokerError, LogError) as error:
            failure = error
        if failure is not None:
            # Only of a persistent one it is known for sure whether it is there.
            if not name.is_persistent or await self.exists(name):
                raise failure
            text = f"Topic {name} does not exist"
            raise BrokerError(ServerError.TopicNotFound, text) from failure
        await self.forget_grants(name)

    async def delete_partitioned(
        self,
        name: TopicName,
        *,
        force: bool = False,
        delete_partitions: Callable[[int], Awaitable[None]] | None = None,
        resumed: Resumed | None = None,
    ) -> None:
        """Delete a partitioned topic with all partitions; reconnecting clients can't recreate them,
        at no broker. `delete_partitions` gets their number, if other brokers may have them. Raises
        ResourceChanged, the errors of `delete`, and those of `Deletions.marked`.
        """
        async with self._catalog.being_deleted(name, force=force, resumed=resumed) as count:
            if delete_partitions is not None:
                await delete_partitions(count)
            else:
                for index in range(count):
                    await self._delete_if_there(name.partition(index), force=force)
            await self._catalog.check_being_deleted(name)
            await self._forget(name)
            await self.forget_grants(name, partitions=count)
            await self._catalog.delete_partitioned(name)

    async def _delete_if_there(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic that may be missing."""
        failure: BrokerError | None = None
        try:
            await self.delete(name, force=force)
        except BrokerError as error:
            failure = error
        if failure is not None and await self.exists(name):
            raise failure

    async def delete_loaded(self, key: str, check: Callable[[Topic], None]) -> bool:
        """Delete a topic unless `check` raises. Returns False if it is not loaded."""
        name = TopicName.parse(key)

        async def delete(topic: Topic) -> None:
            check(topic)
            await self._delete(topic, name, force=True)

        return await self._loader.leave(key, delete)

    async def _delete(self, topic: Topic, name: TopicName, *, force: bool) -> None:
        """Delete a topic and what belongs to it. `forget_log` does that for a persistent one, when
        the deletion of its log can't be undone any more.
        """
        await topic.delete(force=force)
        if not name.is_persistent:
            await self._forget(name)

    async def forget_log(self, log_name: str) -> None:
        """Delete what belongs to the topic of a log that is being deleted. Idempotent. Raises
        LogWriteFailed.
        """
        name = TopicName.from_persistence_naming_encoding(log_name)
        try:
            await self._forget(name)
            await self.forget_grants(name)
        except (SchemaStorageFailed, MetadataError, BrokerError) as error:
            raise LogWriteFailed(f"{name}: not all of it is deleted: {error}") from error

    async def _forget(self, name: TopicName) -> None:
        """Delete a topic's policies and schemas, which partitions share with their topic. No client
        may join meanwhile: it could add new ones.
        """
        if not name.is_partition:
            await self._records.delete(name)
            await self._schemas.delete(name)

    async def forget_grants(self, name: TopicName, *, partitions: int = 0) -> None:
        """Delete the grants of a deleted topic and of so many partitions (one that passes messages
        on may have grants without being there), so that new topics of these names have none
        (Apache's `deleteTopicAuthenticationWithRetry`).
        """
        policies = await self._namespaces.tenants.get(name.namespace)
        granted = frozenset() if policies is None else granting.topics_of(policies)
        if not granted:
            return
        parts = (f"{name}{PARTITION_SUFFIX}{index}" for index in range(partitions))
        gone = granted & {str(name), *parts}
        if gone:
            await self._namespaces.tenants.update(
                name.namespace, lambda old: granting.forget_topics(old, gone)
            )
            await self._changes.grants_changed(name.tenant, name.namespace)

    async def namespace_policies_changed(self, namespace: str) -> None:
        """Apply a namespace's policies, which this broker has changed, to its loaded topics."""
        await self._changes.namespace_changed(namespace)

    async def topic_policies_changed(self, topic: TopicName) -> None:
        """Apply a topic's policies, which this broker has changed, to it or to its partitions."""
        await self._changes.topic_changed(topic)
