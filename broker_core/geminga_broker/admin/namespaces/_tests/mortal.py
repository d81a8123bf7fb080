"""Brokers of one cluster that are killed at a write, and what is left in the metadata store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import trio

from geminga_bookie.memory import MemoryBookie
from geminga_broker.admin._tests.several_brokers import Broker, Cluster, joined
from geminga_broker.admin.namespaces.finishing import DeletionFinisher
from geminga_broker.admin.peers import PeerAnswer, PeerUnreachable
from geminga_broker.cluster.deletions import DELETIONS
from geminga_broker.config import BrokerConfig, TopicConfig
from geminga_broker.network_config import NetworkConfig
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.schema.model import SchemaData
from geminga_protocol.schema_type import SchemaType
from geminga_protocol.topic_name import TopicName
from geminga_runtime.clock import wall_clock_ms
from geminga_runtime.metadata._tests.stepped import SteppedStore
from geminga_runtime.metadata.api import StoreUnavailable

BY_FORCE = replace(
    BrokerConfig(),
    topics=TopicConfig(force_delete_namespaces=True),
    network=NetworkConfig(shutdown_timeout_ms=100),
)
NAMESPACE = "public/gone"
PARTED = TopicName.parse(f"persistent://{NAMESPACE}/parted")
SINGLE = TopicName.parse(f"persistent://{NAMESPACE}/single")
PARTITIONS = 2


class MortalStore(SteppedStore):
    """One broker's session. At the write of the number `dies_at` the broker is killed: nothing that
    it does later reaches the store.
    """

    def __init__(self, beside: SteppedStore | None = None) -> None:
        super().__init__(clock_ms=lambda: wall_clock_ms() - self.behind_ms)
        self.behind_ms = 0
        if beside is not None:
            self._join(beside._rows)
        self.writes = 0
        self.dies_at: int | None = None
        self.refused_after: int | None = None
        """Writes that are done yet, before all others fail."""
        self.is_dead = False
        self.killed = trio.CancelScope()

    def kill(self) -> None:
        """As kill -9; its session ends."""
        self.is_dead = True
        self.set_available(False)
        self.expire_session()
        self.killed.cancel()

    @asynccontextmanager
    async def step(
        self, operation: str, path: str, expected_version: int | None
    ) -> AsyncIterator[None]:
        """See `SteppedStore.step`."""
        if operation != "get":
            if self.writes == self.dies_at:
                self.kill()
            self.writes += 1
            if self.refused_after is not None:
                self.refused_after -= 1
                if self.refused_after < 0:
                    raise StoreUnavailable("not now")
        yield


class MortalWorld:
    """A cluster whose brokers are killed and started again."""

    def __init__(self) -> None:
        self.store = MortalStore()
        self.bookie = MemoryBookie()
        self.cluster = Cluster()

    @asynccontextmanager
    async def broker(self, number: int = 0) -> AsyncIterator[Mortal]:
        """Broker of that number; leaves the block at once when it is killed, or at its end."""
        store = MortalStore(self.store)
        with store.killed:
            async with (
                trio.open_nursery() as connections,
                joined(self.cluster, number, store, self.bookie, BY_FORCE, connections) as broker,
            ):
                yield Mortal(self, broker, store)
                connections.cancel_scope.cancel()

    @asynccontextmanager
    async def brokers(self, count: int) -> AsyncIterator[list[Mortal]]:
        """Several of them."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.broker(n)) for n in range(count)]

    async def tree(self, path: str) -> list[str]:
        """Paths of all nodes beneath."""
        found: list[str] = []
        for name in await self.store.children(path):
            found.append(f"{path}/{name}")
            found += await self.tree(f"{path}/{name}")
        return found

    async def leftovers(self) -> list[str]:
        """What is in the store of the namespace or its topics, without folders."""
        roots = "/admin/policies", "/admin/local-policies", "/admin/partitioned-topics"
        found: list[str] = []
        for root in (*roots, "/managed-ledgers", "/schemas"):
            for path in await self.tree(f"{root}/{NAMESPACE}"):
                if path.rpartition("/")[2] not in ("persistent", "non-persistent"):
                    found.append(path)
        for root in roots[:2]:
            if await self.store.exists(f"{root}/{NAMESPACE}"):
                found.append(f"{root}/{NAMESPACE}")
        return found + await self.tree(DELETIONS) + await self.tree("/geminga/log-deletions")


class Mortal:
    """One of the brokers."""

    def __init__(self, world: MortalWorld, broker: Broker, store: MortalStore) -> None:
        self.world = world
        self.broker = broker
        self.store = store
        self.service = broker.service
        self.finisher = DeletionFinisher(self.service, broker.calls)
        call = self.service.peers.call

        async def by_the_living(*args: Any, **options: Any) -> PeerAnswer:
            if store.is_dead:
                raise PeerUnreachable("this broker is dead")
            return await call(*args, **options)

        setattr(self.service.peers, "call", by_the_living)  # noqa: B010

    async def ask(self, method: str, target: str, body: object = None) -> PeerAnswer:
        """A request, which is followed to another broker."""
        content = b"" if body is None else msgspec.json.encode(body)
        broker_id = self.broker.addresses.broker_id
        return await self.world.cluster.call(broker_id, method, target, content)

    async def fill(self, *others: Mortal, topics: bool = True) -> None:
        """Make the namespace, whose bundles these brokers own by turns, with a schema, policies of
        a topic, and (`topics`) topics.
        """
        assert (await self.ask("PUT", f"/admin/v2/namespaces/{NAMESPACE}")).status == 204
        found = await self.service.namespaces.bundles(NAMESPACE)
        every = [self, *others]
        for number, name in enumerate(found.names()):
            await every[number % len(every)].broker.own(BundleId(NAMESPACE, name))
        await self.service.namespaces.change_local_policies(
            NAMESPACE, lambda old: old | {"namespaceAntiAffinityGroup": "g"}
        )
        await self.fill_parted()
        base = f"/admin/v2/persistent/{NAMESPACE}"
        if topics:
            assert (await self.ask("PUT", f"{base}/single")).status == 204
        else:
            assert (await self.ask("DELETE", f"{base}/parted/partitions")).status == 204
        await self.service.schemas.register(SINGLE, SchemaData(SchemaType.STRING, b""))

    async def fill_parted(self) -> None:
        """Make the partitioned topic."""
        base = f"/admin/v2/persistent/{NAMESPACE}/parted"
        assert (await self.ask("PUT", f"{base}/partitions", PARTITIONS)).status == 204
        await self.service.schemas.register(PARTED, SchemaData(SchemaType.STRING, b""))
        policies = self.service.policies.store
        await policies.update(PARTED, lambda old: old | {"maxProducerPerTopic": 3})
        assert (await self.ask("POST", f"{base}/permissions/role", ["produce"])).status == 204

    async def killed(self, at: int, doing: str) -> bool:
        """Have it killed at that write of a DELETE; whether there was such a write."""
        self.store.writes, self.store.dies_at = 0, at
        reply = await self.ask("DELETE", doing)
        if not self.store.is_dead:
            assert reply.status == 204
            self.store.dies_at = None
            return False
        return True

    async def parted_whole(self) -> list[bool]:
        """Whether each part of the partitioned topic is there, unmarked."""
        catalog, service = self.service.catalog, self.service
        tenant = await service.namespaces.tenants.get(NAMESPACE) or {}
        return [
            await catalog.partitions_to_make(PARTED) == (PARTITIONS, True),
            *[await catalog.is_stored(PARTED.partition(n)) for n in range(PARTITIONS)],
            await service.schemas.get(PARTED) is not None,
            bool(await service.policies.store.get(PARTED)),
            str(PARTED) in str(tenant.get("auth_policies")),
        ]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for it."""
    with trio.fail_after(30):
        while not holds():  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.01)
