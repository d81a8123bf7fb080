"""Bundles that were taken while their namespace was deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.namespaces import LOCAL_POLICIES, POLICIES, Namespaces
from geminga_broker.ownership._tests.without_topics import NoTopics
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.deserted import DesertedBundles
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.splitting import BundleGone, BundleSplitter
from geminga_broker.ownership.unloading import BundleUnloader
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.metadata.tree import PERSISTENT, Put

NAMESPACE = "public/n"
WHOLE = BundleId(NAMESPACE, "0x00000000_0x80000000")
PART = BundleId(NAMESPACE, "0x00000000_0x40000000")
PARTS = (PART, BundleId(NAMESPACE, "0x40000000_0x80000000"))
OTHER = BundleId("public/default", "0x00000000_0xffffffff")


ROOTS = [POLICIES, LOCAL_POLICIES]


class Broker:
    def __init__(self, store: MemoryMetadataStore, name: str) -> None:
        self.namespaces = Namespaces(store)
        self.ownership = BundleOwnership(store, lambda bundles: None)
        self.ownership.addresses = Addresses(f"pulsar://{name}:6650", f"http://{name}:8080")
        self.unloader = BundleUnloader(self.ownership, NoTopics(), timeout_s=1)
        self.splitter = BundleSplitter(self.namespaces, self.ownership, self.unloader)
        self.deserted = DesertedBundles(store, self.namespaces, self.ownership, self.unloader)


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[MemoryMetadataStore, Broker, Broker]]:
    store = MemoryMetadataStore()
    first, second = Broker(store, "a"), Broker(store.another_session(), "b")
    await first.namespaces.bootstrap("c1", {}, 1)
    await first.ownership.acquire(OTHER)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.deserted.run)
        await wait_all_tasks_blocked()
        yield store, first, second
        nursery.cancel_scope.cancel()


async def made(broker: Broker, bundles: int) -> None:
    await broker.namespaces.create(NAMESPACE, bundles=bundles, clusters=["c1"])


def put(store: MemoryMetadataStore, path: str, value: bytes) -> None:
    store.put_now(Put(path, value, None, PERSISTENT, False))


async def test_a_later_namespace_of_the_name_can_be_split() -> None:
    async with two_brokers() as (_, first, second):
        await made(first, 4)
        owner = await first.ownership.take(PART, first.namespaces.has_bundle)
        assert owner is not None, "the deletion has begun, and isn't over"
        await second.namespaces.delete(NAMESPACE)
        await made(second, 2)
        await second.ownership.acquire(WHOLE)
        await wait_all_tasks_blocked()
        assert first.ownership.owned() == [OTHER]
        parts = await second.splitter.split(WHOLE, [0x40000000])
        assert parts[0] == PART
        assert all(second.ownership.holds(part) for part in parts)


async def test_what_the_later_namespace_has_too_stays() -> None:
    async with two_brokers() as (store, first, _):
        await made(first, 4)
        await first.ownership.acquire(PART)
        await wait_all_tasks_blocked()
        for root in ROOTS:
            node = store.get_now(f"{root}/{NAMESPACE}")
            assert node is not None
            store.delete_now(f"{root}/{NAMESPACE}", None)
            put(store, f"{root}/{NAMESPACE}", node.value)
        await wait_all_tasks_blocked()
        assert first.ownership.owned() == [OTHER, PART]


@pytest.mark.parametrize("kept", [[], ROOTS[1:]])
@pytest.mark.parametrize("missing", [[], ROOTS[1:]])
async def test_the_policies_decide(missing: list[str], kept: list[str]) -> None:
    """One that another cluster made may have no local policies here; where clusters share a
    configuration store, one that another cluster deletes leaves them.
    """
    async with two_brokers() as (store, first, _):
        await made(first, 4)
        for root in missing:
            store.delete_now(f"{root}/{NAMESPACE}", None)
        await wait_all_tasks_blocked()
        await first.ownership.acquire(PART)
        assert first.ownership.owned() == [OTHER, PART]
        for root in set(ROOTS) - {*missing, *kept}:
            store.delete_now(f"{root}/{NAMESPACE}", None)
        await wait_all_tasks_blocked()
        assert first.ownership.owned() == [OTHER]


@asynccontextmanager
async def split_waits(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, whose: object, call: str
) -> AsyncIterator[None]:
    """A split of WHOLE, which waits in that call while the block runs, and ends behind it."""
    done, go = getattr(whose, call), trio.Event()

    async def slow(*args: object) -> object:
        await go.wait()
        return await done(*args)

    async def split() -> None:
        with suppress(BundleGone):
            await broker.splitter.split(WHOLE, [0x40000000])

    monkeypatch.setattr(whose, call, slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(split)
        await wait_all_tasks_blocked()
        yield
        await trio.sleep(2)
        go.set()
    await trio.sleep(2)


@pytest.mark.parametrize("is_made_anew", [False, True])
async def test_a_deletion_that_meets_a_split(
    is_made_anew: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """The bundle is given up once the split has failed, and no part of one that goes on: its topics
    would be served by nobody's leave.
    """
    async with two_brokers() as (_, first, second):
        await made(first, 2)
        await first.ownership.acquire(WHOLE)
        async with split_waits(first, monkeypatch, first.namespaces, "change_local_policies"):
            await second.namespaces.delete(NAMESPACE)
            if is_made_anew:
                await made(second, 2)
        owned = {OTHER, *(PARTS if is_made_anew else ())}
        assert set(first.ownership.owned()) == owned
        for bundle in {WHOLE, *PARTS} - owned:
            assert await second.ownership.owner(bundle) is None


@pytest.mark.parametrize("is_missing", [True, False])
async def test_after_missed_changes(is_missing: bool) -> None:
    """A split that is under way has its parts already: they aren't given up."""
    async with two_brokers() as (store, first, _):
        await made(first, 2)
        await first.ownership.acquire(PART)
        for number in range(2000):  # more than a watch keeps
            for root in ROOTS:
                put(store, f"{root}/public/x{number}", b"{}")
        if is_missing:
            for root in ROOTS:
                store.delete_now(f"{root}/{NAMESPACE}", None)
        await wait_all_tasks_blocked()
        assert first.ownership.owned() == ([OTHER] if is_missing else [OTHER, PART])


@pytest.mark.parametrize("bundles_anew", [0, 8])
async def test_parts_that_a_split_takes_while_its_bundle_is_given_up(
    bundles_anew: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """The later namespace hasn't them; or there is none, and its local policies have stayed."""
    async with two_brokers() as (store, first, second):
        await made(first, 2)
        await first.ownership.acquire(WHOLE)
        async with split_waits(first, monkeypatch, first.ownership, "acquire"):
            if bundles_anew:
                await second.namespaces.delete(NAMESPACE)
                await made(second, bundles_anew)
            else:
                store.delete_now(f"{POLICIES}/{NAMESPACE}", None)
        assert first.ownership.owned() == [OTHER]


async def test_what_the_later_namespace_lacks_is_given_up() -> None:
    async with two_brokers() as (store, first, _):
        await made(first, 4)
        await first.namespaces.create("public/m", bundles=8, clusters=["c1"])
        await first.ownership.acquire(PART)
        await wait_all_tasks_blocked()
        for root in ROOTS:
            node = store.get_now(f"{root}/public/m")
            assert node is not None
            store.delete_now(f"{root}/{NAMESPACE}", None)
            put(store, f"{root}/{NAMESPACE}", node.value)
        await wait_all_tasks_blocked()
        assert first.ownership.owned() == [OTHER]
