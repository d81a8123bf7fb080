"""Settings that are changed while brokers run: at once, at every broker, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from geminga_broker.admin._tests.several_brokers import Broker, cluster_of
from geminga_broker.dynamic_config import KEYS, PATH
from geminga_broker.policies.rate_limit import Rate
from geminga_broker.process import log_options
from geminga_protocol.topic_name import TopicName
from geminga_runtime.settings import current

APACHES = json.loads((Path(__file__).parent / "dynamic_settings.json").read_text())
BASE = "/admin/v2/brokers/configuration"


async def eventually(check: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not check():
            await wait_all_tasks_blocked(0.01)


async def settled(broker: Broker, key: str, value: object) -> None:
    await eventually(lambda: current(broker.service.config, key) == value)


async def test_all_of_them_are_dynamic_in_apaches_broker_too() -> None:
    assert set(KEYS) <= set(APACHES)
    async with cluster_of(1) as cluster:
        values = cluster[0].service.config.values()
        assert set(KEYS) <= set(values)
        assert (await cluster[0].ask("GET", BASE)).json == list(KEYS)


async def test_every_broker_takes_a_setting_over_and_gives_it_up() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        assert (await first.ask("GET", f"{BASE}/values")).json == {}
        assert (await first.ask("POST", f"{BASE}/maxTopicsPerNamespace/7")).status == 200
        assert first.service.config.topics.topics_per_namespace_max == 7, "at once"
        await settled(second, "maxTopicsPerNamespace", 7)
        assert (await second.ask("GET", f"{BASE}/values")).json == {"maxTopicsPerNamespace": "7"}
        runtime = (await second.ask("GET", f"{BASE}/runtime")).json
        assert isinstance(runtime, dict)
        assert runtime["maxTopicsPerNamespace"] == "7"
        assert (await second.ask("DELETE", f"{BASE}/maxTopicsPerNamespace")).status == 200
        await settled(first, "maxTopicsPerNamespace", 0)
        assert (await first.ask("DELETE", f"{BASE}/maxTopicsPerNamespace")).status == 200


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("brokerServicePort/1", "Can't update non-dynamic configuration"),
        ("nope/1", "Can't update non-dynamic configuration"),
        ("maxConcurrentLookupRequest/abc", " Invalid dynamic-config value"),
        ("maxConcurrentLookupRequest/0", " Invalid dynamic-config value"),
        ("loadManagerClassName/x.y.Z", " Invalid dynamic-config value"),
        ("allowAutoTopicCreationType/both", " Invalid dynamic-config value"),
        ("subscriptionTypesEnabled/Unheard", " Invalid dynamic-config value"),
        ("entryFilterNames/none-of-that-name", " Invalid dynamic-config value"),
        ("maxUnloadPercentage/1.5", " Invalid dynamic-config value"),
    ],
)
async def test_what_is_refused(path: str, reason: str) -> None:
    async with cluster_of(1) as cluster:
        reply = await cluster[0].ask("POST", f"{BASE}/{path}")
        assert (reply.status, reply.json) == (412, {"reason": reason})
        assert (await cluster[0].ask("GET", f"{BASE}/values")).json == {}
        reply = await cluster[0].ask("DELETE", f"{BASE}/brokerServicePort")
        assert reply.json == {"reason": "Can't delete non-dynamic configuration"}


@pytest.mark.slow
async def test_what_is_not_valid_in_the_store_counts_as_not_set() -> None:
    """Apache's broker writes it without a look."""
    async with cluster_of(1) as cluster:
        first = cluster[0]
        record = b'{"maxTopicsPerNamespace":"x","someOther":"1","defaultNumPartitions":"4"}'
        await first.service.store.put(PATH, record)
        await settled(first, "defaultNumPartitions", 4)
        assert first.service.config.topics.topics_per_namespace_max == 0
        nested = b'{"defaultNumPartitions":' + b"[" * 100_000
        for text in (b"no JSON", b'{"defaultNumPartitions":"\xff"}', nested):
            await first.service.store.put(PATH, text)
            await wait_all_tasks_blocked()
            assert first.service.config.topics.default_partitions == 4
        await first.service.store.put(PATH, b"{}")
        await settled(first, "defaultNumPartitions", 1)


async def test_a_broker_that_starts_has_it_from_the_start() -> None:
    async with cluster_of(1) as cluster:
        first = cluster[0]
        assert (await first.ask("POST", f"{BASE}/defaultNumPartitions/3")).status == 200
        dynamic = type(first.service.dynamic)(first.service.store, first.service.config)
        await dynamic.load()
        assert first.service.config.topics.default_partitions == 3


async def test_loaded_topics_take_it_over() -> None:
    async with cluster_of(1) as cluster:
        first = cluster[0]
        service = first.service
        name = TopicName.parse("persistent://public/default/t")
        topic = await service.topics.create(name)
        for key, value in (
            ("dispatchThrottlingRatePerTopicInMsg", "11"),
            ("maxPublishRatePerTopicInMessages", "12"),
            ("dispatchThrottlingRateInMsg", "13"),
            ("brokerPublisherThrottlingMaxMessageRate", "14"),
            ("subscriptionTypesEnabled", "Shared"),
            ("dispatcherMaxReadBatchSize", "15"),
        ):
            assert (await first.ask("POST", f"{BASE}/{key}/{value}")).status == 200

        def told() -> bool:
            rates = {limit.rate.messages for limit in topic.publish_limits}
            return (
                topic.policies.dispatch_rate == Rate(11, 0)
                and rates == {12, 14}
                and topic.options.dispatch_entries_max == 15
                and len(topic.options.subscription_types) == 1
            )

        await eventually(told)


async def test_sizes_and_super_users() -> None:
    async with cluster_of(1) as cluster:
        first = cluster[0]
        service = first.service
        for path in (
            "maxConcurrentLookupRequest/5",
            "managedLedgerCacheSizeMB/1",
            "maxMessagePublishBufferSizeInMB/2",
            "maxConcurrentTopicLoadRequest/3",
            "namespaceBundleUnloadingTimeoutMs/2500",
            "superUserRoles/root,admin",
        ):
            assert (await first.ask("POST", f"{BASE}/{path}")).status == 200
        assert service.lookup.lookups_max == 5
        assert service.log_cache.bytes_max == 1 << 20
        assert service.connections.publish_bytes_max == 2 << 20
        assert service.authorizer._super_users == {"root", "admin"}
        assert service.unloader.timeout_s == 2.5


async def test_logs_follow_it() -> None:
    """What is damaged is passed over from now on, in topics that are loaded too."""
    async with cluster_of(1) as cluster:
        first = cluster[0]
        options = log_options(first.service.config)
        assert not options.skips_damaged()
        assert (await first.ask("POST", f"{BASE}/autoSkipNonRecoverableData/true")).status == 200
        assert options.skips_damaged()
        assert (await first.ask("DELETE", f"{BASE}/autoSkipNonRecoverableData")).status < 300
        assert not options.skips_damaged()


async def test_the_load_manager_reads_it() -> None:
    async with cluster_of(1) as cluster:
        first = cluster[0]
        for path in ("loadBalancerSheddingEnabled/false", "loadBalancerCPUResourceWeight/2"):
            assert (await first.ask("POST", f"{BASE}/{path}")).status == 200
        config = first.service.load_manager.config
        assert not config.shedding
        assert config.weights.cpu == 2
