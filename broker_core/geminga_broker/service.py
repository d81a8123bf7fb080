"""The broker: topics, namespaces, lookups and the sessions that use them (spec CL-05, OP-08)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import trio

from geminga_bookie.client.api import LedgerClient
from geminga_broker.authz import granting
from geminga_broker.authz.authorizer import Authorizer
from geminga_broker.authz.settings import check_settings
from geminga_broker.cluster.catalog import TopicCatalog
from geminga_broker.cluster.loader import Logs, TopicLoader, broker_options, close_topic
from geminga_broker.cluster.lookup import Addresses, Lookup
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.config import BrokerConfig
from geminga_broker.errors import BrokerError
from geminga_broker.health import check_health
from geminga_broker.log.options import LogOptions
from geminga_broker.policies.apply import broker_unacked_limit
from geminga_broker.policies.maintenance import TopicMaintenance
from geminga_broker.policies.resolve import MetadataTopicPolicies, PolicyResolver
from geminga_broker.schema.registry import SchemaRegistry
from geminga_broker.schema.storage import SchemaStorage
from geminga_broker.schema.topic_schemas import TopicSchemas
from geminga_broker.session.authorization import recheck, require_recheck
from geminga_broker.topic.api import Topic, TopicEnvironment
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import LATEST
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.auth.service import load_authenticator
from geminga_runtime.background import Turns, run_guarded
from geminga_runtime.metadata.api import MetadataStore

if TYPE_CHECKING:
    from geminga_broker.session.session import Session

_log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 256 << 20
"""What commands of all connections that run at once may take; above it those who have many aren't
read.
"""

_COUNTER = "/counters/producer-name"


class Storage(Logs, Protocol):
    """Managed ledgers, and the ledgers beneath them: `log.factory.ManagedLedgerFactory`."""

    client: LedgerClient
    options: LogOptions


class BrokerService:
    """One broker. Made by `open_service`."""

    def __init__(
        self, config: BrokerConfig, store: MetadataStore, logs: Storage, nursery: trio.Nursery
    ) -> None:
        """Raises ConfigError when authentication or authorization can't be set up so."""
        check_settings(config.authorization, authenticates=config.auth.enabled)
        self.authenticator = load_authenticator(config.auth)
        self.config = config
        self.store = store
        self.namespaces = Namespaces(store)
        self.authorizer = Authorizer(config.authorization, self.namespaces)
        self.catalog = TopicCatalog(store, self.namespaces, config.topics)
        self.lookup = Lookup(self.namespaces, config.topics.lookups_max)
        self.policies = PolicyResolver(
            MetadataTopicPolicies(store), self.namespaces, config, broker_options(config)
        )
        storage = SchemaStorage(store, logs.client, logs.options.durability)
        self.schemas = TopicSchemas(
            SchemaRegistry(storage), self.namespaces, self.policies.store, config.schemas
        )
        environment = TopicEnvironment(nursery, unacked_limit=broker_unacked_limit(config.clients))
        self.loader = TopicLoader(
            config, self.catalog, self.namespaces, logs, environment, self.policies
        )
        self.sessions: dict[Session, None] = {}
        self.turn = trio.Lock()
        """Held for a step of a command that takes long: one in a turn of the loop."""
        self.request_bytes = 0
        """Of all commands that run now."""
        self.publish_buffer_full = False
        self._publish_bytes = 0
        self._publish_bytes_max = config.network.publish_buffer_mb_max << 20
        self._drained: list[Callable[[], None]] = []
        self._instance = ""
        self._names_given = 0

    # ---- topics ----

    @property
    def topics(self) -> dict[str, Topic]:
        """Loaded topics by full name."""
        return self.loader.topics

    async def get_topic(self, name: TopicName, *, create: bool) -> Topic:
        """The topic; with `create` it may be made automatically. See `TopicLoader.get`."""
        return await self.loader.get(name, create=create)

    async def create_topic(self, name: TopicName) -> Topic:
        """The topic, made if it isn't there, whether or not topics are made automatically. See
        `TopicLoader.get`.
        """
        return await self.loader.get(name, create=True, by_hand=True)

    async def topic_exists(self, name: TopicName) -> bool:
        """Whether a topic of exactly that name is there, partitioned ones left out."""
        if name.is_persistent:
            return await self.catalog.is_stored(name)
        return str(name) in self.topics

    async def partition_count(self, name: TopicName, *, create: bool) -> int:
        """Partitions for a client that asks; makes a topic's record where policy says so."""
        exists = await self.topic_exists(name)
        return await self.catalog.resolve_partitions(name, create=create, exists=exists)

    async def topic_names(self, namespace: str) -> list[str]:
        """Stored topics and loaded non-persistent ones of a namespace, partitions one by one."""
        prefix = f"non-persistent://{namespace}/"
        loaded = sorted(name for name in self.topics if name.startswith(prefix))
        return await self.catalog.persistent(namespace) + loaded

    async def ensure_subscription(self, topic: Topic, name: str) -> None:
        """Make a durable subscription at the topic's end if it isn't there."""
        if name not in topic.subscriptions:
            try:
                await topic.create_subscription(name, LATEST)
            except BrokerError as error:
                if error.code != ServerError.ConsumerBusy:
                    raise

    async def unload_topic(self, name: TopicName) -> bool:
        """Close a loaded topic; its clients come back and load it again. False if not loaded."""
        return await self.loader.leave(str(name), close_topic)

    async def unload_namespace(self, namespace: str) -> None:
        """Close all loaded topics of a namespace."""
        inside = f"://{namespace}/"
        await self.loader.unload_all([name for name in self.topics if inside in name])

    async def delete_topic(self, name: TopicName, *, force: bool = False) -> None:
        """Delete a topic with its subscriptions, log and (if it is no partition) schemas.

        Raises BrokerError TopicNotFound, and what `Topic.delete` raises.
        """
        await self.get_topic(name, create=False)

        async def delete(topic: Topic) -> None:
            await topic.delete(force=force)

        await self.loader.leave(str(name), delete)
        await self._forget(name)
        await self.forget_grants(name)

    async def forget_grants(self, name: TopicName) -> None:
        """Of a topic that was deleted, so that a later one of its name begins without (Apache's
        `deleteTopicAuthenticationWithRetry`).
        """
        policies = await self.namespaces.tenants.get(name.namespace)
        if policies is not None and granting.has_topic(policies, str(name)):
            await self.namespaces.tenants.update(
                name.namespace, lambda old: granting.forget_topic(old, str(name))
            )
            await self.permissions_changed(name.tenant, name.namespace)

    async def _forget(self, name: TopicName) -> None:
        """Of a topic that was deleted, what does not belong to all partitions together."""
        if not name.is_partition:
            await self.policies.store.delete(name)
            await self.schemas.delete(name)

    async def _delete_inactive(self) -> None:
        """Every period, delete topics that nobody uses (`brokerDeleteInactiveTopics…`)."""
        config = self.config.topics
        if not config.delete_inactive:
            return
        while True:
            await trio.sleep(config.delete_inactive_period_s)
            turns = Turns()
            for key, topic in list(self.topics.items()):
                await run_guarded(self._delete_if_inactive, key, topic)
                await turns.spend(1 + len(topic.subscriptions))

    async def _delete_if_inactive(self, key: str, topic: Topic) -> None:
        if self._may_delete(topic):
            await self._delete_quietly(key)

    @staticmethod
    def _may_delete(topic: Topic) -> bool:
        """Whether nobody has used it for long enough, and nothing must be kept (checkGC)."""
        policies = topic.policies
        inactivity, retention_s = policies.inactivity, policies.retention.time_s
        idle_s = trio.current_time() - topic.idle_since_s
        if not (topic.idle and inactivity.delete and idle_s >= inactivity.after_s):
            return False
        if topic.persistent and (retention_s < 0 or idle_s < retention_s):
            return False
        if inactivity.mode == "delete_when_no_subscriptions":
            return not topic.subscriptions
        return all(not each.backlog_entries() for each in topic.subscriptions.values())

    async def _delete_quietly(self, key: str) -> None:
        async def delete(topic: Topic) -> None:
            if not self._may_delete(topic):
                raise BrokerError(ServerError.NotAllowedError, "in use again")
            if isinstance(topic, PersistentTopic):
                _warn_of_loss(topic)
            await topic.delete(force=bool(topic.subscriptions))

        try:
            if await self.loader.leave(key, delete):
                _log.info("topic=%s was inactive, deleted", key)
                await self._forget(TopicName.parse(key))
        except Exception as error:
            _log.info("topic=%s stays: %s", key, error)

    async def policies_changed(self, namespace: str) -> None:
        """A namespace has other policies now: its loaded topics take them."""
        await self.loader.apply_policies(lambda name: name.namespace == namespace)

    async def topic_policies_changed(self, topic: TopicName) -> None:
        """A topic has other policies now: it takes them, or its loaded partitions do."""
        await self.loader.apply_policies(lambda name: name.partitioned_base == topic)

    # ---- clients ----

    async def permissions_changed(self, tenant: str, namespace: str | None = None) -> None:
        """Grants were revoked: producers and consumers that may no longer be are closed."""
        if self.authorizer.enabled:
            sessions = list(self.sessions)
            for session in sessions:
                require_recheck(session)
            for session in sessions:
                await recheck(session, tenant, namespace)

    @property
    def broker_service_url(self) -> str:
        """Where clients find this broker."""
        return self.lookup.addresses.broker_url

    @property
    def web_service_url(self) -> str:
        """Where admin requests go."""
        return self.lookup.addresses.web_url

    @property
    def broker_id(self) -> str:
        """`host:port` of the web service, which names a broker in the cluster."""
        addresses = self.lookup.addresses
        return (addresses.web_url or addresses.web_url_tls).partition("://")[2]

    async def check_health(self) -> None:
        """Publish one message and wait until it is stored. Raises BrokerError, TooSlowError."""
        await check_health(self)

    def new_producer_name(self) -> str:
        """A name that no other producer of the cluster has, as Apache writes them."""
        self._names_given += 1
        return f"{self.config.network.cluster_name}-{self._instance}-{self._names_given - 1}"

    def publish_pending(self, size_bytes: int) -> None:
        """Count entries that wait for storage, over all connections (BR-22), with what their
        objects take: this is what bounds the queue of a journal whose disk hangs.
        """
        pending = self._publish_bytes = self._publish_bytes + size_bytes
        if pending > self._publish_bytes_max > 0:
            self.publish_buffer_full = True
        elif self.publish_buffer_full and pending <= self._publish_bytes_max // 2:
            self.publish_buffer_full = False
            drained, self._drained = self._drained, []
            for callback in drained:
                callback()

    @property
    def requests_full(self) -> bool:
        """Whether the commands that run now take more memory than they may."""
        return self.request_bytes > REQUEST_BYTES_MAX

    def on_publish_buffer_drained(self, callback: Callable[[], None]) -> None:
        """Call back once when the publish buffer is down to half; at once if it isn't full."""
        if self.publish_buffer_full:
            self._drained.append(callback)
        else:
            callback()

    # ---- life ----

    async def start(self, addresses: Addresses) -> None:
        """Make what every cluster has, and tell clients these addresses from now on."""
        network = self.config.network
        self.lookup.addresses = addresses
        urls = {
            "serviceUrl": addresses.web_url,
            "serviceUrlTls": addresses.web_url_tls,
            "brokerServiceUrl": addresses.broker_url,
            "brokerServiceUrlTls": addresses.broker_url_tls,
        }
        await self.namespaces.bootstrap(
            network.cluster_name,
            {name: url for name, url in urls.items() if url},
            self.config.topics.namespace_bundles,
        )
        path, _ = await self.store.put(f"{_COUNTER}-", b"", sequential=True)
        self._instance = str(int(path.rpartition("-")[2]))

    @property
    def shutdown_s(self) -> float:
        """How long `shutdown` may take."""
        return self.config.network.shutdown_timeout_ms / 1000

    async def shutdown(self) -> None:
        """Unload all topics, tell the clients, and end their sessions. Idempotent."""
        self.loader.closed = True
        await self.loader.unload_all()
        for session in list(self.sessions):
            session.stop()

    async def run(self) -> None:
        """Background work, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._delete_inactive)
            nursery.start_soon(self.schemas.run)
            nursery.start_soon(TopicMaintenance(self.topics, self.config.policies).run)


@asynccontextmanager
async def open_service(
    config: BrokerConfig, store: MetadataStore, logs: Storage
) -> AsyncIterator[BrokerService]:
    """A broker over a metadata store and managed ledgers; left, it has unloaded all topics."""
    async with trio.open_nursery() as nursery:
        service = BrokerService(config, store, logs, nursery)
        nursery.start_soon(service.run)
        try:
            yield service
        finally:
            with trio.move_on_after(service.shutdown_s, shield=True):
                await service.shutdown()
            nursery.cancel_scope.cancel()


def _warn_of_loss(topic: PersistentTopic) -> None:
    """Before an inactive topic is deleted that still holds messages."""
    found = topic.log.statistics()
    if found.entries:
        _log.warning(
            "topic=%s is inactive and is deleted with its %d entries (%d bytes): a subscription or "
            "retention keeps a topic, brokerDeleteInactiveTopicsEnabled=false keeps all",
            topic.name,
            found.entries,
            found.size_bytes,
        )
