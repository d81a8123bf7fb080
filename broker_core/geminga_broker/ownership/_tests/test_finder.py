"""Who serves a bundle, asked at leaders, followers and owners."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.errors import BrokerError
from geminga_broker.ownership.brokers import BROKERS_PATH, ActiveBrokers
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.election import Election
from geminga_broker.ownership.finder import Located, OwnerFinder, named_broker
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.records import owner_path
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_runtime.metadata.memory import MemoryMetadataStore

BUNDLE = BundleId("public/default", "0x00000000_0x40000000")


class Chosen:
    """A load manager that says what a test wants."""

    centralized = True

    def __init__(self) -> None:
        self.broker: str | None = None
        self.asked = 0
        self.non_persistent: list[BundleId] = []

    def has_non_persistent(self, bundle: BundleId) -> None:
        self.non_persistent.append(bundle)

    async def choose(self, bundle: BundleId) -> str | None:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        return self.broker


class Broker:
    def __init__(self, store: MemoryMetadataStore, host: str) -> None:
        self.store = store
        self.addresses = Addresses(f"pulsar://{host}:6650", f"http://{host}:8080")
        self.ownership = BundleOwnership(store, lambda _bundles: None)
        self.ownership.addresses = self.addresses
        self.election = Election(store)
        self.load_manager = Chosen()
        self.finder = OwnerFinder(
            *(self.ownership, self.election, ActiveBrokers(store), self.load_manager),
            self.exists,
        )
        self.gone: set[BundleId] = set()

    async def exists(self, bundle: BundleId) -> bool:
        await trio.lowlevel.checkpoint()
        return bundle not in self.gone

    async def register(self) -> None:
        record = {"webServiceUrl": self.addresses.web_url}
        record["pulsarServiceUrl"] = self.addresses.broker_url
        path = f"{BROKERS_PATH}/{self.addresses.broker_id}"
        epoch = self.store.session.epoch
        await self.store.put(path, msgspec.json.encode(record), epoch=epoch)


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Broker, Broker]]:
    """A leader and a follower."""
    store = MemoryMetadataStore()
    brokers = Broker(store, "a"), Broker(store.another_session(), "b")
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            await broker.register()
            await nursery.start(broker.election.run, broker.addresses)
        await wait_all_tasks_blocked()
        yield brokers
        nursery.cancel_scope.cancel()


async def test_the_leader_takes_what_it_chose_itself_for() -> None:
    async with cluster() as (leader, follower):
        leader.load_manager.broker = "a:8080"
        assert await leader.finder.find(BUNDLE) == Located(leader.addresses)
        assert leader.ownership.holds(BUNDLE)
        assert await follower.finder.find(BUNDLE) == Located(leader.addresses), "who is owner"
        assert (leader.load_manager.asked, follower.load_manager.asked) == (1, 0)


async def test_a_follower_asks_the_leader_which_sends_to_who_it_chose() -> None:
    async with cluster() as (leader, follower):
        leader.load_manager.broker = "b:8080"
        first = await follower.finder.find(BUNDLE)
        assert first == Located(leader.addresses, redirect=True, authoritative=False)
        second = await leader.finder.find(BUNDLE)
        assert second == Located(follower.addresses, redirect=True, authoritative=True)
        assert not follower.ownership.holds(BUNDLE)
        third = await follower.finder.find(BUNDLE, authoritative=True)
        assert third == Located(follower.addresses)
        assert follower.ownership.holds(BUNDLE)


async def test_a_bundle_that_was_split_meanwhile_is_nobodys() -> None:
    """It would be this broker's until it stops, and no topic is in it."""
    async with cluster() as (leader, _):
        leader.load_manager.broker = "a:8080"
        leader.gone.add(BUNDLE)
        with pytest.raises(BrokerError, match="Please redo the lookup"):
            await leader.finder.find(BUNDLE)
        assert leader.ownership.owned() == []
        assert await leader.store.get(owner_path(BUNDLE)) is None
        leader.gone.clear()
        assert await leader.finder.find(BUNDLE) == Located(leader.addresses)


async def test_the_load_manager_is_told_of_non_persistent_topics() -> None:
    async with cluster() as (leader, _):
        leader.load_manager.broker = "a:8080"
        await leader.finder.find(BUNDLE)
        assert leader.load_manager.non_persistent == []
        await leader.finder.find(BUNDLE, non_persistent=True)
        assert leader.load_manager.non_persistent == [BUNDLE]


async def test_without_a_leader_each_decides() -> None:
    async with cluster() as (leader, follower):
        follower.load_manager.broker = "b:8080"
        leader.store.set_available(False)
        leader.store.expire_session()
        assert await follower.election.leader() is None
        assert not follower.election.is_leader
        assert await follower.finder.find(BUNDLE) == Located(follower.addresses)


async def test_a_leader_that_is_not_registered_is_not_asked() -> None:
    async with cluster() as (leader, follower):
        await leader.store.delete(f"{BROKERS_PATH}/a:8080")
        follower.load_manager.broker = "b:8080"
        assert await follower.finder.find(BUNDLE) == Located(follower.addresses)


async def test_a_read_only_lookup_makes_no_owner() -> None:
    async with cluster() as (leader, _):
        leader.load_manager.broker = "a:8080"
        assert await leader.finder.find(BUNDLE, read_only=True) is None
        assert leader.load_manager.asked == 0


@pytest.mark.parametrize("authoritative", [True, False])
async def test_a_broker_that_stops_takes_nothing(*, authoritative: bool) -> None:
    """It would refuse the topics' clients, which are sent there, until its process ends."""
    async with cluster() as (leader, follower):
        leader.load_manager.broker = "a:8080"
        leader.finder.is_closing = True
        with pytest.raises(BrokerError, match="not served by this instance") as refused:
            await leader.finder.find(BUNDLE, authoritative=authoritative)
        assert refused.value.code == ServerError.ServiceNotReady
        assert await follower.ownership.owner(BUNDLE) is None
        leader.load_manager.broker = "b:8080"
        if not authoritative:
            found = await leader.finder.find(BUNDLE)
            assert found == Located(follower.addresses, redirect=True, authoritative=True)


async def test_nobody_can_own_it() -> None:
    async with cluster() as (leader, _):
        assert await leader.finder.find(BUNDLE) is None
        leader.load_manager.broker = "gone:8080"
        assert await leader.finder.find(BUNDLE) is None


async def test_a_bundle_that_is_unloaded_is_refused_by_all() -> None:
    async with cluster() as (leader, follower):
        leader.load_manager.broker = "a:8080"
        await leader.finder.find(BUNDLE)
        await leader.ownership.disable(BUNDLE)
        for broker in (leader, follower):
            with pytest.raises(BrokerError, match="is being unloaded") as refused:
                await broker.finder.find(BUNDLE)
            assert refused.value.code == ServerError.MetadataError


async def test_topics_of_another_owner_are_refused() -> None:
    async with cluster() as (leader, follower):
        leader.load_manager.broker = "a:8080"
        await leader.finder.require_here(BUNDLE)
        with pytest.raises(BrokerError, match="not served by this instance:b:8080") as refused:
            await follower.finder.require_here(BUNDLE)
        assert refused.value.code == ServerError.ServiceNotReady


@pytest.mark.parametrize("disabled", [False, True])
async def test_what_an_earlier_life_owned_is_taken_at_once(disabled: bool) -> None:
    """A broker was killed, also while it unloaded, and is there again before its session ended."""
    async with cluster() as (leader, follower):
        killed = BundleOwnership(leader.store.another_session(), lambda _bundles: None)
        killed.addresses = follower.addresses
        await killed.acquire(BUNDLE)
        if disabled:
            await killed.disable(BUNDLE)
        await follower.finder.require_here(BUNDLE)
        assert await leader.finder.find(BUNDLE) == Located(follower.addresses)
        assert leader.load_manager.asked == 0


async def test_many_lookups_of_one_bundle_are_one() -> None:
    async with cluster() as (leader, _):
        leader.load_manager.broker = "b:8080"
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(leader.finder.find, BUNDLE)
        assert leader.load_manager.asked == 1


@pytest.mark.parametrize(
    ("namespace", "broker"),
    [
        ("pulsar/b:8080", "b:8080"),
        ("pulsar/c1/b:8080", "b:8080"),
        ("sla-monitor/c1/b:8080", "b:8080"),
        ("pulsar/[::1]:8080", "[::1]:8080"),
        ("pulsar/system", None),
        ("public/b:8080", None),
        ("sla-monitor/b:8080", None),
    ],
)
async def test_some_namespaces_belong_to_a_broker(namespace: str, broker: str | None) -> None:
    assert named_broker(namespace) == broker
    if broker == "b:8080":
        bundle = BundleId(namespace, "0x00000000_0xffffffff")
        async with cluster() as (leader, follower):
            leader.load_manager.broker = "a:8080"
            found = await leader.finder.find(bundle)
            assert found == Located(follower.addresses, redirect=True, authoritative=True)
            assert await follower.finder.find(bundle) == Located(follower.addresses)
