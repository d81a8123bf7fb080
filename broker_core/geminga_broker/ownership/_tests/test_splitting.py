"""Bundles that are split."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import JsonObject
from geminga_broker.ownership._tests.without_topics import NoTopics
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.records import owner_path
from geminga_broker.ownership.splitting import BundleGone, BundleSplitter, NotOwned
from geminga_broker.ownership.unloading import SPLIT_S, BundleUnloader, UnloadRunning
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import StoreUnavailable, ValueTooLarge
from geminga_runtime.metadata.memory import MemoryMetadataStore

A = Addresses("pulsar://a:6650", "http://a:8080")
B = Addresses("pulsar://b:6650", "http://b:8080")
LOWEST = BundleId("public/default", "0x00000000_0x40000000")
HIGHEST = BundleId("public/default", "0xc0000000_0xffffffff")


class Broker:
    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.namespaces = Namespaces(self.store)
        self.ownership = BundleOwnership(self.store, lambda bundles: None)
        self.ownership.addresses = A
        self.unloader = BundleUnloader(self.ownership, NoTopics(), timeout_s=1)
        self.splitter = BundleSplitter(self.namespaces, self.ownership, self.unloader)

    async def boundaries(self) -> list[int]:
        return list((await self.namespaces.bundles("public/default")).boundaries)


@pytest.fixture
async def broker() -> Broker:
    found = Broker()
    await found.namespaces.bootstrap("c1", {}, 4)
    for bundle in (LOWEST, HIGHEST):
        await found.ownership.acquire(bundle)
    return found


EVEN = [0, 0x40000000, 0x80000000, 0xC0000000, 0xFFFFFFFF]


async def test_the_parts_are_owned_and_stand_in_the_boundaries(broker: Broker) -> None:
    parts = await broker.splitter.split(LOWEST, [0x30000000, 0x10000000])
    assert [part.range for part in parts] == [
        "0x00000000_0x10000000",
        "0x10000000_0x30000000",
        "0x30000000_0x40000000",
    ]
    assert await broker.boundaries() == [0, 0x10000000, 0x30000000, *EVEN[1:]]
    assert all(broker.ownership.holds(part) for part in parts)
    assert not broker.ownership.holds(LOWEST)
    assert not await broker.store.exists(owner_path(LOWEST))


async def test_the_last_bundle_keeps_its_end(broker: Broker) -> None:
    parts = await broker.splitter.split(HIGHEST, [0xD0000000])
    assert [part.range for part in parts] == ["0xc0000000_0xd0000000", "0xd0000000_0xffffffff"]
    assert parts[1].bounds == (0xD0000000, 1 << 32)
    every = [
        BundleId("public/default", r)
        for r in (await broker.namespaces.bundles("public/default")).names()
    ]
    for number in range(1000):
        name = TopicName.parse(f"persistent://public/default/t{number}")
        bundle = await broker.namespaces.bundle_of(name)
        assert [each for each in every if each.covers(str(name))] == [bundle]


async def test_with_unload_they_are_given_up(broker: Broker) -> None:
    parts = await broker.splitter.split(LOWEST, [0x10000000], unload=True)
    for part in parts:
        assert not await broker.store.exists(owner_path(part))


@pytest.mark.parametrize("cuts", [[], [0], [0x40000000], [0x10000000, 0x50000000]])
async def test_cuts_lie_within_the_bundle(broker: Broker, cuts: list[int]) -> None:
    with pytest.raises(ValueError, match="hashes within it"):
        await broker.splitter.split(LOWEST, cuts)
    assert await broker.boundaries() == EVEN
    assert broker.ownership.holds(LOWEST)


async def test_only_the_owner_splits(broker: Broker) -> None:
    with pytest.raises(NotOwned):
        await broker.splitter.split(BundleId("public/default", "0x40000000_0x80000000"), [1 << 30])


@pytest.mark.parametrize("is_late", [True, False])
async def test_a_namespace_that_is_deleted_meanwhile(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    change, namespaces = broker.namespaces.change_local_policies, broker.namespaces

    async def late(namespace: str, made: Callable[[JsonObject], JsonObject]) -> None:
        await namespaces.delete(namespace)
        await change(namespace, made)

    if is_late:
        monkeypatch.setattr(namespaces, "change_local_policies", late)
    else:
        await namespaces.delete("public/default")
    with pytest.raises(BundleGone):
        await broker.splitter.split(LOWEST, [0x10000000])
    assert sorted(broker.ownership.owned()) == sorted([LOWEST, HIGHEST])


async def test_a_part_that_is_being_unloaded_refuses_the_split(broker: Broker) -> None:
    """It would be taken as disabled, and be nobody's in the end."""
    part = BundleId("public/default", "0x10000000_0x40000000")
    await broker.ownership.acquire(part)
    await broker.ownership.disable(part)
    with pytest.raises(UnloadRunning, match="0x10000000_0x40000000 is being unloaded"):
        await broker.splitter.split(LOWEST, [0x10000000])
    assert await broker.boundaries() == EVEN
    assert broker.ownership.holds(LOWEST)


async def test_a_part_of_another_broker_leaves_the_bundle_as_it_was(broker: Broker) -> None:
    other = BundleOwnership(broker.store.another_session(), lambda bundles: None)
    other.addresses = B
    await other.acquire(BundleId("public/default", "0x10000000_0x40000000"))
    with pytest.raises(StoreUnavailable):
        await broker.splitter.split(LOWEST, [0x10000000])
    assert sorted(broker.ownership.owned()) == sorted([LOWEST, HIGHEST])
    assert await broker.boundaries() == EVEN


@pytest.mark.parametrize("is_done", [True, False])
async def test_boundaries_whose_change_has_no_answer(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
    is_done: bool,
) -> None:
    """If the parts were given up, others would own them while the topics are loaded here."""
    change, asked = broker.namespaces.change_local_policies, 0

    async def unanswered(namespace: str, how: Callable[[JsonObject], JsonObject]) -> None:
        nonlocal asked
        asked += 1
        if asked > 2 or is_done:
            await change(namespace, how)
        if asked <= 2:
            raise StoreUnavailable("no answer")

    monkeypatch.setattr(broker.namespaces, "change_local_policies", unanswered)
    parts = await broker.splitter.split(LOWEST, [0x10000000])
    assert await broker.boundaries() == [0, 0x10000000, *EVEN[1:]]
    assert sorted(broker.ownership.owned()) == sorted([*parts, HIGHEST])


async def test_boundaries_that_the_store_does_not_take(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """They are not tried for ever, by a call that nothing cancels."""

    async def refused(_namespace: str, _change: object) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ValueTooLarge("a megabyte of boundaries")
        raise AssertionError("it was refused")

    asked = 0
    monkeypatch.setattr(broker.namespaces, "change_local_policies", refused)
    with pytest.raises(ValueTooLarge):
        await broker.splitter.split(LOWEST, [0x10000000])
    assert sorted(broker.ownership.owned()) == sorted([LOWEST, HIGHEST])


async def test_a_bundle_that_is_lost_meanwhile_is_not_cut(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read the boundaries took so long that another broker has it."""
    change = broker.namespaces.change_local_policies

    async def late(namespace: str, made: Callable[[JsonObject], JsonObject]) -> None:
        broker.store.expire_session()
        await change(namespace, made)

    monkeypatch.setattr(broker.namespaces, "change_local_policies", late)
    with pytest.raises(NotOwned, match="was lost while it was split"):
        await broker.splitter.split(LOWEST, [0x10000000])
    assert await broker.boundaries() == EVEN


async def test_a_lost_session_ends_a_split(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def away(_namespace: str, _change: object) -> None:
        broker.store.expire_session()
        raise StoreUnavailable("away")

    monkeypatch.setattr(broker.namespaces, "change_local_policies", away)
    with pytest.raises(StoreUnavailable):
        await broker.splitter.split(LOWEST, [0x10000000])
    assert broker.ownership.owned() == []


@asynccontextmanager
async def splitting(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[trio.Nursery]:
    """The nursery of a split of the lowest bundle that takes a second, of which half is over."""
    change = broker.namespaces.change_local_policies

    async def slow(namespace: str, how: Callable[[JsonObject], JsonObject]) -> None:
        await trio.sleep(1)
        await change(namespace, how)

    monkeypatch.setattr(broker.namespaces, "change_local_policies", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.splitter.split, LOWEST, [0x20000000])
        await trio.sleep(0.5)
        yield nursery


async def test_a_stop_gives_up_what_a_split_makes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Other brokers need not wait until the session has ended."""
    async with splitting(broker, monkeypatch):
        await broker.unloader.unload_all()
        assert broker.ownership.owned() == []
        assert trio.current_time() == 1
    assert await broker.boundaries() == [0, 0x20000000, *EVEN[1:]]
    for part in ("0x00000000_0x20000000", "0x20000000_0x40000000"):
        assert not await broker.store.exists(owner_path(BundleId("public/default", part)))


async def test_a_stop_does_not_wait_for_a_split_that_never_ends(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def refused(_namespace: str, _how: object) -> None:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(broker.namespaces, "change_local_policies", refused)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.splitter.split, LOWEST, [0x20000000])
        await trio.sleep(0.5)
        await broker.unloader.unload_all()
        assert trio.current_time() == 0.5 + SPLIT_S
        assert not broker.ownership.holds(HIGHEST)
        monkeypatch.undo()


async def test_nothing_else_begins_with_a_bundle_that_is_split(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A second split gave up the parts of the first one, whose topics went on."""
    async with splitting(broker, monkeypatch) as nursery:
        with pytest.raises(UnloadRunning):
            await broker.splitter.split(LOWEST, [0x20000000])
        with pytest.raises(UnloadRunning):
            await broker.unloader.unload(LOWEST)
        nursery.cancel_scope.cancel()
    assert await broker.boundaries() == [0, 0x20000000, *EVEN[1:]], "a cancelled one ends"
    assert [each.range for each in broker.ownership.owned()] == [
        "0xc0000000_0xffffffff",
        "0x00000000_0x20000000",
        "0x20000000_0x40000000",
    ]


async def test_of_two_splits_one_finds_the_bundle_gone(broker: Broker) -> None:
    stale = BundleOwnership(broker.store, lambda bundles: None)
    stale.addresses = A
    await stale.acquire(LOWEST)
    unloader = BundleUnloader(stale, NoTopics(), timeout_s=1)
    late = BundleSplitter(broker.namespaces, stale, unloader)
    await broker.splitter.split(LOWEST, [0x10000000])
    with pytest.raises(BundleGone):
        await late.split(LOWEST, [0x20000000])
    assert await broker.boundaries() == [0, 0x10000000, *EVEN[1:]]
