"""What a namespace's topics have is made once, and anew as soon as anything of it changes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import JsonObject
from geminga_broker.config import BrokerConfig
from geminga_broker.policies import resolve
from geminga_broker.policies.broker_options import broker_options
from geminga_broker.policies.resolve import NoTopicPolicies, PolicyResolver
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.memory import MemoryMetadataStore
from geminga_runtime.settings import overwrite

A = TopicName.parse("persistent://public/default/a")
B = TopicName.parse("persistent://public/default/b")
SYSTEM = TopicName.parse("persistent://public/default/__change_events")


class OfTopics(NoTopicPolicies):
    """Records of single topics."""

    def __init__(self) -> None:
        self.records: dict[TopicName, JsonObject] = {}

    async def get(self, topic: TopicName) -> JsonObject:
        return self.records.get(topic, {})


class World:
    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.namespaces = Namespaces(self.store)
        self.topics = OfTopics()
        self.config = BrokerConfig()
        self.config = replace(
            self.config,
            policies=replace(self.config.policies),
            topics=replace(self.config.topics),
        )
        options = broker_options(self.config)
        self.resolver = PolicyResolver(self.topics, self.namespaces, self.config, options)

    async def ttl_s(self, topic: TopicName) -> int:
        return (await self.resolver.resolve(topic)).policies.message_ttl_s


@pytest.fixture
async def world() -> World:
    found = World()
    await found.namespaces.bootstrap("standalone", {}, 4)
    return found


async def test_topics_share_what_their_namespace_says(world: World) -> None:
    assert await world.resolver.resolve(A) is await world.resolver.resolve(B)
    world.topics.records[A] = {"messageTTLInSeconds": 7}
    assert [await world.ttl_s(each) for each in (A, B)] == [7, 0]
    found = (await world.resolver.resolve(SYSTEM)).policies
    assert found.compaction.threshold_bytes > 0
    assert (await world.resolver.resolve(B)).policies.compaction.threshold_bytes == 0


async def test_a_change_of_the_namespace_counts_at_once(world: World) -> None:
    for ttl_s in (5, 6, 0):
        await world.namespaces.tenants.update(
            "public/default", lambda old, to=ttl_s: old | {"message_ttl_in_seconds": to}
        )
        assert [await world.ttl_s(each) for each in (A, B)] == [ttl_s, ttl_s]
    await world.namespaces.tenants.delete("public/default")
    assert await world.ttl_s(A) == 0


async def test_a_change_of_the_brokers_settings_counts_at_once(world: World) -> None:
    resolver = world.resolver
    for after_s in (11, 12):
        overwrite(world.config, "brokerDeleteInactiveTopicsFrequencySeconds", after_s)
        assert (await resolver.resolve(A)).policies.inactivity.after_s == after_s
    for producers_max in (3, 4):
        resolver.options = replace(resolver.options, producers_max=producers_max)
        assert (await resolver.resolve(A)).options.producers_max == producers_max


async def test_other_namespaces_have_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "NAMESPACES_KEPT_MAX", 3)
    names = [f"public/n{number}" for number in range(10)]
    for number, name in enumerate(names):
        policies: JsonObject = {"message_ttl_in_seconds": number}
        await world.store.put(f"/admin/policies/{name}", msgspec.json.encode(policies))
    for _ in range(2):
        topics = [TopicName.parse(f"persistent://{name}/t") for name in names]
        assert [await world.ttl_s(each) for each in topics] == list(range(10))
        assert len(world.resolver._known) <= 3
