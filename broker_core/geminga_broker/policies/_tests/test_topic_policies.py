"""Policies of single topics: kept, resolved, and taken by topics that are loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_bookie.memory import MemoryBookie
from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    payload,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.change_events.reaching import reach_system_topics
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import BrokerConfig, PolicyConfig, TopicConfig
from geminga_broker.errors import BrokerError
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.metrics.scrape import scrape
from geminga_broker.policies.apply import admission, apply_policies
from geminga_broker.policies.model import Inactivity, TopicPolicies
from geminga_broker.policies.quota import QuotaType
from geminga_broker.policies.rate_limit import Rate, SubscribeLimit
from geminga_broker.process import log_options
from geminga_broker.service import BrokerService, open_service
from geminga_broker.topic.api import SubType
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.settings import ConfigError

T = TopicName.parse("persistent://public/default/t")
PART = TopicName.parse("persistent://public/default/t-partition-1")
NP = TopicName.parse("non-persistent://public/default/t")


class Disk:
    """Storage that survives a broker."""

    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.bookie = MemoryBookie()

    @asynccontextmanager
    async def broker(self, config: BrokerConfig | None = None) -> AsyncIterator[BrokerService]:
        config = config or BrokerConfig()
        client = BookkeeperClient(KnownBookies([self.bookie]), self.store)
        async with (
            ManagedLedgerFactory(client, self.store, log_options(config)) as logs,
            open_service(config, self.store, logs) as service,
        ):
            await service.start(Addresses("pulsar://here:1", "http://here:2"))
            reach_system_topics(service)
            yield service


async def set_policies(service: BrokerService, name: TopicName, **fields: object) -> None:
    await service.policies.store.update(name, lambda old: old | fields)
    await service.topics.topic_policies_changed(name)


async def test_policies_apply_on_change_and_on_load() -> None:
    disk = Disk()
    async with disk.broker() as service:
        topic = await service.topics.get(T, create=True)
        other = await service.topics.get(TopicName.parse("u"), create=True)
        await set_policies(
            service,
            T,
            maxProducerPerTopic=1,
            publishRate={"publishThrottlingRateInMsg": 7},
            retentionPolicies={"retentionTimeInMinutes": 1, "retentionSizeInMB": 2},
        )
        for _ in range(2):
            assert topic.policies.publish_rate == Rate(7, 0)
            assert topic.policies.retention.time_s == 60
            await topic.add_producer(producer_request(FakeConnection()))
            with pytest.raises(BrokerError) as refused:
                await topic.add_producer(producer_request(FakeConnection(), 2))
            assert refused.value.code == ServerError.ProducerBusy
            assert isinstance(topic.log, TopicLog)
            await service.topics.unload(T)
            topic = await service.topics.get(T, create=False)
        assert other.policies == TopicPolicies()
    async with disk.broker() as service:
        topic = await service.topics.get(T, create=False)
        assert topic.policies.publish_rate == Rate(7, 0)
        await service.topics.delete(T)
        topic = await service.topics.get(T, create=True)
        assert topic.policies == TopicPolicies()


async def test_policies_apply_to_partitions_and_non_persistent_topics() -> None:
    async with Disk().broker() as service:
        await service.catalog.create_partitioned(T, 2)
        part = await service.topics.get(PART, create=True)
        await set_policies(service, T, messageTTLInSeconds=5)
        assert part.policies.message_ttl_s == 5
        passing = await service.topics.get(NP, create=True)
        await set_policies(service, NP, maxProducerPerTopic=1)
        await passing.add_producer(producer_request(FakeConnection()))
        with pytest.raises(BrokerError):
            await passing.add_producer(producer_request(FakeConnection(), 2))


async def test_namespace_policies_apply_to_all_loaded_topics() -> None:
    def slow(record: JsonObject) -> JsonObject:
        rate = {"publishThrottlingRateInMsg": 3}
        return record | {"publishMaxMessageRate": {"standalone": rate}}

    async with Disk().broker() as service:
        topics = [await service.topics.get(name, create=True) for name in (T, NP)]
        await service.namespaces.tenants.update("public/default", slow)
        await service.topics.namespace_policies_changed("public/default")
        assert [topic.policies.publish_rate for topic in topics] == [Rate(3, 0)] * 2
        await set_policies(service, T, publishRate={"publishThrottlingRateInMsg": 4})
        assert [topic.policies.publish_rate.messages for topic in topics] == [4, 3]


async def test_a_new_time_to_live_holds_at_once() -> None:
    """Not with the next check, five minutes later."""
    async with Disk().broker() as service:
        topic = await service.topics.get(T, create=True)
        await topic.create_subscription("s", EARLIEST)
        producer = await topic.add_producer(producer_request(FakeConnection()))
        now_ms = topic.environment.now_ms()
        producer.publish([item(n, publish_time=now_ms - 1000 * (100 - 60 * n)) for n in range(2)])
        await trio.testing.wait_all_tasks_blocked()
        for ttl_s, left in ((200, 2), (50, 1), (1, 0)):
            await set_policies(service, T, messageTTLInSeconds=ttl_s)
            assert topic.subscriptions["s"].backlog_entries() == left


async def test_producers_that_do_not_encrypt_leave_once_they_have_to() -> None:
    async with Disk().broker() as service:
        topic = await service.topics.get(T, create=True)
        plain, encrypting = FakeConnection(), FakeConnection()
        await topic.add_producer(producer_request(plain, "plain"))
        await topic.add_producer(producer_request(encrypting, "encrypting", encrypted=True))
        for required in (False, True):
            await service.namespaces.tenants.update(
                "public/default", lambda old, to=required: old | {"encryption_required": to}
            )
            await service.topics.namespace_policies_changed("public/default")
            names = ["plain", "encrypting"][required:]
            assert list(topic.producers) == names
        assert plain.dropped_producers == [1]
        assert encrypting.dropped_producers == []


async def test_topic_filters_need_the_brokers_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(names: str) -> tuple[object, ...]:
        if names == "gone":
            raise ConfigError("not installed")
        loaded.append(names)
        return (object(),) if names else ()

    monkeypatch.setattr("geminga_broker.policies.resolve.load_filters", load)
    filters = {"entryFilterNames": "f"}
    config = BrokerConfig()
    for allowed, count in ((False, 0), (True, 1)):
        policies = PolicyConfig(override_entry_filters=allowed)
        async with Disk().broker(replace(config, policies=policies)) as service:
            await service.policies.store.update(T, lambda old: old | {"entryFilters": filters})
            for _ in range(2):
                _, options = await service.policies.resolve(T)
                assert len(options.entry_filters) == count
    assert loaded == ["f"]


@pytest.mark.parametrize(
    ("inactivity", "stays"),
    [
        (Inactivity(True, 100), False),
        (Inactivity(True, 500), True),
        (Inactivity(False, 100), True),
        (Inactivity(True, 100, "delete_when_subscriptions_caught_up"), False),
    ],
)
async def test_topics_are_deleted_as_their_policies_say(
    autojump_clock: trio.testing.MockClock, inactivity: Inactivity, stays: bool
) -> None:
    config = replace(BrokerConfig(), topics=TopicConfig(delete_inactive_period_s=10))
    async with Disk().broker(config) as service:
        await set_policies(
            service,
            T,
            inactiveTopicPolicies={
                "inactiveTopicDeleteMode": inactivity.mode,
                "maxInactiveDurationSeconds": inactivity.after_s,
                "deleteWhileInactive": inactivity.delete,
            },
        )
        topic = await service.topics.get(T, create=True)
        if inactivity.mode == "delete_when_subscriptions_caught_up":
            await topic.create_subscription("s", EARLIEST)
        await trio.sleep(95)
        assert str(T) in service.topics.loaded
        await trio.sleep(30)
        assert (str(T) in service.topics.loaded) == stays
        assert (await service.policies.store.get(T) != {}) == stays


@pytest.mark.parametrize("messages", [0, 3])
async def test_deleting_an_inactive_topic_with_messages_is_a_warning(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, messages: int
) -> None:
    config = replace(BrokerConfig(), topics=TopicConfig(delete_inactive_period_s=10))
    async with Disk().broker(config) as service:
        topic = await service.topics.get(T, create=True)
        producer = await topic.add_producer(producer_request(FakeConnection()))
        producer.publish([item(n) for n in range(messages)])
        await trio.sleep(1)
        producer.close()
        await trio.sleep(30)
        assert str(T) not in service.topics.loaded
    told = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(told) == bool(messages)
    for each in told:
        assert "with its 3 entries" in each.getMessage()
        assert "brokerDeleteInactiveTopicsEnabled=false" in each.getMessage()


async def test_limits_change_under_a_consumer(world: World) -> None:
    topic = world.topic(unacked_per_consumer_max=5)
    await topic.create_subscription("sub", EARLIEST)
    request = subscribe_request(FakeConnection(), 1, sub_type=SubType.Shared)
    consumer = await topic.subscribe(request)
    consumer.flow(100)
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n) for n in range(50)])
    await world.settle()
    assert (consumer.sent, consumer.blocked) == (5, True)
    for limit, sent in ((8, 8), (6, 8), (0, 50)):
        topic.set_options(replace(topic.options, unacked_per_consumer_max=limit))
        await apply_policies(topic, TopicPolicies())
        await world.settle()
        assert (consumer.sent, consumer.blocked) == (sent, limit != 0)


async def test_limits_change_under_a_subscription(world: World) -> None:
    topic = world.topic(unacked_per_subscription_max=5)
    await topic.create_subscription("sub", EARLIEST)
    consumer = await topic.subscribe(
        subscribe_request(FakeConnection(), 1, sub_type=SubType.Shared)
    )
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n) for n in range(50)])
    consumer.flow(5)
    await world.settle()
    consumer.flow(100)
    await world.settle()
    assert consumer.sent == 5
    assert topic.stats().subscriptions["sub"].blocked_subscription_on_unacked_msgs
    topic.set_options(replace(topic.options, unacked_per_subscription_max=0))
    await apply_policies(topic, TopicPolicies())
    await world.settle()
    assert consumer.sent == 50
    assert not topic.stats().subscriptions["sub"].blocked_subscription_on_unacked_msgs


async def test_one_subscription_has_its_own_rate(world: World, autojump_clock: object) -> None:
    topic = world.topic()
    await apply_policies(
        topic,
        TopicPolicies(subscription_dispatch_rate=Rate(20), dispatch_rates={"slow": Rate(5)}),
    )
    producer = await topic.add_producer(producer_request(FakeConnection()))
    taken = []
    for name in ("slow", "quick"):
        await topic.create_subscription(name, EARLIEST)
        consumer = await topic.subscribe(subscribe_request(FakeConnection(), 1, name))
        consumer.flow(1000)
        taken.append(consumer)
    producer.publish([item(n) for n in range(500)])
    await trio.sleep(3.5)
    assert 15 <= taken[0].sent <= 25
    assert 60 <= taken[1].sent <= 100


async def test_a_refused_message_does_not_affect_others(world: World) -> None:
    topic = world.topic()
    await apply_policies(topic, TopicPolicies(message_bytes_max=100, delivery_delay_ms_max=5_000))
    connection = FakeConnection()
    producer = await topic.add_producer(producer_request(connection))
    producer.publish(
        [
            item(1),
            item(2)._replace(payload=payload(2, body=b"x" * 200)),
            item(3, deliver_at=world.now_ms + 5_001),
            item(4, deliver_at=world.now_ms + 5_000),
        ]
    )
    await world.settle()
    code = ServerError.NotAllowedError
    assert connection.errors == [(2, code), (3, code)]
    assert topic.log.statistics().entries == 2
    assert admission(TopicPolicies(), lambda: 0) is None
    passes = admission(TopicPolicies(message_bytes_max=100), lambda: 0)
    assert passes is not None
    large = item(5)._replace(payload=payload(5, body=b"x" * 200))
    assert passes(large) is not None
    assert passes(large._replace(is_chunk=True)) is None


async def test_the_subscribe_rate_of_a_consumer_is_limited(
    world: World, autojump_clock: object
) -> None:
    topic = world.topic()
    await apply_policies(topic, TopicPolicies(subscribe_rate=Rate(2, 0, 30)))

    async def subscribe(consumer_id: int) -> None:
        consumer = await topic.subscribe(subscribe_request(FakeConnection(), consumer_id))
        consumer.close()

    for _ in range(2):
        await subscribe(1)
    with pytest.raises(BrokerError) as refused:
        await subscribe(1)
    assert refused.value.code == ServerError.NotAllowedError
    await subscribe(2)
    await trio.sleep(31)
    await subscribe(1)
    await apply_policies(topic, TopicPolicies())
    for _ in range(5):
        await subscribe(1)


async def test_evictions_are_counted_for_prometheus() -> None:
    async with Disk().broker() as service:
        topic = await service.topics.get(T, create=True)
        assert isinstance(topic, PersistentTopic)
        topic.evictions[QuotaType.AGE] += 3
        text = (await scrape(service, version="")).render()
    name = "pulsar_storage_backlog_quota_exceeded_evictions_total"
    lines = [line for line in text.splitlines() if line.startswith(name)]
    assert [line.rpartition("quota_type=")[2] for line in lines] == ['"size"} 0', '"time"} 3']


def test_subscribers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geminga_broker.policies.rate_limit.SUBSCRIBERS_MAX", 3)
    limit = SubscribeLimit(Rate(1, 0, 10), 0.0)
    assert [limit.take(("h", "c", n), 1.0) for n in (1, 2, 1, 3)] == [True, True, False, True]
    assert limit.take(("h", "c", 1), 2.0)
