"""What one broker of a cluster changes takes effect at all of them (PX-22, BR-60)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NamedTuple

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker._tests.wire import Type, WireBroker, WireClient, among
from geminga_broker.admin._tests.test_guard import call
from geminga_broker.admin.app import create_app
from geminga_broker.change_events.reaching import reach_system_topics
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import BrokerConfig, load_config
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.options import Persistence
from geminga_broker.policies.rate_limit import Rate
from geminga_broker.process import log_options
from geminga_broker.service import BrokerService, open_service
from geminga_broker.session._tests.test_authentication import SETTINGS, login
from geminga_broker.topic.topic import Topic
from geminga_protocol.commands import producing
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.memory import MemoryMetadataStore

NAMESPACE = "acme/app"
HERE = TopicName.parse(f"persistent://{NAMESPACE}/here")
THERE = TopicName.parse(f"persistent://{NAMESPACE}/there-partition-1")
PASSING = TopicName.parse(f"non-persistent://{NAMESPACE}/passing")
ADMIN = f"/admin/v2/namespaces/{NAMESPACE}"
SLOW = {"publishThrottlingRateInMsg": 3}


class Pair(NamedTuple):
    """Two brokers of one cluster, each with its own session."""

    here: WireBroker
    there: WireBroker

    async def admin(self, method: str, path: str, body: object = None) -> None:
        """A REST call by the tenant's administrator, at the first broker."""
        answer = await call(create_app(self.here.service), method, path, "boss", body=body)
        assert answer.status == 204, answer

    async def load(self, name: TopicName) -> Topic:
        """A topic at the second broker."""
        return await self.there.service.topics.get(name, create=True)


@asynccontextmanager
async def pair(*, config: BrokerConfig | None = None) -> AsyncIterator[Pair]:
    """Tenant acme with admin `boss`; `writer` may produce, `reader` consume in acme/app."""
    config = config or load_config(None, {}, SETTINGS)
    store, bookie = MemoryMetadataStore(), MemoryBookie()
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(trio.open_nursery())
        found: list[WireBroker] = []
        services: list[BrokerService] = []
        for number in range(2):
            session = store.another_session()
            client = BookkeeperClient(KnownBookies([bookie]), session)
            factory = ManagedLedgerFactory(client, session, log_options(config))
            logs = await stack.enter_async_context(factory)
            service = await stack.enter_async_context(open_service(config, session, logs))
            addresses = Addresses(f"pulsar://b{number}:1", f"http://b{number}:2")
            await service.start(addresses, is_whole_cluster=not number)
            found.append(WireBroker(service, connections))
            services.append(service)
            reach_system_topics(service, among(services, connections))
        namespaces = found[0].service.namespaces
        await namespaces.create_tenant("acme", ("boss",), ("standalone",))
        await namespaces.create(NAMESPACE, bundles=4, clusters=("standalone",))
        await namespaces.tenants.update(NAMESPACE, lambda old: old | {"auth_policies": GRANTS})
        await found[0].service.catalog.create_partitioned(THERE.partitioned_base, 2)
        await trio.sleep(0.2)
        yield Pair(*found)
        connections.cancel_scope.cancel()


GRANTS = {
    "namespace_auth": {"writer": ["produce"], "reader": ["consume"]},
    "destination_auth": {},
    "subscription_auth_roles": {},
}


async def set_up(brokers: Pair) -> tuple[WireClient, WireClient]:
    """A producer and a consumer at the second broker."""
    writer = await login(brokers.there, "writer")
    await writer.open_producer(str(THERE))
    reader = await login(brokers.there, "reader")
    await reader.subscribe(str(THERE))
    return writer, reader


def rate(topic: Topic) -> int:
    """How many messages a second it takes."""
    return topic.policies.publish_rate.messages


async def test_a_grant_revoked_elsewhere_closes_producers_and_consumers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as brokers:
        writer, reader = await set_up(brokers)
        await brokers.admin("DELETE", f"{ADMIN}/permissions/writer")
        with trio.fail_after(0.2):
            await writer.expect(Type.CLOSE_PRODUCER)
        refused = await writer.ask(producing.producer(str(THERE), 2, 8), Type.ERROR)
        assert refused.error.error == ServerError.AuthorizationError
        await brokers.admin("DELETE", f"{ADMIN}/permissions/reader")
        with trio.fail_after(0.2):
            await reader.expect(Type.CLOSE_CONSUMER)


async def test_a_tenants_administrator_removed_elsewhere_loses_his_right(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as brokers:
        boss = await login(brokers.there, "boss")
        await boss.open_producer(str(THERE))
        tenants = brokers.here.service.namespaces.tenants
        await tenants.update("acme", lambda old: old | {"adminRoles": []})
        with trio.fail_after(0.2):
            await boss.expect(Type.CLOSE_PRODUCER)


async def test_a_namespace_deleted_elsewhere_closes_its_clients(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as brokers:
        writer, _ = await set_up(brokers)
        await brokers.here.service.namespaces.tenants.delete(NAMESPACE)
        with trio.fail_after(0.2):
            await writer.expect(Type.CLOSE_PRODUCER)


async def test_a_broken_record_grants_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with pair() as brokers:
        writer, reader = await set_up(brokers)
        store = brokers.here.service.store
        await store.put(f"/admin/policies/{NAMESPACE}", b"{rubbish")
        with trio.fail_after(0.2):
            await writer.expect(Type.CLOSE_PRODUCER)
            await reader.expect(Type.CLOSE_CONSUMER)


def change_among_many(brokers: Pair, before: bytes, after: bytes) -> None:
    """Change the namespace's record behind more changes than are kept: the watch tells only that
    some are missing.
    """
    store, path = brokers.here.service.store, f"/admin/policies/{NAMESPACE}"
    assert isinstance(store, MemoryMetadataStore)
    node = store.get_now(path)
    assert node is not None
    assert before in node.value, node.value
    changes = [("/admin/policies/x/y", b"{}")] * 5000
    for each, value in (*changes, (path, node.value.replace(before, after))):
        store.put_now(store.put_request(each, value, None, None, False))


async def test_a_grant_revoked_while_changes_are_missed_is_noticed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as brokers:
        writer, _ = await set_up(brokers)
        change_among_many(brokers, b'"writer"', b'"nobody"')
        with trio.fail_after(0.2):
            await writer.expect(Type.CLOSE_PRODUCER)


@pytest.mark.slow
async def test_policies_set_while_changes_are_missed_reach_loaded_topics(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as brokers:
        topic = await brokers.load(THERE)
        await brokers.admin("POST", f"{ADMIN}/publishRate", SLOW)
        await trio.sleep(0.2)
        assert rate(topic) == 3
        change_among_many(
            brokers, b'"publishThrottlingRateInMsg":3', b'"publishThrottlingRateInMsg":4'
        )
        await trio.sleep(0.2)
        assert rate(topic) == 4


async def test_a_grant_revoked_while_the_store_is_away_is_noticed_when_it_is_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as brokers:
        writer, _ = await set_up(brokers)
        theirs = brokers.there.service.store
        assert isinstance(theirs, MemoryMetadataStore)
        theirs.set_available(False)
        await brokers.admin("DELETE", f"{ADMIN}/permissions/writer")
        await trio.sleep(5)
        theirs.set_available(True)
        with trio.fail_after(10):
            await writer.expect(Type.CLOSE_PRODUCER)


async def test_policies_of_a_namespace_set_elsewhere_reach_loaded_topics(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as brokers:
        topics = [await brokers.load(THERE), await brokers.load(PASSING)]
        near = await brokers.here.service.topics.get(HERE, create=True)
        await brokers.admin("POST", f"{ADMIN}/publishRate", SLOW)
        assert rate(near) == 3  # when the call is answered
        await trio.sleep(0.2)
        assert [rate(topic) for topic in topics] == [3, 3]
        await brokers.admin("DELETE", f"{ADMIN}/publishRate")
        await trio.sleep(0.2)
        assert [rate(topic) for topic in (near, *topics)] == [Rate().messages] * 3


async def test_policies_of_a_topic_set_elsewhere_reach_its_partitions(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as brokers:
        topic, other = await brokers.load(THERE), await brokers.load(PASSING)
        path = f"/admin/v2/persistent/{NAMESPACE}/there"
        await brokers.admin("POST", f"{path}/publishRate", SLOW)
        await trio.sleep(0.2)
        assert rate(topic) == 3
        assert rate(other) == Rate().messages


async def test_policies_set_while_a_topic_loads_count(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has read its policies, and isn't among the loaded ones yet."""
    async with pair() as brokers:
        opening, go = trio.Event(), trio.Event()
        loader = brokers.there.service.topics._loader
        open_log = loader._logs.open

        async def slowly(
            name: str,
            *,
            create: bool = True,
            persistence: Persistence | None = None,
            here: bool = False,
        ) -> object:
            opening.set()
            await go.wait()
            return await open_log(name, create=create, persistence=persistence, here=here)

        monkeypatch.setattr(loader._logs, "open", slowly)
        found: list[Topic] = []

        async def load() -> None:
            found.append(await brokers.load(THERE))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            await opening.wait()
            await brokers.admin("POST", f"{ADMIN}/publishRate", SLOW)
            await trio.sleep(0.2)
            go.set()
        assert rate(found[0]) == 3


async def test_of_two_changes_at_once_the_later_one_stays(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who applies the first change has read it, and is slow."""
    async with pair() as brokers:
        service = brokers.there.service
        topic, name = await brokers.load(THERE), THERE
        reads, go = 0, trio.Event()
        get = service.policies.store.get

        async def slowly(of: TopicName) -> dict[str, object]:
            nonlocal reads
            reads += of == THERE
            record = await get(of)
            if of == THERE and reads == 1:
                await go.wait()
            return record

        monkeypatch.setattr(service.policies.store, "get", slowly)
        async with trio.open_nursery() as nursery:
            for messages in (1, 2):
                record: JsonObject = {"publishThrottlingRateInMsg": messages}
                await service.policies.store.update(name, partial(dict, publishRate=record))
                nursery.start_soon(service.topics.topic_policies_changed, name)
                await wait_all_tasks_blocked()
            go.set()
        assert rate(topic) == 2
