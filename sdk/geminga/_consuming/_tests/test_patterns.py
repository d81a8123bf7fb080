from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import RegexSubscriptionMode
from geminga._connection.topic_pattern import names_matching, parse_pattern
from geminga._consuming import pattern_topics as _pattern_topics
from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga_protocol.commands import answers, connection, consuming, lookup
from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import FeatureFlags, ServerError

BASE = "persistent://public/default/"
MANY = re.compile(f"{BASE}many-.*")


class TopicSession(FakeSession):
    """A session with lists of topics, watchers, and topics that must not be created."""

    watching = True

    def on_connect(self, body: Any, frame: Frame) -> None:
        flags = FeatureFlags(supports_topic_watchers=self.watching)
        self.stream.write(
            connection.connected("fake", max_message_size=1 << 20, feature_flags=flags)
        )

    def matching(self, pattern: str) -> list[str]:
        parts = [f"{t}-partition-{n}" for t, c in self.broker.partitions.items() for n in range(c)]
        below = re.compile(pattern.partition("://")[2])
        names = {*self.broker.topics, *parts}
        return [name for name in sorted(names) if below.match(name.partition("://")[2])]

    def on_getTopicsOfNamespace(self, body: Any, frame: Frame) -> None:
        assert body.namespace == "public/default"
        found = self.matching(body.topics_pattern)
        self.stream.write(
            lookup.get_topics_of_namespace_response(body.request_id, found, filtered=True)
        )

    def on_watchTopicList(self, body: Any, frame: Frame) -> None:
        watchers[body.watcher_id] = self
        found = self.matching(body.topics_pattern)
        self.stream.write(
            lookup.watch_topic_list_success(body.request_id, body.watcher_id, found, "")
        )

    def on_watchTopicListClose(self, body: Any, frame: Frame) -> None:
        watchers.pop(body.watcher_id, None)
        self.stream.write(answers.success(body.request_id))

    def on_subscribe(self, body: Any, frame: Frame) -> None:
        if not body.force_topic_creation and body.topic not in self.broker.topics:
            error = answers.error(body.request_id, ServerError.TopicNotFound, "not there")
            self.stream.write(error)
        else:
            super().on_subscribe(body, frame)


class QuietSession(TopicSession):
    watching = False


watchers: dict[int, TopicSession] = {}


def tell_watchers(new: Sequence[str] = (), gone: Sequence[str] = ()) -> None:
    for watcher_id, session in watchers.items():
        session.stream.write(lookup.watch_topic_update(watcher_id, new, gone, ""))


def partition(broker: FakeBroker, name: str, count: int) -> None:
    """Create a topic with partitions, or add partitions."""
    broker.partitions[f"{BASE}{name}"] = count
    for n in range(count):
        broker.topic(f"{name}-partition-{n}")


def delete(broker: FakeBroker, name: str) -> None:
    topic = broker.topics.pop(name)
    for subscription in topic.subscriptions.values():
        for consumer in list(subscription.consumers):
            consumer.leave()
            consumer.session.stream.write(consuming.close_consumer(consumer.id, (1 << 64) - 1))


@asynccontextmanager
async def topics(
    *names: str, kind: type[TopicSession] = TopicSession
) -> AsyncIterator[tuple[FakeBroker, geminga.Client]]:
    watchers.clear()
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = kind
        for name in names:
            broker.topic(name)
        yield broker, client


async def send(client: geminga.Client, topic: str, *texts: bytes) -> None:
    async with await client.create_producer(topic) as producer:
        for text in texts:
            await producer.send(text)


@pytest.mark.parametrize(
    ("text", "namespace", "full"),
    [
        ("a-.*", "public/default", "persistent://public/default/a-.*"),
        ("t/n/a|b", "t/n", "persistent://t/n/a|b"),
        ("non-persistent://t/n/.*/x", "t/n", "non-persistent://t/n/.*/x"),
    ],
)
def test_patterns_are_read(text: str, namespace: str, full: str) -> None:
    assert parse_pattern(re.compile(text)) == (namespace, full)


@pytest.mark.parametrize("text", ["", "persistent://a", "persistent://a//x"])
def test_wrong_patterns(text: str) -> None:
    with pytest.raises(geminga.InvalidArgumentError):
        parse_pattern(re.compile(text))


def test_lists_are_filtered_here_if_the_broker_did_not() -> None:
    names = [f"{BASE}many-1-partition-0", f"{BASE}many-1-partition-1", f"{BASE}other"]
    pattern = parse_pattern(re.compile("many-[0-9]"))
    found = names_matching(pattern, names, filtered=False)
    assert [str(each) for each in found] == [f"{BASE}many-1"]
    assert len(names_matching(pattern, names, filtered=True)) == 2


@pytest.mark.parametrize("kind", [TopicSession, QuietSession])
async def test_topics_appear(kind: type[TopicSession], autojump_clock: MockClock) -> None:
    async with topics("many-1", "other", kind=kind) as (_, client):
        consumer = await client.subscribe(MANY, "s")
        assert consumer.topics == [f"{BASE}many-1"]
        await trio.sleep(1)
        await send(client, "many-2", b"early")
        tell_watchers([f"{BASE}many-2"])
        began_s = trio.current_time()
        message = await consumer.receive(70)
        waited_s = trio.current_time() - began_s
        assert waited_s < 1 if kind.watching else waited_s > 50
        assert (message.data, message.topic_name) == (b"early", f"{BASE}many-2")
        assert consumer.topics == [f"{BASE}many-1", f"{BASE}many-2"]


async def test_topics_vanish(autojump_clock: MockClock) -> None:
    async with topics("many-1", "many-2") as (broker, client):
        consumer = await client.subscribe(MANY, "s")
        await send(client, "many-1", b"last")
        last = await consumer.receive(1)
        delete(broker, f"{BASE}many-1")
        tell_watchers(gone=[f"{BASE}many-1"])
        await trio.sleep(1)
        assert consumer.topics == [f"{BASE}many-2"]
        assert list(broker.topics) == [f"{BASE}many-2"]
        await consumer.acknowledge(last)  # too late, and no error
        await send(client, "many-2", b"goes on")
        assert (await consumer.receive(5)).data == b"goes on"


async def test_a_deleted_topic_is_not_made_again(autojump_clock: MockClock) -> None:
    async with topics("many-1", "many-2", kind=QuietSession) as (broker, client):
        consumer = await client.subscribe(MANY, "s")
        delete(broker, f"{BASE}many-1")
        await trio.sleep(5)
        assert consumer.topics == [f"{BASE}many-2"]
        assert f"{BASE}many-1" not in broker.topics


async def test_nothing_matches_yet_and_watching_again(autojump_clock: MockClock) -> None:
    async with topics() as (broker, client):
        consumer = await client.subscribe(MANY, "s")
        assert consumer.topics == []
        assert not consumer.reached_end_of_topic
        await trio.sleep(1)
        broker.cut()
        watchers.clear()
        await trio.sleep(2)
        assert len(watchers) == 1
        await send(client, "many-1", b"m")
        tell_watchers([f"{BASE}many-1"])
        assert (await consumer.receive(5)).data == b"m"
        await consumer.aclose()
        await trio.sleep(1)
        assert not watchers
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive()


async def test_partitions_grow(autojump_clock: MockClock) -> None:
    async with topics() as (broker, client):
        broker.partitions[f"{BASE}p"] = 1
        consumer = await client.subscribe("p", "s", auto_update_partitions_interval_s=10)
        reader = await client.create_reader("p", geminga.LATEST)
        fixed = await client.subscribe("p", "f", auto_update_partitions=False)
        broker.partitions[f"{BASE}p"] = 3
        await send(client, "p-partition-2", b"new")
        assert (await consumer.receive(11)).data == b"new"
        assert len(consumer.topics) == 3
        assert (await reader.read_next(61)).data == b"new"
        assert len(fixed.topics) == 1


class RefusingSession(TopicSession):
    """Refuses watchers, for the broker's bound of patterns."""

    asked = 0

    def on_watchTopicList(self, body: Any, frame: Frame) -> None:
        RefusingSession.asked += 1
        error = answers.error(body.request_id, ServerError.NotAllowedError, "Pattern too long")
        self.stream.write(error)


async def test_a_watch_that_is_refused_is_told_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with topics("many-1", kind=RefusingSession) as (_, client):
        consumer = await client.subscribe(MANY, "s", pattern_auto_discovery_period_s=30)
        await trio.sleep(600)
        await consumer.aclose()
    assert RefusingSession.asked > 3
    (told,) = (each for each in caplog.records if "watching topics" in each.getMessage())
    assert told.levelname == "WARNING"
    assert "found every 30 s: Pattern too long" in told.getMessage()


async def test_a_name_like_a_pattern_is_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with topics("many-.*", "many") as (_, client):
        await client.subscribe("many", "s")
        assert not caplog.records
        await client.subscribe(["many", "many-.*"], "t")
    (told,) = caplog.messages
    assert told == "topic 'many-.*' is a name, not a pattern: re.compile('many-.*') is a pattern"


async def test_wrong_arguments(autojump_clock: MockClock) -> None:
    async with topics() as (_, client):
        with pytest.raises(geminga.InvalidArgumentError, match="receiver_queue_size"):
            await client.subscribe(MANY, "s", receiver_queue_size=0)
        with pytest.raises(geminga.InvalidArgumentError, match="retry_enabled"):
            await client.subscribe(MANY, "s", retry_enabled=True)
        with pytest.raises(geminga.InvalidArgumentError, match="regex_subscription_mode"):
            await client.subscribe(MANY, "s", regex_subscription_mode=1)
    assert RegexSubscriptionMode.ALL_TOPICS == 2


class SlowSession(TopicSession):
    """Responds to requests for partitions after a second."""

    def on_partitionMetadata(self, body: Any, frame: Frame) -> None:
        self.broker.nursery.start_soon(self.answer_late, body, frame)

    async def answer_late(self, body: Any, frame: Frame) -> None:
        await trio.sleep(1)
        super().on_partitionMetadata(body, frame)


async def test_only_what_changed_is_asked_for(autojump_clock: MockClock) -> None:
    """Requests go only to changed partitioned topics."""
    async with topics(*(f"many-{n}" for n in range(50)), kind=SlowSession) as (broker, client):
        for n in range(50):
            partition(broker, f"many-p{n}", 2)
        began_s = trio.current_time()
        consumer = await client.subscribe(MANY, "s")
        assert len(consumer.topics) == 150
        # 16 at once.
        assert trio.current_time() - began_s < 5
        await trio.sleep(2)
        assert broker.seen.count("partitionMetadata") == 50
        broker.seen.clear()
        broker.topic("many-new")
        tell_watchers([f"{BASE}many-new"])
        await trio.sleep(2)
        assert f"{BASE}many-new" in consumer.topics
        assert not {"getTopicsOfNamespace", "partitionMetadata"} & set(broker.seen)
        partition(broker, "many-p1", 3)
        partition(broker, "many-p50", 1)
        tell_watchers([f"{BASE}many-p1-partition-2", f"{BASE}many-p50-partition-0"])
        await trio.sleep(2)
        assert len(consumer.topics) == 153
        assert broker.seen.count("partitionMetadata") == 2
        for n in range(2):
            delete(broker, f"{BASE}many-p2-partition-{n}")
        del broker.partitions[f"{BASE}many-p2"]
        tell_watchers(gone=[f"{BASE}many-p2-partition-{n}" for n in range(2)])
        await trio.sleep(2)
        assert len(consumer.topics) == 151
        assert "getTopicsOfNamespace" not in broker.seen
        # A whole search finds unreported changes.
        partition(broker, "many-p3", 4)
        await trio.sleep(70)
        assert len(consumer.topics) == 153


async def test_other_domains_are_looked_for_whole(autojump_clock: MockClock) -> None:
    """Watchers report persistent topics only."""
    async with topics("many-1") as (broker, client):
        mode = RegexSubscriptionMode.ALL_TOPICS
        consumer = await client.subscribe(MANY, "s", regex_subscription_mode=mode)
        await trio.sleep(1)
        broker.seen.clear()
        broker.topic("many-2")
        tell_watchers([f"{BASE}many-2"])
        await trio.sleep(1)
        assert len(consumer.topics) == 2
        assert broker.seen.count("getTopicsOfNamespace") == 1


async def test_too_many_changes_are_one_look_at_all(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(_pattern_topics, "CHANGES_MAX", 3)
    async with topics("many-1") as (broker, client):
        consumer = await client.subscribe(MANY, "s")
        await trio.sleep(1)
        broker.seen.clear()
        names = [broker.topic(f"many-{n}").name for n in range(2, 7)]
        tell_watchers(names)
        await trio.sleep(1)
        assert len(consumer.topics) == 6
        assert broker.seen.count("getTopicsOfNamespace") == 1


async def test_changes_outlive_a_failed_look(autojump_clock: MockClock) -> None:
    async with topics("many-1") as (broker, client):
        consumer = await client.subscribe(MANY, "s", pattern_auto_discovery_period_s=5)
        await trio.sleep(1)
        partition(broker, "many-2", 1)
        broker.fail["partitionMetadata"] = [(ServerError.AuthorizationError, "not now")]
        tell_watchers([f"{BASE}many-2-partition-0"])
        await trio.sleep(1)
        assert len(consumer.topics) == 1
        await trio.sleep(5)
        assert len(consumer.topics) == 2
