"""Scrapes of a broker under a little traffic, by each switch (OP-05)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import wait_all_tasks_blocked

from geminga_broker import health
from geminga_broker._tests.fake_client import FakeConnection, producer_request, subscribe_request
from geminga_broker._tests.wire import WireBroker, open_broker
from geminga_broker.config import BrokerConfig
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, LogError
from geminga_broker.metrics.broker import add_authentication, add_stores
from geminga_broker.metrics.exposition import Exposition
from geminga_broker.metrics.pace import PAUSE_S
from geminga_broker.metrics.scrape import scrape
from geminga_broker.metrics.settings import MetricsConfig
from geminga_broker.ownership.finder import Located
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST, Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.auth.api import Identity
from geminga_runtime.auth.service import Authenticator
from geminga_runtime.background import TURN_UNITS
from geminga_runtime.metrics.store_times import StoreTimes

Samples = dict[str, list[tuple[dict[str, str], float]]]
PUBLIC = {"namespace": "public/default"}
LOGS = {"namespace": "public/default/persistent"}


def config_with(metrics: MetricsConfig) -> BrokerConfig:
    config = BrokerConfig()
    return replace(config, metrics=metrics)


async def page(broker: WireBroker) -> Samples:
    """Labels without the cluster, and the value, by the sample's name."""
    text = (await scrape(broker.service, version="1")).render()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key != "cluster"}
            found.setdefault(sample.name, []).append((labels, sample.value))
    return found


async def loaded(
    broker: WireBroker, name: str, entries: int = 0, size: int = 100
) -> PersistentTopic:
    """A topic with so many entries, and a subscription that has read and acknowledged one."""
    topic = await broker.service.topics.get(TopicName.parse(name), create=True)
    assert isinstance(topic, PersistentTopic)
    done = trio.Event()

    def stored(_first: Position, _count: int, error: LogError | None) -> None:
        assert error is None
        done.set()

    if entries:
        topic.append([(bytes(size), 1)] * entries, stored)
        await done.wait()
    cursor = await topic.log.open_cursor("s", initial=EARLIEST)
    topic.adopt(cursor)
    for entry in await cursor.read(entries_max=1, bytes_max=1 << 20):
        cursor.ack([Ack(entry.position)])
    return topic


async def test_topics_have_histograms_and_rates(autojump_clock: trio.testing.MockClock) -> None:
    async with open_broker() as broker:
        await loaded(broker, "persistent://public/default/a", entries=20, size=600)
        await loaded(broker, "persistent://public/default/b")
        found = await page(broker)
        one = {**PUBLIC, "topic": "persistent://public/default/a"}
        other = {**PUBLIC, "topic": "persistent://public/default/b"}
        assert found["pulsar_entry_size_le_1_kb"] == [(one, 20.0), (other, 0.0)]
        assert found["pulsar_entry_size_count"] == [(one, 20.0), (other, 0.0)]
        assert found["pulsar_entry_size_sum"][0] == (one, 12_000.0)
        for name in ("pulsar_storage_write_latency", "pulsar_storage_ledger_write_latency"):
            assert found[f"{name}_count"] == [(one, 20.0), (other, 0.0)]
            ends = [end for end in found if end.startswith(f"{name}_") and end[-3:] != "sum"]
            assert len(ends) == 11
            assert sum(found[end][0][1] for end in ends) == 2 * 20
        assert found["pulsar_storage_write_rate"][0][1] > 0
        assert found["pulsar_storage_read_rate"][0][1] > 0
        assert found["pulsar_topics_count"] == [(PUBLIC, 2.0)]
        assert found["pulsar_broker_topics_count"] == [({}, 2.0)]
        assert found["pulsar_broker_subscriptions_count"] == [({}, 2.0)]
        assert found["pulsar_broker_msg_backlog"] == [({}, 19.0)]
        assert found["pulsar_ml_count"] == [({}, 2.0)]
        assert found["pulsar_ml_AddEntrySucceed"] == [(LOGS, 20.0)]
        assert found["pulsar_ml_ReadEntriesSucceeded"] == [(LOGS, 1.0)]
        assert found["pulsar_ml_NumberOfMessagesInBacklog"] == [(LOGS, 19.0)]
        assert found["pulsar_ml_MarkDeleteRate"][0][1] > 0
        sizes = {labels["quantile"]: value for labels, value in found["pulsar_ml_EntrySizeBuckets"]}
        assert [name for name, value in sizes.items() if value] == ["512.0_1024.0"]
        assert found["pulsar_broker_publish_latency_count"] == [({}, 20.0)]
        assert found["pulsar_topic_load_times_count"] == [({}, 2.0)]
        assert not [name for name in found if name.startswith("pulsar_ml_cursor")]


async def test_without_topic_level_namespaces_have_sums(
    autojump_clock: trio.testing.MockClock,
) -> None:
    config = config_with(MetricsConfig(topics=False, managed_ledgers=False))
    async with open_broker(config) as broker:
        for name, entries in (("a", 20), ("b", 5)):
            await loaded(broker, f"persistent://public/default/{name}", entries=entries)
        found = await page(broker)
        assert not [name for name, samples in found.items() if "topic" in samples[0][0]]
        for name, value in (
            ("pulsar_topics_count", 2),
            ("pulsar_subscriptions_count", 2),
            ("pulsar_entry_size_count", 25),
            ("pulsar_storage_write_latency_count", 25),
            ("pulsar_storage_size", sum([100] * 25)),
        ):
            assert found[name] == [(PUBLIC, float(value))], name
        backlog = {**PUBLIC, "remote_cluster": "local"}
        assert found["pulsar_msg_backlog"] == [(backlog, 23.0)]
        assert not [name for name in found if name.startswith("pulsar_ml_Add")]


async def test_the_page_of_many_topics_without_topic_level_is_bounded(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sizes = []
    for topics in (2, 40):
        async with open_broker(config_with(MetricsConfig(topics=False))) as broker:
            for number in range(topics):
                await loaded(broker, f"persistent://public/default/t{number}")
            sizes.append(sum(map(len, (await page(broker)).values())))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("topic", "partition"), [("plain", "-1"), ("split-partition-3", "3")], ids=["plain", "split"]
)
async def test_partitions_have_a_label(
    topic: str, partition: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_broker(config_with(MetricsConfig(split_partitions=True))) as broker:
        if partition != "-1":
            split = TopicName.parse("persistent://public/default/split")
            await broker.service.catalog.create_partitioned(split, 4)
        await loaded(broker, f"persistent://public/default/{topic}")
        labels, _ = (await page(broker))["pulsar_storage_size"][0]
        base = topic.partition("-partition-")[0]
        assert labels["topic"] == f"persistent://public/default/{base}"
        assert labels["partition"] == partition


async def test_the_size_on_all_bookies(autojump_clock: trio.testing.MockClock) -> None:
    async with open_broker() as broker:
        topic = await loaded(broker, "persistent://public/default/a", entries=3)
        topic.log.meter.copies = 2
        found = await page(broker)
        for name in ("pulsar_storage_size", "pulsar_broker_storage_size"):
            assert found[name][0][1] == 600
            assert found[name.replace("_size", "_logical_size")][0][1] == 300
        assert found["pulsar_ml_StoredMessagesSize"][0][1] == 600


async def test_cursors_if_wanted(autojump_clock: trio.testing.MockClock) -> None:
    async with open_broker(config_with(MetricsConfig(cursors=True))) as broker:
        topic = await loaded(broker, "persistent://public/default/a", entries=3)
        await topic.log.cursors["s"].persist()
        found = await page(broker)
        labels = {**LOGS, "ledger_name": "public/default/persistent/a", "cursor_name": "s"}
        written = found["pulsar_ml_cursor_persistLedgerSucceed"]
        kept = found["pulsar_ml_cursor_persistZookeeperSucceed"]
        assert [where for where, _ in written] == [labels]
        assert written[0][1] + kept[0][1] >= 1
        assert found["pulsar_ml_cursor_nonContiguousDeletedMessagesRange"] == [(labels, 0.0)]


MANY = 64
ALL = MetricsConfig(consumers=True, producers=True, cursors=True)
Act = Callable[[int], Awaitable[object]]


async def topic_with_many(broker: WireBroker) -> PersistentTopic:
    """With MANY subscriptions, each with a consumer, and as many producers."""
    topic = await loaded(broker, "persistent://public/default/a")
    for number in range(MANY):
        connection = FakeConnection(f"client:{number}")
        await topic.add_producer(producer_request(connection, f"p{number}"))
        await topic.subscribe(subscribe_request(connection, 1000 + number, f"s{number}"))
    return topic


async def test_a_large_topic_is_told_in_turns(autojump_clock: trio.testing.MockClock) -> None:
    """Its statistics, and its lines."""
    async with open_broker(config_with(ALL)) as broker:
        await topic_with_many(broker)
        began_s = trio.current_time()
        found = await page(broker)
        parts = 2 * MANY  # subscriptions and producers, made and then written
        assert trio.current_time() - began_s >= 2 * parts / TURN_UNITS * PAUSE_S
        assert len(found["pulsar_subscription_back_log"]) == MANY + 1
        assert len(found["pulsar_producer_msg_rate_in"]) == MANY


async def test_clients_and_subscriptions_may_go_while_a_topic_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_broker(config_with(ALL)) as broker:
        topic = await topic_with_many(broker)
        pages: list[Samples] = []

        async def scraped() -> None:
            pages.append(await page(broker))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(scraped)
            await trio.sleep(3 * PAUSE_S)
            for number in range(MANY // 2, MANY):
                await topic.delete_subscription(f"s{number}", force=True)
            assert not pages
            for consumer in [*topic.subscriptions["s0"].consumers]:
                consumer.close()
        ids = {
            labels["subscription"]: labels["consumer_id"]
            for labels, _ in pages[0]["pulsar_consumer_msg_rate_out"]
        }
        assert len(ids) >= MANY // 2 - 1  # s0's consumer may have been told before it closed
        for subscription, consumer_id in ids.items():
            assert int(consumer_id) == 1000 + int(subscription.removeprefix("s"))


async def test_schemas_of_many_namespaces_are_told_in_turns(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_broker() as broker:
        meter = broker.service.schemas.registry.meter
        for number in range(MANY):
            meter.of(f"public/n{number}/t").times["get"].add(0.001)
        began_s = trio.current_time()
        found = await page(broker)
        assert trio.current_time() - began_s >= MANY / TURN_UNITS * PAUSE_S
        counts = found["pulsar_schema_get_ops_latency_count"]
        assert [count for labels, count in counts] == [1] * MANY


def test_expired_tokens_of_several_providers_are_one_sample() -> None:
    authenticator = Authenticator([])
    for provider in ("TokenProvider", "OpenIdProvider"):
        authenticator.failures[provider, "token", "expired_token"] += 2
    text = Exposition()
    add_authentication(text, [("cluster", "c")], authenticator)
    lines = [one for one in text.render().splitlines() if one.startswith("pulsar_expired")]
    assert lines == ['pulsar_expired_token_total{cluster="c"} 4']


def test_tokens_that_expire_are_counted_by_what_is_left() -> None:
    authenticator = Authenticator([])
    for minutes in (3, 50, 10_000, -1):
        identity = Identity("r", "token", time.time() + minutes * 60)
        authenticator.accepted("TokenProvider", "token", identity)
    authenticator.accepted("TokenProvider", "token", Identity("r", "token", None))
    authenticator.accepted("TlsProvider", "tls", Identity("r", "tls", time.time() + 60))
    text = Exposition()
    add_authentication(text, [("cluster", "c")], authenticator)
    lines = [one.split() for one in text.render().splitlines() if "_expiring_" in one]
    assert lines[0] == ["#", "TYPE", "pulsar_expiring_token_minutes", "histogram"]
    found = {where.removeprefix("pulsar_expiring_token_minutes"): n for where, n in lines[1:]}
    ends = (("5.0", 2), ("10.0", 2), ("60.0", 3), ("240.0", 3), ("10080.0", 4), ("+Inf", 4))
    for end, count in ends:
        assert found[f'_bucket{{cluster="c",le="{end}"}}'] == str(count)
    assert found['_count{cluster="c"}'] == "4"
    assert float(found['_sum{cluster="c"}']) == pytest.approx(10_053, rel=0.001)


def test_calls_of_metadata_stores_are_told() -> None:
    times = StoreTimes("metadata-store")
    times.ended("get", 0.004)
    times.ended("get", 0.004, failed=True)
    times.put_bytes = 7
    text = Exposition()
    add_stores(text, [("cluster", "c")], [times])
    page = text.render()
    got = 'cluster="c",name="metadata-store",type="get",status='
    for status in ("success", "fail"):
        for end, count in (("3.0", 0), ("5.0", 1), ("+Inf", 1)):
            where = f'{{{got}"{status}",le="{end}"}}'
            assert f"pulsar_metadata_store_ops_latency_ms_bucket{where} {count}\n" in page
    assert page.count("_ops_latency_ms_sum{") == 6
    assert 'pulsar_metadata_store_put_bytes_total{cluster="c",name="metadata-store"} 7\n' in page


async def test_what_is_under_way_has_neither_failed_nor_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A counter never goes back, and a broker isn't ill while it is looked at."""
    go = trio.Event()
    fails = False

    async def waits(*_arguments: object) -> object:
        await go.wait()
        if fails:
            raise BrokerError(ServerError.ServiceNotReady, "planted")
        return Located(broker.service.addresses)

    async with open_broker() as broker:
        service = broker.service
        await health.check_health(service)
        monkeypatch.setattr(service.lookup, "_locate", waits)
        monkeypatch.setattr(health, "_check", waits)
        name = TopicName.parse("persistent://public/default/t")

        async def figures() -> tuple[float, ...]:
            found = await page(broker)
            return tuple(
                found[metric][0][1]
                for metric in (
                    "pulsar_broker_lookup_failures_total",
                    "pulsar_broker_lookup_pending_requests",
                    "pulsar_health",
                )
            )

        async def refused(ask: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(BrokerError, match="planted"):
                await ask()

        for fails in (False, True):
            go = trio.Event()
            async with trio.open_nursery() as nursery:
                for ask in (
                    partial(service.lookup.locate, name),
                    partial(health.check_health, service),
                ):
                    nursery.start_soon(*((refused, ask) if fails else (ask,)))
                await wait_all_tasks_blocked()
                assert await figures() == (0, 1, 1)
                go.set()
            assert await figures() == ((1, 0, 0) if fails else (0, 0, 1))
