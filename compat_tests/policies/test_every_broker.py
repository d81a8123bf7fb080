"""Topics that are loaded by other brokers than the one that is asked take a policy too (BR-60)."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
import trio

from compat_tests.policies.model import JSON, Level
from compat_tests.policies.table import POLICIES
from compat_tests.policies.test_effects import PROBED, installed_filters
from geminga_broker.admin._tests.several_brokers import Cluster, cluster_of
from geminga_broker.config import load_config
from geminga_broker.policies.model import TopicOptions, TopicPolicies
from geminga_broker.topic.topic import Topic
from geminga_protocol.topic_name import TopicName

SPACE = "/admin/v2/namespaces/public/default"
PARTED = "/admin/v2/persistent/public/default/p"
READ_WHEN_NEEDED = {"maxTopicsPerNamespace", "autoTopicCreation"}
"""Beside those of schemas, which topics don't have by them."""
AS_WITHOUT = {"deduplication", "autoSubscriptionCreation"}
"""Those whose value for topics is what holds without it."""
SETTINGS = {
    "allowOverrideEntryFilters": "true",
    # The topics stay where they are.
    "brokerDeleteInactiveTopicsEnabled": "false",
    "loadBalancerSheddingEnabled": "false",
}
HEARD_S = 2.0
"""Changes are gathered for a moment, and pause at most for a second (`cluster.changes`)."""


async def ask(cluster: Cluster, method: str, path: str, body: JSON = None) -> None:
    """Of the first broker, or of the one that it names."""
    broker = cluster[0]
    for _ in range(3):
        reply = await broker.ask(method, path, body)
        if reply.status != 307:
            break
        host = urlsplit(reply.location).netloc
        broker = next(each for each in cluster if each.addresses.broker_id == host)
    assert reply.status in (200, 204), (method, path, reply)


async def loaded(cluster: Cluster) -> list[Topic]:
    """The partitions of a topic; each broker has some of them."""
    await cluster.share()
    await ask(cluster, "PUT", f"{PARTED}/partitions", 4)
    names = [f"persistent://public/default/p-partition-{index}" for index in range(4)]
    owners = [await cluster.owner(name) for name in names]
    assert len({id(owner) for owner in owners}) == len(cluster)
    return [
        await owner.service.topics.get(TopicName.parse(name), create=True)
        for owner, name in zip(owners, names, strict=True)
    ]


def held(topics: list[Topic]) -> list[tuple[TopicPolicies, TopicOptions]]:
    """What holds for each."""
    return [(topic.policies, topic.options) for topic in topics]


@pytest.mark.slow
async def test_every_broker_takes_every_policy(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geminga_broker.policies.resolve.load_filters", installed_filters)
    config = load_config(None, {}, SETTINGS)
    wrong: list[str] = []
    tried = 0

    async def lived(base: str, level: Level, name: str) -> None:
        before = held(topics)
        path = f"{base}/{level.set_at}"
        await ask(cluster, level.verb, path, level.value)
        await trio.sleep(HEARD_S)
        assert not any(topic.fenced for topic in topics), "a topic has moved"
        if any(old == new for old, new in zip(before, held(topics), strict=True)):
            wrong.append(f"{name}: {path} isn't heard of everywhere")
        method, path, value = level.removed_by
        await ask(cluster, method, f"{base}/{path}", value)
        await trio.sleep(HEARD_S)
        if held(topics) != before:
            wrong.append(f"{name}: the end of {path} isn't heard of everywhere")

    async with cluster_of(2, config) as cluster:
        topics = await loaded(cluster)
        for policy in POLICIES:
            if policy not in PROBED or "chema" in policy.name or policy.name in READ_WHEN_NEEDED:
                continue
            tried += 1
            if policy.namespace is not None:
                await lived(SPACE, policy.namespace, policy.name)
            if policy.topic is not None and policy.name not in AS_WITHOUT:
                await lived(PARTED, policy.topic, policy.name)
    assert not wrong, "\n".join(wrong)
    assert tried > 20
