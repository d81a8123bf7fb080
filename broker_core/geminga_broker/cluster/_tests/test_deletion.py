"""Topics and namespaces that are deleted while their clients come back at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker._tests.wire import Type, WireClient, open_broker
from geminga_broker.admin._tests.test_guard import call
from geminga_broker.admin.app import create_app
from geminga_broker.authz import granting
from geminga_broker.change_events.reaching import reach_system_topics
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.loader import TopicLoader
from geminga_broker.cluster.records import JsonObject
from geminga_broker.cluster.topics import Topics
from geminga_broker.config import BrokerConfig, TopicConfig
from geminga_broker.errors import BrokerError
from geminga_broker.log._tests.leftovers import Clock, Trouble, TroubledStore
from geminga_broker.log.api import LogError
from geminga_broker.log.catalog import LogCatalog, begun_deletions
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.process import log_options
from geminga_broker.schema.model import SchemaData, SchemaStorageFailed, SchemaType
from geminga_broker.schema.topic_schemas import TopicSchemas
from geminga_broker.service import BrokerService, open_service
from geminga_broker.topic.topic import Topic
from geminga_protocol.commands import producing
from geminga_protocol.ids import EARLIEST
from geminga_protocol.pb.managed_ledger_pb2 import ManagedLedgerInfo
from geminga_protocol.pb.pulsar_api_pb2 import Schema, ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MetadataError

NAME = TopicName.parse("persistent://public/default/t")
STRING = Schema(name="s", schema_data=b"", type=Schema.Type.String)
BY_HAND = replace(BrokerConfig(), topics=TopicConfig(allow_auto_creation=False))
BY_FORCE = replace(BrokerConfig(), topics=TopicConfig(force_delete_namespaces=True))


async def come_back(client: WireClient, topic: TopicName, schema: Schema | None = None) -> None:
    """Produce to the topic, again as soon as the broker closes the producer or refuses it for now;
    return when there is no such topic.
    """
    request_id = 0
    while True:
        request_id += 1
        await client.send(producing.producer(str(topic), 1, request_id, schema=schema))
        frame = await client.next()
        assert frame is not None
        if frame.type == Type.PRODUCER_SUCCESS:
            await client.expect(Type.CLOSE_PRODUCER)
            continue
        code = frame.command.error.error
        if code == ServerError.TopicNotFound:
            return
        assert code == ServerError.ServiceNotReady


async def test_who_comes_back_at_once_keeps_the_schema_of_the_new_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delete = TopicSchemas.delete

    async def slowly(self: TopicSchemas, topic: TopicName) -> None:
        await wait_all_tasks_blocked()
        await delete(self, topic)

    monkeypatch.setattr(TopicSchemas, "delete", slowly)
    async with open_broker() as broker, trio.open_nursery() as nursery:
        client = broker.client()
        await client.connect()
        nursery.start_soon(come_back, client, NAME, STRING)
        for _ in range(3):
            await wait_all_tasks_blocked()
            await broker.service.topics.delete(NAME, force=True)
        await wait_all_tasks_blocked()
        assert broker.service.topics.loaded[str(NAME)].producers
        assert await broker.service.schemas.get(NAME) is not None
        nursery.cancel_scope.cancel()


async def test_a_topic_that_cannot_be_deleted_for_its_clients_keeps_its_schema() -> None:
    async with open_broker() as broker, trio.open_nursery() as nursery:
        client = broker.client()
        await client.connect()
        nursery.start_soon(come_back, client, NAME, STRING)
        await wait_all_tasks_blocked()
        with pytest.raises(BrokerError):
            await broker.service.topics.delete(NAME)
        assert await broker.service.schemas.get(NAME) is not None
        nursery.cancel_scope.cancel()


async def test_a_topic_that_is_unloaded_at_that_moment_is_deleted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_broker() as broker:
        topics = broker.service.topics
        await topics.create(NAME)
        get = topics.get
        unloads = [1, 2]

        async def then_unload(name: TopicName, *, create: bool, by_hand: bool = False) -> Topic:
            topic = await get(name, create=create, by_hand=by_hand)
            if unloads:
                unloads.pop()
                await topics.unload(name)
            return topic

        monkeypatch.setattr(topics, "get", then_unload)
        await topics.delete(NAME)
        assert not await topics.exists(NAME)
        with pytest.raises(BrokerError):
            await topics.delete(NAME)


async def test_partitions_are_not_made_again_while_their_topic_is_deleted() -> None:
    async with open_broker(BY_HAND) as broker, trio.open_nursery() as nursery:
        service = broker.service
        await service.catalog.create_partitioned(NAME, 3)
        for index in range(3):
            client = broker.client()
            await client.connect()
            nursery.start_soon(come_back, client, NAME.partition(index))
        await wait_all_tasks_blocked()
        assert len(service.topics.loaded) == 3
        await service.topics.delete_partitioned(NAME, force=True)
        await wait_all_tasks_blocked()
        assert await service.topics.names("public/default") == []
        assert not await service.catalog.partitions(NAME)
    # and all of them were told that there is no such topic


async def test_a_partition_that_is_just_made_is_deleted_with_its_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = TopicLoader._load

    async def slowly(self: TopicLoader, name: TopicName, *args: object) -> Topic:
        await wait_all_tasks_blocked(0.01)
        return await load(self, name, *args)

    async with open_broker(BY_HAND) as broker, trio.open_nursery() as nursery:
        service = broker.service
        await service.catalog.create_partitioned(NAME, 1)
        monkeypatch.setattr(TopicLoader, "_load", slowly)
        client = broker.client()
        await client.connect()
        nursery.start_soon(come_back, client, NAME.partition(0))
        await wait_all_tasks_blocked()
        assert not service.topics.loaded
        await service.topics.delete_partitioned(NAME, force=True)
        await wait_all_tasks_blocked()
        assert await service.topics.names("public/default") == []


async def test_a_namespace_is_deleted_by_force_though_clients_come_back() -> None:
    async with open_broker(BY_FORCE) as broker, trio.open_nursery() as nursery:
        service = broker.service
        await service.namespaces.create("public/gone", bundles=1, clusters=("standalone",))
        name = TopicName.parse("public/gone/p")
        await service.catalog.create_partitioned(name, 3)
        for each in (*map(name.partition, range(3)), TopicName.parse("public/gone/single")):
            client = broker.client()
            await client.connect()
            nursery.start_soon(come_back, client, each)
        await wait_all_tasks_blocked()
        assert len(service.topics.loaded) == 4
        assert await by_force(service, "public/gone") == 204
        assert not await service.namespaces.exists("public/gone")


async def test_where_a_forced_deletion_fails_topics_can_be_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile none can, at any broker: the namespace's record says so."""
    during: list[object] = []

    async def fail(self: Topics, name: TopicName, *, force: bool = False) -> None:
        during.append(await self._namespaces.exists(name.namespace))
        raise BrokerError(ServerError.PersistenceError, "storage is gone")

    async with open_broker(BY_FORCE) as broker:
        service = broker.service
        await service.namespaces.create("public/kept", bundles=1, clusters=("standalone",))
        before = await service.namespaces.policies("public/kept")
        await service.topics.create(TopicName.parse("public/kept/t"))
        monkeypatch.setattr(Topics, "delete", fail)
        assert await by_force(service, "public/kept") == 500
        assert during == [False]
        assert await service.namespaces.policies("public/kept") == before
        monkeypatch.undo()
        assert await by_force(service, "public/kept") == 204
        assert not await service.namespaces.tenants.exists("public/kept")


async def test_a_deletion_that_a_crash_interrupted_is_finished_by_the_next_one() -> None:
    async with open_broker(BY_FORCE) as broker:
        service = broker.service
        name = TopicName.parse("public/half/p")
        await service.namespaces.create("public/half", bundles=1, clusters=("standalone",))
        await service.catalog.create_partitioned(name, 2)
        await service.catalog.create_partitions(name, range(2))
        deleting: JsonObject = {"deleted": True}
        await service.namespaces.tenants.update("public/half", lambda old: old | deleting)
        record = "public/half/persistent/p"
        await service.namespaces.partitioned.update(record, lambda old: old | deleting)
        assert not await service.namespaces.exists("public/half")
        assert await by_force(service, "public/half") == 204
        assert not await service.namespaces.tenants.exists("public/half")
        assert not await service.topics.exists(name.partition(0))


async def test_a_partition_that_another_call_removes_meanwhile_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A growth takes back what a deletion has passed, while the deletion loads it."""
    async with open_broker(BY_FORCE) as broker:
        service = broker.service
        name = TopicName.parse("public/default/p")
        await service.catalog.create_partitioned(name, 3)
        await service.catalog.create_partitions(name, range(3))
        load = LogCatalog.load

        async def loaded(self: LogCatalog) -> ManagedLedgerInfo | None:
            found = await load(self)
            if self.path.endswith("partition-1"):
                await self.store.delete(self.path)
            return found

        monkeypatch.setattr(LogCatalog, "load", loaded)
        path = "/admin/v2/persistent/public/default/p/partitions"
        answer = await call(create_app(service), "DELETE", path, None, query="force=true")
        assert answer.status == 204, answer
        assert not await service.catalog.partitions(name)
        assert await service.topics.names("public/default") == []


async def test_a_passing_topic_whose_deletion_failed_does_not_count_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It isn't loaded any more, but its policies and grants are there."""
    async with open_broker() as broker:
        topics, name = broker.service.topics, TopicName.parse("non-persistent://public/default/t")
        await topics.create(name)

        async def away(_self: Topics, _name: TopicName) -> None:
            raise BrokerError(ServerError.ServiceNotReady, "the store is away")

        monkeypatch.setattr(Topics, "_forget", away)
        with pytest.raises(BrokerError, match="the store is away"):
            await topics.delete(name)


async def by_force(service: BrokerService, namespace: str) -> int:
    """Delete a namespace over REST; the status."""
    path = f"/admin/v2/namespaces/{namespace}"
    return (await call(create_app(service), "DELETE", path, None, query="force=true")).status


@asynccontextmanager
async def opened(store: TroubledStore, bookie: MemoryBookie) -> AsyncIterator[BrokerService]:
    """A broker on a store with troubles."""
    config = BrokerConfig()
    client = BookkeeperClient(KnownBookies([bookie]), store)
    async with (
        ManagedLedgerFactory(client, store, log_options(config)) as logs,
        open_service(config, store, logs) as service,
    ):
        await service.start(Addresses("pulsar://here:1", "http://here:2"))
        reach_system_topics(service)
        while await begun_deletions(store):  # noqa: ASYNC110 - a deletion has no event
            await trio.sleep(1)
        yield service


async def assert_all_or_nothing(service: BrokerService) -> None:
    exists = await service.topics.exists(NAME)
    policies = await service.policies.store.get(NAME)
    schema = await service.schemas.get(NAME)
    tenant = await service.namespaces.tenants.get(NAME.namespace)
    assert tenant is not None
    has_grants = str(NAME) in granting.topics_of(tenant)
    assert [bool(policies), schema is not None, has_grants] == [exists] * 3


async def killed_deletion(trouble: Trouble, at: int) -> int:
    """Returns the writes of the deletion."""
    store = TroubledStore(Clock())
    bookie = MemoryBookie()
    with store.killed as killed:
        async with opened(store, bookie) as service:
            topic = await service.topics.create(NAME)
            await topic.create_subscription("s", EARLIEST)
            await service.schemas.register(NAME, SchemaData(SchemaType.STRING, b""))
            await service.policies.store.update(NAME, lambda old: old | {"maxConsumerPerTopic": 3})
            await service.namespaces.tenants.update(
                NAME.namespace,
                lambda old: granting.grant_on_topic(old, str(NAME), "role", ["produce"]),
            )
            store.writes = 0
            store.trouble = lambda n: trouble if n == at else None
            with suppress(BrokerError, LogError, MetadataError, SchemaStorageFailed):
                await service.topics.delete(NAME, force=True)
            killed.cancel()
            await trio.lowlevel.checkpoint()
    store.trouble = lambda _: None
    writes = store.writes
    async with opened(store, bookie) as service:
        await assert_all_or_nothing(service)
    return writes


@pytest.mark.parametrize("trouble", Trouble)
@pytest.mark.slow
async def test_what_belongs_to_a_topic_goes_with_it(
    trouble: Trouble, autojump_clock: MockClock
) -> None:
    """Killed or refused at any write of the deletion, the topic is there with all that it has, or
    gone with it.
    """
    at = 0
    while await killed_deletion(trouble, at) > at:
        at += 1
    assert at > 10
