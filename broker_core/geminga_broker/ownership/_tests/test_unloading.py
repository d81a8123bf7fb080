"""Bundles given up: the order of the steps, where clients are told to go, and what fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.ownership.brokers import BROKERS_PATH, ActiveBrokers
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.hold_over import HoldOver
from geminga_broker.ownership.owned import BundleOwnership
from geminga_broker.ownership.records import owner_path
from geminga_broker.ownership.unloading import BundleUnloader, UnloadRunning
from geminga_broker.topic.moving import NOWHERE, Moving
from geminga_runtime.metadata.memory import MemoryMetadataStore

A = Addresses("pulsar://a:6650", "http://a:8080")
B = Addresses("pulsar://b:6650", "http://b:8080")
BUNDLE = BundleId("public/default", "0x00000000_0x40000000")
OTHER = BundleId("public/default", "0x40000000_0x80000000")
TIMEOUT_S = 60.0


class Topics:
    """Writes down what happens to the bundles' topics, and what their clients are told."""

    def __init__(self, ownership: BundleOwnership) -> None:
        self.ownership = ownership
        self.steps: list[str] = []
        self.takes_s = 1.0

    def loaded_of(self, bundle: BundleId) -> list[str]:
        return [f"persistent://{bundle.namespace}/t"]

    async def fence_bundle(self, bundle: BundleId) -> None:
        self.steps.append(f"fence {bundle.range}")

    async def close_bundle(self, bundle: BundleId, moving: Moving | None = None) -> None:
        assert not self.ownership.holds(bundle), "the gate must be shut"
        self.steps.append(f"close {bundle.range}")
        if moving is not None:
            moving.tell(lambda where: self.steps.append(f"told {where.broker_url or 'nothing'}"))
        await trio.sleep(self.takes_s)


class Broker:
    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.ownership = BundleOwnership(self.store, lambda bundles: None)
        self.ownership.addresses = A
        self.topics = Topics(self.ownership)
        self.unloader = BundleUnloader(self.ownership, self.topics, timeout_s=TIMEOUT_S)
        self.other = BundleOwnership(self.store.another_session(), lambda bundles: None)
        self.other.addresses = B
        self.replaced: set[BundleId] = set()
        self.damaged: set[BundleId] = set()
        """By others, that came of a split."""

    async def is_there(self, bundle: BundleId) -> bool:
        return await self.store.exists(owner_path(bundle))


@pytest.fixture
async def broker() -> Broker:
    found = Broker()
    await found.ownership.acquire(BUNDLE)
    return found


async def test_clients_are_told_once_the_node_is_gone(
    broker: Broker, autojump_clock: MockClock
) -> None:
    assert await broker.unloader.unload(BUNDLE)
    assert broker.topics.steps == [f"close {BUNDLE.range}", "told nothing"]
    assert not await broker.is_there(BUNDLE)
    assert not await broker.unloader.unload(BUNDLE), "it isn't owned any more"


async def test_with_a_destination_they_are_told_where(
    broker: Broker, autojump_clock: MockClock
) -> None:
    async def take(broker_id: str, bundle: BundleId, topics: list[str]) -> Addresses:
        assert (broker_id, topics) == ("b:8080", ["persistent://public/default/t"])
        assert broker.topics.steps == [f"close {BUNDLE.range}"], "nobody is told before"
        return (await broker.other.acquire(bundle)).addresses

    broker.unloader.handover = take
    assert await broker.unloader.unload(BUNDLE, "b:8080")
    assert broker.topics.steps[1:] == ["told pulsar://b:6650"]
    assert broker.other.holds(BUNDLE)


async def test_a_destination_that_does_not_answer(
    broker: Broker, autojump_clock: MockClock
) -> None:
    async def never(broker_id: str, bundle: BundleId, topics: list[str]) -> Addresses:
        await trio.sleep_forever()
        return NOWHERE

    broker.unloader.handover = never
    assert await broker.unloader.unload(BUNDLE, "b:8080")
    assert broker.topics.steps[1:] == ["told nothing"]


async def test_a_second_unload_meanwhile_is_refused(
    broker: Broker, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.unloader.unload, BUNDLE)
        await wait_all_tasks_blocked()
        with pytest.raises(UnloadRunning):
            await broker.unloader.unload(BUNDLE)
        assert await broker.is_there(BUNDLE), "nobody may own it before its topics are closed"
    assert not await broker.is_there(BUNDLE)


async def test_a_cancelled_unload_ends(broker: Broker, autojump_clock: MockClock) -> None:
    with trio.move_on_after(0.5):
        await broker.unloader.unload(BUNDLE)
    assert not await broker.is_there(BUNDLE)
    assert broker.topics.steps[-1] == "told nothing"


async def test_topics_that_take_too_long_do_not_hold_it_up(
    broker: Broker, autojump_clock: MockClock
) -> None:
    """They are fenced before another broker may serve them, and closed all the same."""
    broker.topics.takes_s = 10 * TIMEOUT_S
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.unloader.unload, BUNDLE)
        await trio.sleep(TIMEOUT_S - 1)
        assert await broker.is_there(BUNDLE)
        assert broker.topics.steps == [f"close {BUNDLE.range}"]
        await trio.sleep(2)
        assert not await broker.is_there(BUNDLE)
        fence = f"fence {BUNDLE.range}"
        close = f"close {BUNDLE.range}"
        assert broker.topics.steps == [close, fence, "told nothing", fence, close]


async def test_a_broker_that_stops_waits_no_longer_than_it_may(
    broker: Broker, autojump_clock: MockClock
) -> None:
    broker.topics.takes_s = 10 * TIMEOUT_S
    began = trio.current_time()
    with trio.move_on_after(5):
        await broker.unloader.unload_all()
    assert trio.current_time() - began == pytest.approx(5)
    assert broker.topics.steps == [f"close {BUNDLE.range}", "told nothing"]


async def test_while_the_store_is_away_it_waits(broker: Broker, autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        broker.store.set_available(False)
        nursery.start_soon(broker.unloader.unload, BUNDLE)
        await trio.sleep(20)
        assert broker.topics.steps == [f"close {BUNDLE.range}"]
        assert not broker.ownership.holds(BUNDLE)
        broker.store.set_available(True)
        await trio.sleep(2)
        assert broker.topics.steps[-1] == "told nothing"
    assert not await broker.is_there(BUNDLE)


async def test_all_are_given_up(broker: Broker, autojump_clock: MockClock) -> None:
    await broker.ownership.acquire(OTHER)
    await broker.unloader.unload_all()
    assert not await broker.is_there(BUNDLE)
    assert not await broker.is_there(OTHER)
    assert sorted(broker.topics.steps[:2]) == [f"close {BUNDLE.range}", f"close {OTHER.range}"]


async def test_a_bundle_that_comes_back_is_unloaded_again(
    broker: Broker, autojump_clock: MockClock
) -> None:
    """While the first unload still waits for the broker that it was given to."""

    async def slow(*_: object) -> Addresses:
        await trio.sleep(5)
        return B

    broker.unloader.handover = slow
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.unloader.unload, BUNDLE, "b:8080")
        await trio.sleep(2)
        assert not await broker.is_there(BUNDLE)
        await broker.ownership.acquire(BUNDLE)
        nursery.start_soon(broker.unloader.unload, BUNDLE, "b:8080")
        await trio.sleep(1)
        await broker.unloader.unload_all()
        assert trio.current_time() == 8, "both are waited for"


async def test_a_stop_waits_for_an_unload_that_was_begun(
    broker: Broker, autojump_clock: MockClock
) -> None:
    """Else the process might end before the node is removed."""
    broker.topics.takes_s = 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.unloader.unload, BUNDLE)
        await trio.sleep(1)
        await broker.unloader.unload_all()
        assert not await broker.is_there(BUNDLE)


@asynccontextmanager
async def holding_over(broker: Broker) -> AsyncIterator[HoldOver]:

    async def exists(bundle: BundleId) -> bool:
        await broker.store.exists("/")  # it is the store that knows
        if bundle in broker.damaged:
            raise ValueError("no boundaries")
        return bundle not in broker.replaced

    brokers = ActiveBrokers(broker.store)
    found = HoldOver(broker.store, broker.ownership, brokers, broker.unloader, exists)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.run)
        await wait_all_tasks_blocked()
        yield found
        nursery.cancel_scope.cancel()


async def test_lost_topics_are_fenced_before_any_is_closed(
    broker: Broker, autojump_clock: MockClock
) -> None:
    await broker.ownership.acquire(OTHER)
    await broker.store.put(f"{BROKERS_PATH}/b:8080", b"{}")
    async with holding_over(broker) as hold_over:
        broker.store.set_available(False)
        broker.store.expire_session()
        broker.topics.takes_s = 10.0
        began_s = trio.current_time()
        await hold_over.lost([BUNDLE, OTHER])
        assert trio.current_time() - began_s == 10.0, "one that takes long keeps no other waiting"
    fenced = [f"fence {each.range}" for each in (BUNDLE, OTHER)]
    assert broker.topics.steps[:2] == fenced
    assert sorted(broker.topics.steps[2:]) == [step.replace("fence", "close") for step in fenced]


async def test_a_broker_alone_goes_on_without_its_session(
    broker: Broker, autojump_clock: MockClock
) -> None:
    await broker.store.put(f"{BROKERS_PATH}/a:8080", b"{}")
    async with holding_over(broker) as hold_over:
        broker.store.set_available(False)
        broker.store.expire_session()
        await hold_over.lost([BUNDLE])
        await trio.sleep(100)
        assert (broker.topics.steps, hold_over.kept) == ([], [BUNDLE])
        broker.store.set_available(True)
        await trio.sleep(2)
        assert broker.ownership.holds(BUNDLE)
        assert (broker.topics.steps, hold_over.kept) == ([], [])


async def test_another_one_that_began_meanwhile_has_them(
    broker: Broker, autojump_clock: MockClock
) -> None:
    async with holding_over(broker) as hold_over:
        broker.store.set_available(False)
        broker.store.expire_session()
        await hold_over.lost([BUNDLE])
        await broker.other.acquire(BUNDLE)
        broker.store.set_available(True)
        await trio.sleep(5)
        assert broker.topics.steps == [f"fence {BUNDLE.range}", f"close {BUNDLE.range}"]
        assert not broker.ownership.holds(BUNDLE)


async def test_a_bundle_that_was_split_meanwhile_is_not_claimed_again(
    broker: Broker, autojump_clock: MockClock
) -> None:
    """The change of the boundaries was made, and its answer lost with the session."""
    async with holding_over(broker) as hold_over:
        broker.store.set_available(False)
        broker.store.expire_session()
        broker.replaced.add(BUNDLE)
        await hold_over.lost([BUNDLE, OTHER])
        broker.store.set_available(True)
        await trio.sleep(5)
        assert broker.topics.steps == [f"fence {BUNDLE.range}", f"close {BUNDLE.range}"]
        assert broker.ownership.owned() == [OTHER]


async def test_a_damaged_record_ends_nothing(
    broker: Broker, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with holding_over(broker) as hold_over:
        broker.store.set_available(False)
        broker.store.expire_session()
        broker.damaged.add(BUNDLE)
        await hold_over.lost([BUNDLE, OTHER])
        broker.store.set_available(True)
        await trio.sleep(5)
        assert broker.topics.steps == [f"fence {BUNDLE.range}", f"close {BUNDLE.range}"]
        assert broker.ownership.owned() == [OTHER]
    assert f"bundle={BUNDLE} is given up: ValueError: no boundaries" in caplog.text


async def test_a_node_that_was_taken_is_no_outage(
    broker: Broker, autojump_clock: MockClock
) -> None:
    async with holding_over(broker) as hold_over:
        await broker.ownership.forget(BUNDLE)
        await hold_over.lost([BUNDLE])
        assert broker.topics.steps == [f"fence {BUNDLE.range}", f"close {BUNDLE.range}"]
