"""Policies of topics in the system topics of one and of two brokers."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest
import trio
import trio.testing

from geminga_bookie.memory import MemoryBookie
from geminga_broker.change_events import follower
from geminga_broker.change_events._tests.followed import (
    EVENTS,
    NP,
    OLDER,
    PART,
    T,
    U,
    brokers,
    having,
)
from geminga_broker.change_events.api import EventsUnavailable
from geminga_broker.change_events.store import SystemTopicPolicies
from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import BrokerConfig, TopicConfig
from geminga_broker.errors import BrokerError
from geminga_broker.inner_client import client_of_broker
from geminga_broker.log._tests.leftovers import Clock, Trouble, TroubledStore
from geminga_broker.policies.resolve import NoTopicPolicies
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MetadataError, MetadataStore
from geminga_runtime.metadata.memory import MemoryMetadataStore


async def test_records_come_and_go() -> None:
    async with brokers() as (service,):
        store = service.policies.store
        assert await store.get(T) == {}
        await store.delete(T)
        await store.update(T, lambda old: old | {"maxMessageSize": 1})
        await store.update(PART, lambda old: old | {"maxProducerPerTopic": 2})
        record = {"maxMessageSize": 1, "maxProducerPerTopic": 2}
        assert await store.get(PART) == await store.get(T) == record
        assert await store.get(NP) == await store.get(U) == {}
        await store.delete(T)
        assert await store.get(T) == {}
        assert str(EVENTS) in service.topics.loaded


async def test_reading_makes_nothing() -> None:
    async with brokers() as (service,):
        await service.topics.get(T, create=True)
        store = service.policies.store
        assert await store.get(T) == {}
        await store.update(T, lambda old: {})
        await store.delete(T)
        await service.topics.delete(T)
        assert await service.catalog.persistent("public/default") == []
        assert await store.get(TopicName.parse("persistent://no/namespace/t")) == {}


async def test_writers_at_once_lose_nothing() -> None:
    async with brokers() as (service,):

        async def add(number: int) -> None:
            rate: JsonObject = {"dispatchRate": {"dispatchThrottlingRateInMsg": number}}

            def change(old: JsonObject) -> JsonObject:
                before = old.get("subscriptionPolicies") or {}
                assert isinstance(before, dict)
                return {"subscriptionPolicies": {**before, str(number): rate}}

            await service.policies.store.update(T, change)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(add, number)
        found = (await service.policies.store.get(T))["subscriptionPolicies"]
        assert isinstance(found, dict)
        assert len(found) == 10


async def test_what_holds_in_all_clusters_is_beneath_what_holds_here() -> None:
    async with brokers() as (service,):
        store = service.policies.store
        everywhere: JsonObject = {"maxMessageSize": 1, "messageTTLInSeconds": 2}
        await store.update(T, lambda old: everywhere, is_global=True)
        assert await store.get(T) == everywhere
        quota = {"limit": 0, "limitTime": 4, "policy": "producer_exception"}
        for kind, is_global in (("message_age", True), ("destination_storage", False)):
            await store.update(T, having(backLogQuotaMap={kind: quota}), is_global=is_global)
        await store.update(T, lambda old: old | {"maxMessageSize": 3})
        assert await store.get(T) == {
            "maxMessageSize": 3,
            "messageTTLInSeconds": 2,
            "backLogQuotaMap": {"message_age": quota, "destination_storage": quota},
        }
        assert (await store.at(T, is_global=True))["maxMessageSize"] == 1
        await store.delete(T)
        assert await store.get(T) == {}


async def test_a_change_reaches_the_loaded_topics_of_every_broker() -> None:
    async with brokers(2) as (here, there):
        await there.ownership.acquire(await there.namespaces.bundle_of(T))
        await here.ownership.acquire(await here.namespaces.bundle_of(EVENTS))
        topic = await there.topics.get(T, create=True)
        for value in (5, 6):
            await here.policies.store.update(T, having(maxProducerPerTopic=value))
            with trio.fail_after(20):
                while topic.options.producers_max != value:  # noqa: ASYNC110 - told by nobody
                    await trio.sleep(0.01)
        assert str(EVENTS) in here.topics.loaded
        assert str(EVENTS) not in there.topics.loaded
        await there.topics.unload(T)
        topic = await there.topics.get(T, create=True)
        assert topic.options.producers_max == 6
        await there.topics.delete(T)
        with trio.fail_after(20):
            while await here.policies.store.get(T):  # noqa: ASYNC110 - told by nobody
                await trio.sleep(0.01)


async def test_policies_are_there_after_a_restart_and_after_compaction() -> None:
    store, bookie = MemoryMetadataStore(), MemoryBookie()
    async with brokers(store=store, bookie=bookie) as (service,):
        for value in range(20):
            for name in (T, U):
                await service.policies.store.update(name, having(maxMessageSize=value + 1))
        await service.policies.store.delete(U)
        topic = await service.topics.get(EVENTS, create=False)
        assert isinstance(topic, PersistentTopic)
        assert topic.policies.compaction.threshold_bytes == 1
        topic.compaction.trigger()
        await topic.compaction.wait()
        assert topic.compaction.horizon is not None
    async with brokers(store=store, bookie=bookie) as (service,):
        topic = await service.topics.get(T, create=True)
        assert topic.policies.message_bytes_max == 20
        assert await service.policies.store.get(U) == {}


async def test_what_is_no_event_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    store, bookie = MemoryMetadataStore(), MemoryBookie()
    async with brokers(store=store, bookie=bookie) as (service,):
        await service.policies.store.update(T, lambda old: {"maxMessageSize": 1})
        async with (
            client_of_broker(service) as client,
            client.create_producer(str(EVENTS)) as producer,
        ):
            for data in (b"", b"\xff" * 100, b"x" * 100_000):
                await producer.send(data, partition_key=str(T))
            await producer.send(b"no key")
        await service.policies.store.update(U, lambda old: {"maxMessageSize": 2})
        skipped = [each for each in caplog.records if "skipped" in each.getMessage()]
        assert len(skipped) == 4
        assert all(each.levelno == logging.WARNING for each in skipped)
        assert await service.policies.store.get(T) == {"maxMessageSize": 1}
    async with brokers(store=store, bookie=bookie) as (service,):
        assert await service.policies.store.get(T) == {"maxMessageSize": 1}
        assert await service.policies.store.get(U) == {"maxMessageSize": 2}


async def test_one_load_at_a_time_is_enough() -> None:
    config = BrokerConfig(topics=TopicConfig(loads_max=1, allow_auto_creation=False))
    store, bookie = MemoryMetadataStore(), MemoryBookie()
    async with brokers(config=config, store=store, bookie=bookie) as (service,):
        await service.topics.create(T)
        await service.policies.store.update(T, lambda old: {"maxMessageSize": 1})
    async with brokers(config=config, store=store, bookie=bookie) as (service,):
        with trio.fail_after(10):
            topic = await service.topics.get(T, create=False)
        assert topic.policies.message_bytes_max == 1


async def test_a_system_topic_is_neither_limited_nor_deleted() -> None:
    limit: JsonObject = {
        "max_producers_per_topic": 1,
        "message_ttl_in_seconds": 1,
        "deduplicationEnabled": True,
        "encryption_required": True,
        "max_topics_per_namespace": 1,
        "retention_policies": {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5},
    }
    async with brokers() as (service,):
        await service.namespaces.tenants.update("public/default", lambda old: old | limit)
        await service.topics.get(T, create=True)
        await service.policies.store.update(T, lambda old: {"maxMessageSize": 1})
        topic = await service.topics.get(EVENTS, create=False)
        policies, options = topic.policies, topic.options
        assert (options.producers_max, options.encryption_required) == (0, False)
        assert (policies.message_ttl_s, policies.deduplication) == (0, None)
        assert not policies.inactivity.delete
        with pytest.raises(BrokerError, match="maximum number of topics"):
            await service.topics.get(U, create=True)


async def test_the_policies_go_when_their_topic_is_deleted() -> None:
    async with brokers() as (service,):
        topic = await service.topics.get(T, create=True)
        await service.policies.store.update(T, lambda old: {"maxProducerPerTopic": 1})
        await service.topics.topic_policies_changed(T)
        assert topic.options.producers_max == 1
        await service.topics.delete(EVENTS, force=True)
        with trio.fail_after(20):
            while topic.options.producers_max:  # noqa: ASYNC110 - told by nobody
                await trio.sleep(0.01)
        assert await service.policies.store.get(T) == {}
        assert not await service.topics.exists(EVENTS)
        await service.policies.store.update(T, lambda old: old | {"maxConsumerPerTopic": 2})
        assert await service.policies.store.get(T) == {"maxConsumerPerTopic": 2}


async def test_topics_wait_for_policies_that_can_not_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "RETRY_S", 0.01)
    async with brokers(2) as (here, there):
        await there.ownership.acquire(await there.namespaces.bundle_of(EVENTS))
        await here.ownership.acquire(await here.namespaces.bundle_of(T))
        await there.policies.store.update(T, lambda old: {"maxMessageSize": 1})
        store = here.policies.store
        assert isinstance(store, SystemTopicPolicies)
        opened, store.open_events = store.open_events, None
        for _ in range(2):
            with pytest.raises(EventsUnavailable, match="doesn't serve yet"):
                await here.topics.get(T, create=True)
        with pytest.raises(EventsUnavailable):
            await store.update(T, lambda old: {})
        store.open_events = opened
        topic = await here.topics.get(T, create=True)
        assert topic.policies.message_bytes_max == 1


@pytest.mark.parametrize("off", ["system_topics", "topic_policies"])
async def test_without_system_topics_there_are_no_policies(off: str) -> None:
    async with brokers(config=BrokerConfig(topics=TopicConfig(**{off: False}))) as (service,):
        store = service.policies.store
        assert isinstance(store, NoTopicPolicies)
        await store.delete(T)
        assert await store.get(T) == await store.at(T, is_global=True) == {}
        with pytest.raises(BrokerError, match="disabled"):
            await store.update(T, lambda old: {})


# What older versions kept in the metadata store.

RECORDS: dict[str, bytes] = {
    f"{OLDER}/t": b'{"maxProducerPerTopic":3,"unknown":1}',
    f"{OLDER}/%C3%A4+b": b'{"maxMessageSize":4}',
    f"{OLDER}/empty": b"{}",
    f"{OLDER}/broken": b"[",
    "/admin/topic-policies/public/default/non-persistent/t": b'{"maxConsumerPerTopic":5}',
}
TAKEN = {
    "persistent://public/default/t": {"maxProducerPerTopic": 3},
    "persistent://public/default/ä b": {"maxMessageSize": 4},
    "persistent://public/default/empty": {},
    "non-persistent://public/default/t": {"maxConsumerPerTopic": 5},
}


async def prepare(store: MetadataStore) -> None:
    for path, value in RECORDS.items():
        await store.put(path, value)


async def assert_taken(service: BrokerService) -> None:
    for name, record in TAKEN.items():
        assert await service.policies.store.get(TopicName.parse(name)) == record
    assert not await service.store.children("/admin/topic-policies/public/default")


async def test_older_records_are_taken_over() -> None:
    store, bookie = MemoryMetadataStore(), MemoryBookie()
    await prepare(store)
    async with brokers(store=store, bookie=bookie) as (service,):
        topic = await service.topics.get(T, create=True)
        assert topic.options.producers_max == 3
        await assert_taken(service)
        await service.policies.store.update(T, lambda old: {"maxProducerPerTopic": 9})
    # What an older version writes later is not newer than what is there.
    await store.put(f"{OLDER}/t", b'{"maxProducerPerTopic":1}')
    async with brokers(store=store, bookie=bookie) as (service,):
        assert await service.policies.store.get(T) == {"maxProducerPerTopic": 9}
        assert not await store.children("/admin/topic-policies/public")


async def test_two_brokers_take_over_at_once() -> None:
    store = MemoryMetadataStore()
    await prepare(store)
    async with brokers(2, store=store) as both:
        async with trio.open_nursery() as nursery:
            for service in both:
                nursery.start_soon(service.policies.store.get, T)
        for service in both:
            await assert_taken(service)
        topic = await both[0].topics.get(EVENTS, create=False)
        assert topic.stats().msg_in_counter == 3


@pytest.mark.parametrize("trouble", Trouble)
@pytest.mark.slow
async def test_a_takeover_that_is_interrupted_is_finished(
    trouble: Trouble, autojump_clock: trio.testing.MockClock
) -> None:
    at, is_over = 0, False
    while not is_over:
        store, bookie = TroubledStore(Clock()), MemoryBookie()
        met: list[int] = []

        def trouble_at(write: int, at: int = at, met: list[int] = met) -> Trouble | None:
            if write != at:
                return None
            met.append(write)
            return trouble

        with store.killed as killed:
            async with brokers(store=store, bookie=bookie) as (service,):
                await prepare(store)
                store.writes = 0
                store.trouble = trouble_at
                with suppress(BrokerError, MetadataError):
                    await service.policies.store.get(T)
                is_over = not met
                killed.cancel()
                await trio.lowlevel.checkpoint()
        store.trouble = lambda _: None
        at += 1
        async with brokers(store=store, bookie=bookie) as (service,):
            await assert_taken(service)
    assert at > 8
