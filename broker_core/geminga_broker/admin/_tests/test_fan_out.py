"""Calls that concern topics of several brokers are made at each of them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import trio
import trio.lowlevel

from geminga_broker.admin._tests.several_brokers import Broker, Cluster, cluster_of
from geminga_broker.admin.calls import CONCURRENT_MAX, each_of
from geminga_broker.config import BrokerConfig
from geminga_broker.errors import BrokerError
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName

TOPICS = "/admin/v2/persistent/public/default"
SPACE = "/admin/v2/namespaces/public/default"
PARTS = f"{TOPICS}/p"
COUNT = 12


def by_force() -> BrokerConfig:
    config = BrokerConfig()
    return replace(config, topics=replace(config.topics, force_delete_namespaces=True))


async def partitioned(cluster: Cluster, count: int = COUNT) -> None:
    await cluster.share()
    assert (await cluster[0].ask("PUT", f"{PARTS}/partitions", count)).status == 204
    owners = [await owner_of(cluster, index) for index in range(count)]
    assert {owner.addresses for owner in owners} == {one.addresses for one in cluster}


async def owner_of(cluster: Cluster, index: int) -> Broker:
    return await cluster.owner(f"persistent://public/default/p-partition-{index}")


async def listed(broker: Broker) -> list[str]:
    return sorted(msgspec.json.decode((await broker.ask("GET", TOPICS)).body, type=list[str]))


async def test_partitions_are_made_without_being_loaded() -> None:
    async with cluster_of() as cluster:
        await partitioned(cluster)
        names = [f"persistent://public/default/p-partition-{n}" for n in range(COUNT)]
        for broker in cluster:
            assert not broker.service.topics.loaded
            assert await listed(broker) == sorted(names)
        assert (await cluster[0].ask("POST", f"{PARTS}/partitions", COUNT + 1)).status == 204
        assert len(await listed(cluster[1])) == COUNT + 1
        index = COUNT
        owner = await owner_of(cluster, index)
        assert (await owner.ask("GET", f"{TOPICS}/p-partition-{index}/stats")).status == 200


async def test_subscriptions_of_all_partitions() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await partitioned(cluster)
        sub = f"{PARTS}/subscription/s"
        assert (await first.ask("PUT", sub, "earliest")).status == 204
        for index in range(COUNT):
            owner = await owner_of(cluster, index)
            path = f"{TOPICS}/p-partition-{index}/subscriptions"
            assert (await owner.ask("GET", path)).json == ["s"]
        again = await second.ask("PUT", sub)
        assert (again.status, again.json) == (
            409,
            {"reason": "Subscription already exists for topic"},
        )
        assert (await second.ask("GET", f"{PARTS}/subscriptions")).json == ["s"]
        assert (await second.ask("PUT", f"{sub}/properties", {"a": "b"})).status == 204
        assert (await first.ask("GET", f"{sub}/properties")).json == {"a": "b"}
        assert (await first.ask("POST", f"{sub}/skip_all")).status == 204
        assert (await first.ask("POST", f"{sub}/resetcursor/1")).status == 204
        refused = await first.ask("POST", f"{sub}/skip/1")
        assert (refused.status, refused.json) == (
            405,
            {"reason": "Skip messages on a partitioned topic is not allowed"},
        )
        missing = f"{PARTS}/subscription/no"
        reason = {"reason": "Subscription no not found for topic persistent://public/default/p"}
        for method, path in (("POST", "/skip_all"), ("GET", "/properties")):
            reply = await first.ask(method, missing + path)
            assert (reply.status, reply.json) == (404, reason)
        reply = await first.ask("DELETE", missing)
        assert (reply.status, reply.json) == (404, {"reason": "Subscription not found"})
        assert (await first.ask("DELETE", sub)).status == 204
        assert (await second.ask("GET", f"{PARTS}/subscriptions")).json == []


async def test_a_subscription_that_some_partitions_have() -> None:
    async with cluster_of() as cluster:
        await partitioned(cluster)
        owner = await owner_of(cluster, 3)
        one = f"{TOPICS}/p-partition-3/subscription/s"
        assert (await owner.ask("PUT", one)).status == 204
        assert (await cluster[0].ask("PUT", f"{PARTS}/subscription/s")).status == 204


async def test_statistics_of_all_partitions() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await partitioned(cluster)
        for broker in cluster:
            stats = (await broker.ask("GET", f"{PARTS}/partitioned-stats")).json
            assert isinstance(stats, dict)
            assert len(stats["partitions"]) == COUNT
            owners = {part["ownerBroker"] for part in stats["partitions"].values()}
            assert owners == {"b0:8080", "b1:8080"}
            assert "ownerBroker" not in stats
            found = (await broker.ask("GET", f"{PARTS}/partitioned-internalStats")).json
            assert isinstance(found, dict)
            assert len(found["partitions"]) == COUNT
        plain = (await first.ask("GET", f"{PARTS}/partitioned-stats?perPartition=false")).json
        assert isinstance(plain, dict)
        assert plain["partitions"] == {}
        assert any("/stats" in call for call in second.asked)


async def test_a_broker_that_can_not_be_asked_is_missing_in_the_statistics() -> None:
    """As in Apache, whose broker leaves out partitions that fail."""
    async with cluster_of() as cluster:
        await partitioned(cluster)
        first, second = cluster
        cluster.remove(second)
        stats = (await first.ask("GET", f"{PARTS}/partitioned-stats")).json
        assert isinstance(stats, dict)
        assert {part["ownerBroker"] for part in stats["partitions"].values()} == {"b0:8080"}
        reply = await first.ask("POST", f"{PARTS}/terminate/partitions")
        assert (reply.status, reply.json) == (500, {"reason": "broker b1:8080 is not registered"})


async def test_ends_of_all_partitions() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await partitioned(cluster)
        for broker in cluster:
            await broker.ask("GET", f"{PARTS}/partitioned-stats")  # loads them
        assert sum(len(one.service.topics.loaded) for one in cluster) == COUNT
        assert (await first.ask("PUT", f"{PARTS}/unload")).status == 204
        assert sum(len(one.service.topics.loaded) for one in cluster) == 0
        assert (await first.ask("DELETE", f"{PARTS}/truncate")).status == 204
        assert (await first.ask("PUT", f"{PARTS}/compaction")).status == 204
        ended = (await second.ask("POST", f"{PARTS}/terminate/partitions")).json
        assert isinstance(ended, dict)
        assert sorted(ended) == sorted(map(str, range(COUNT)))
        assert ended["3"]["partitionIndex"] == 3
        for broker in cluster:
            for topic in broker.service.topics.loaded.values():
                assert isinstance(topic, PersistentTopic)
                assert topic.log.terminated


async def test_a_partitioned_topic_is_deleted_at_all_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await partitioned(cluster)
        topic = TopicName.parse("persistent://public/default/p")
        delete = second.service.topics.delete

        async def in_use(name: TopicName, *, force: bool = False) -> None:
            del name, force
            raise BrokerError(ServerError.ProducerBusy, "Topic has a producer")

        monkeypatch.setattr(second.service.topics, "delete", in_use)
        refused = await first.ask("DELETE", f"{PARTS}/partitions")
        monkeypatch.setattr(second.service.topics, "delete", delete)
        assert (refused.status, refused.json) == (
            412,
            {"reason": "Topic has active producers/subscriptions"},
        )
        assert await second.service.catalog.partitions_to_make(topic) == (COUNT, True)
        assert (await second.ask("DELETE", f"{PARTS}/partitions?force=true")).status == 204
        assert (await first.ask("GET", TOPICS)).json == []
        assert (await first.ask("GET", f"{PARTS}/partitions")).status == 404
        assert not first.service.topics.loaded
        assert not second.service.topics.loaded


async def test_non_persistent_topics_of_all_brokers_are_listed() -> None:
    async with cluster_of() as cluster:
        await cluster.share()
        names = []
        for broker in cluster:
            name = await cluster.topic_of(broker, "non-persistent")
            names.append(f"non-persistent://public/default/{name}")
            made = await broker.ask("PUT", f"/admin/v2/non-persistent/public/default/{name}")
            assert made.status == 204
        for broker in cluster:
            found = (await broker.ask("GET", "/admin/v2/non-persistent/public/default")).json
            assert found == sorted(names)
            assert (await broker.ask("GET", f"{SPACE}/topics?mode=ALL")).json == sorted(names)
            assert (await broker.ask("GET", f"{SPACE}/topics?mode=NON_PERSISTENT")).json == sorted(
                names
            )
            assert (await broker.ask("GET", f"{SPACE}/topics")).json == []
        bundle = await cluster[0].service.namespaces.bundle_of(TopicName.parse(names[0]))
        path = "/admin/v2/non-persistent/public/default"
        only = await cluster[1].ask("GET", f"{path}?bundle={bundle.range}")
        assert only.json == names[:1]
        assert (await cluster[1].ask("GET", f"{path}/{bundle.range}")).status == 307
        assert (await cluster[0].ask("GET", f"{path}/{bundle.range}")).json == names[:1]


async def test_persistent_topics_are_listed_by_bundle() -> None:
    async with cluster_of() as cluster:
        await cluster.share()
        names = [f"persistent://public/default/{n}" for n in range(20)]
        for name in names:
            path = name.replace("://", "/")
            assert (await cluster[0].ask("PUT", f"/admin/v2/{path}")).status in (204, 307)
            await cluster[1].ask("PUT", f"/admin/v2/{path}")
        bundles = await cluster[0].service.namespaces.bundles("public/default")
        by_range = {
            each: sorted(name for name in names if bundles.of_topic(name) == each)
            for each in bundles.names()
        }
        assert len([each for each in by_range.values() if each]) > 1
        for each, wanted in by_range.items():
            found = await cluster[1].ask("GET", f"{TOPICS}?bundle={each}")
            assert found.json == wanted


async def test_a_namespace_is_unloaded_at_all_brokers() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await partitioned(cluster)
        await first.ask("GET", f"{PARTS}/partitioned-stats")
        assert (await first.ask("PUT", f"{SPACE}/unload")).status == 204
        for broker in cluster:
            assert not broker.service.topics.loaded
            assert not broker.service.ownership.owned()
        assert (await first.ask("PUT", f"{SPACE}/unload")).status == 204, "nobody owns anything"
        assert (await second.ask("PUT", "/admin/v2/namespaces/public/no/unload")).status == 404


async def test_backlogs_and_subscriptions_of_a_namespace() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await partitioned(cluster)
        for name in ("s", "other"):
            assert (await first.ask("PUT", f"{PARTS}/subscription/{name}")).status == 204
        assert (await second.ask("POST", f"{SPACE}/clearBacklog")).status == 204
        assert (await second.ask("POST", f"{SPACE}/clearBacklog/s")).status == 204
        lacking = await second.ask("POST", f"{SPACE}/clearBacklog/no")
        assert (lacking.status, lacking.json) == (500, {"reason": "Cursor not found"})
        assert (await second.ask("POST", f"{SPACE}/unsubscribe/no")).status == 204
        assert (await second.ask("POST", f"{SPACE}/unsubscribe/s")).status == 204
        assert (await first.ask("GET", f"{PARTS}/subscriptions")).json == ["other"]
        copy = await second.ask("POST", f"{SPACE}/unsubscribe/pulsar.repl.x")
        assert copy.status == 412
        missing = "/admin/v2/namespaces/public/no"
        assert (await first.ask("POST", f"{missing}/clearBacklog")).status == 204


async def test_a_namespace_is_deleted_by_force_at_all_brokers() -> None:
    async with cluster_of(config=by_force()) as cluster:
        first, second = cluster
        await partitioned(cluster)
        await first.ask("GET", f"{PARTS}/partitioned-stats")
        name = await cluster.topic_of(second, "non-persistent")
        await second.ask("PUT", f"/admin/v2/non-persistent/public/default/{name}")
        single = await cluster.topic_of(second)
        assert (await second.ask("PUT", f"{TOPICS}/{single}")).status == 204
        refused = await first.ask("DELETE", SPACE)
        assert (refused.status, refused.json) == (
            409,
            {"reason": "Cannot delete non empty namespace"},
        )
        assert await second.service.namespaces.exists("public/default")
        assert (await first.ask("DELETE", f"{SPACE}?force=true")).status == 204
        for broker in cluster:
            assert not broker.service.topics.loaded
            assert not broker.service.ownership.owned()
        assert (await second.ask("GET", SPACE)).status == 404


async def test_a_non_persistent_topic_elsewhere_keeps_a_namespace() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await cluster.share()
        name = await cluster.topic_of(second, "non-persistent")
        await second.ask("PUT", f"/admin/v2/non-persistent/public/default/{name}")
        assert (await first.ask("DELETE", SPACE)).status == 409
        assert await first.service.namespaces.exists("public/default")


async def test_all_are_tried_a_few_at_a_time_and_the_first_error_is_told() -> None:
    running, most, done = 0, 0, []

    async def action(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.lowlevel.checkpoint()
        running -= 1
        done.append(item)
        if item in (7, 3):
            raise ValueError(item)
        return item

    with pytest.raises(ValueError, match="3"):
        await each_of(action, range(100))
    assert sorted(done) == list(range(100))
    assert most == CONCURRENT_MAX
    assert await each_of(action, [5, 4]) == [5, 4]
    assert await each_of(action, []) == []


async def test_a_bundle_that_is_being_unloaded() -> None:
    async with cluster_of(1) as cluster:
        first = cluster[0]
        await cluster.share()
        bundle = BundleId("public/default", (await cluster.bundles())[0].range)
        await first.service.ownership.disable(bundle)
        reply = await first.ask("PUT", f"{SPACE}/{bundle.range}/unload")
        assert reply.status == 412
        name = "t"
        for number in range(100):
            name = f"t{number}"
            if bundle.covers(f"persistent://public/default/{name}"):
                break
        reply = await first.ask("GET", f"{TOPICS}/{name}/stats")
        assert (reply.status, reply.json) == (
            412,
            {"reason": f"Can't find owner for topic persistent://public/default/{name}"},
        )
