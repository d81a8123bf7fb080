"""Bundles taken, given up and lost, by two brokers on one store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.records import owner_path
from geminga_runtime.metadata.api import (
    ANY_VERSION,
    MetadataStore,
    Node,
    SessionExpired,
    Stat,
    StoreUnavailable,
)
from geminga_runtime.metadata.memory import MemoryMetadataStore

A = Addresses("pulsar://a:6650", "http://a:8080")
B = Addresses("pulsar://b:6650", "http://b:8080", "pulsar+ssl://b:6651")
BUNDLE = BundleId("public/default", "0x00000000_0x40000000")
OTHER = BundleId("public/default", "0x40000000_0x80000000")


class Broker:
    def __init__(self, store: MetadataStore, addresses: Addresses) -> None:
        self.lost: list[BundleId] = []
        self.ownership = BundleOwnership(store, self.lost.extend)
        self.ownership.addresses = addresses


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[MemoryMetadataStore, Broker, Broker]]:
    store = MemoryMetadataStore()
    first, second = Broker(store, A), Broker(store.another_session(), B)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first.ownership.run)
        nursery.start_soon(second.ownership.run)
        await wait_all_tasks_blocked()
        yield store, first, second
        nursery.cancel_scope.cancel()


async def test_the_first_to_ask_owns_it() -> None:
    async with two_brokers() as (store, first, second):
        assert await first.ownership.owner(BUNDLE) is None
        assert (await first.ownership.acquire(BUNDLE)).addresses == A
        assert (await second.ownership.acquire(BUNDLE)).addresses == A
        assert first.ownership.holds(BUNDLE)
        assert not second.ownership.holds(BUNDLE)
        found = await second.ownership.owner(BUNDLE)
        assert found is not None
        assert found.addresses == A
        assert first.ownership.owned() == [BUNDLE]
        node = await store.get(owner_path(BUNDLE))
        assert node is not None
        assert node.stat.ephemeral
        assert msgspec.json.decode(node.value) == {
            "nativeUrl": "pulsar://a:6650",
            "httpUrl": "http://a:8080",
            "disabled": False,
            "advertisedListeners": {},
        }


async def test_it_is_given_up_in_two_steps() -> None:
    async with two_brokers() as (_, first, second):
        await first.ownership.acquire(BUNDLE)
        await first.ownership.disable(BUNDLE)
        assert not first.ownership.holds(BUNDLE)
        assert first.ownership.is_unloading(BUNDLE)
        found = await second.ownership.acquire(BUNDLE)
        assert (found.addresses, found.disabled) == (A, True), "nobody takes it yet"
        await first.ownership.release(BUNDLE)
        assert (await second.ownership.acquire(BUNDLE)).addresses == B
        assert second.ownership.holds(BUNDLE)
        assert (first.lost, first.ownership.owned()) == ([], [])


async def test_it_is_lost_with_the_session() -> None:
    async with two_brokers() as (store, first, second):
        await first.ownership.acquire(BUNDLE)
        await first.ownership.acquire(OTHER)
        store.expire_session()
        assert not first.ownership.holds(BUNDLE), "without a turn of the loop"
        assert first.ownership.owned() == []
        assert (await second.ownership.acquire(BUNDLE)).addresses == B
        await wait_all_tasks_blocked()
        assert first.lost == [BUNDLE, OTHER]
        assert (await first.ownership.acquire(OTHER)).addresses == A, "in the new session"
        assert first.ownership.holds(OTHER)


async def test_a_node_that_somebody_removed_or_took_is_lost() -> None:
    async with two_brokers() as (store, first, second):
        for bundle in (BUNDLE, OTHER):
            await first.ownership.acquire(bundle)
        await store.delete(owner_path(BUNDLE))
        await wait_all_tasks_blocked()
        assert first.lost == [BUNDLE]
        await store.delete(owner_path(OTHER))
        assert (await second.ownership.acquire(OTHER)).addresses == B
        await wait_all_tasks_blocked()
        assert first.lost == [BUNDLE, OTHER]
        assert second.ownership.holds(OTHER)


async def test_a_node_of_an_earlier_life_is_replaced() -> None:
    """A broker that was killed starts again before its old session ends."""
    store = MemoryMetadataStore()
    killed = Broker(store, A)
    await killed.ownership.acquire(BUNDLE)
    session = store.another_session()
    again = Broker(session, A)
    assert (await again.ownership.acquire(BUNDLE)).addresses == A
    assert again.ownership.holds(BUNDLE)
    store.expire_session()
    assert again.ownership.holds(BUNDLE)
    assert await session.exists(owner_path(BUNDLE)), "it is of the new session"


NESTED = b'{"nativeUrl": "a", "more": ' + b"[" * 100_000
NO_RECORDS = [b"", b"{", b"[]", b'{"disabled": 3}', b'{"nativeUrl": "\xff"}', NESTED]


@pytest.mark.parametrize("value", NO_RECORDS)
async def test_a_node_that_is_no_record_is_replaced(value: bytes) -> None:
    store = MemoryMetadataStore()
    await store.put(owner_path(BUNDLE), value)
    broker = Broker(store, A)
    assert await broker.ownership.owner(BUNDLE) is None
    assert (await broker.ownership.acquire(BUNDLE)).addresses == A


@pytest.mark.parametrize("value", NO_RECORDS)
async def test_a_record_of_a_living_broker_that_cant_be_read_is_left_alone(value: bytes) -> None:
    """Of a later version, for example: two would serve the bundle."""
    store = MemoryMetadataStore()
    other = store.another_session()
    await other.put(owner_path(BUNDLE), value, epoch=other.session.epoch)
    broker = Broker(store, A)
    with pytest.raises(StoreUnavailable, match="can't be read"):
        await broker.ownership.acquire(BUNDLE)
    assert not broker.ownership.holds(BUNDLE)
    node = await store.get(owner_path(BUNDLE))
    assert node is not None
    assert node.value == value
    other.expire_session()
    assert (await broker.ownership.acquire(BUNDLE)).addresses == A


@pytest.mark.parametrize("step", ["disable", "release"])
async def test_nothing_is_taken_from_the_owner_of_a_later_session(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The process is paused between its decision and its request, until its session has ended."""
    async with two_brokers() as (store, first, second):
        await first.ownership.acquire(BUNDLE)
        get, put = store.get, store.put

        async def pause() -> None:
            monkeypatch.undo()
            store.expire_session()
            assert (await second.ownership.acquire(BUNDLE)).addresses == B

        async def late_get(path: str) -> Node | None:
            found = await get(path)
            await pause()
            return found

        async def late_put(
            path: str, value: bytes, version: int | None, *, epoch: int | None = None
        ) -> tuple[str, Stat]:
            await pause()
            return await put(path, value, version, epoch=epoch)

        monkeypatch.setattr(store, "get", late_get)
        monkeypatch.setattr(store, "put", late_put)
        if step == "disable":
            with pytest.raises(SessionExpired):
                await first.ownership.disable(BUNDLE)
        else:
            await first.ownership.release(BUNDLE)
        found = await first.ownership.owner(BUNDLE)
        assert found is not None
        assert (found.addresses, found.disabled) == (B, False)
        await wait_all_tasks_blocked()
        assert second.lost == []


async def test_a_node_whose_answer_was_lost_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryMetadataStore()
    broker = Broker(store, A)
    put = store.put

    async def unanswered(path: str, value: bytes, version: int | None, *, epoch: int) -> None:
        await put(path, value, version, epoch=epoch)
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(store, "put", unanswered)
    assert (await broker.ownership.acquire(BUNDLE)).addresses == A
    assert broker.ownership.holds(BUNDLE)


async def test_a_release_whose_answer_was_lost_takes_nothing_from_the_next_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_brokers() as (store, first, second):
        await first.ownership.acquire(BUNDLE)
        await first.ownership.disable(BUNDLE)
        delete = store.delete

        async def unanswered(path: str, version: int | None = None) -> None:
            await delete(path, version)
            raise StoreUnavailable("no answer")

        monkeypatch.setattr(store, "delete", unanswered)
        with pytest.raises(StoreUnavailable):
            await first.ownership.release(BUNDLE)
        assert (await second.ownership.acquire(BUNDLE)).addresses == B
        monkeypatch.setattr(store, "delete", delete)
        await first.ownership.release(BUNDLE)
        await wait_all_tasks_blocked()
        assert second.ownership.holds(BUNDLE)
        assert second.lost == []


async def test_what_is_forgotten_is_removed_though_a_request_is_lost(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Left there it would refuse another broker that splits at this hash."""
    async with two_brokers() as (store, first, second):
        await first.ownership.acquire(BUNDLE)
        delete = store.delete

        async def lost(path: str, version: int | None = None) -> None:
            monkeypatch.setattr(store, "delete", delete)
            raise StoreUnavailable("the connection was lost")

        monkeypatch.setattr(store, "delete", lost)
        await first.ownership.forget(BUNDLE)
        assert (await second.ownership.acquire(BUNDLE)).addresses == B


class LateStore(MemoryMetadataStore):
    """Answers a write a second after it was done."""

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """MetadataStore.put."""
        made = await super().put(path, value, expected_version, epoch=epoch, sequential=sequential)
        await trio.sleep(1)
        return made


async def test_what_is_being_taken_is_not_removed(autojump_clock: MockClock) -> None:
    store = LateStore()
    broker = Broker(store, A)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.ownership.acquire, BUNDLE)
        await wait_all_tasks_blocked()
        await broker.ownership.forget(BUNDLE)
    assert broker.ownership.holds(BUNDLE)
    assert await store.get(owner_path(BUNDLE)) is not None


async def test_many_that_ask_write_once(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    broker = Broker(store, A)
    found: list[Addresses] = []

    async def ask() -> None:
        found.append((await broker.ownership.acquire(BUNDLE)).addresses)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    node = await store.get(owner_path(BUNDLE))
    assert node is not None
    assert node.stat.version == 0
    assert found == [A] * 20
