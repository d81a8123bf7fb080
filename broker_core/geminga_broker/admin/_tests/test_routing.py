"""Calls are answered by the brokers that own what they concern."""

from __future__ import annotations

import pytest

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.several_brokers import cluster_of
from geminga_broker.admin.app import routes_of
from geminga_broker.admin.bundle_rules import BUNDLES, OF_ANY_BROKER
from geminga_broker.admin.joins import EACH
from geminga_broker.admin.topic_rules import TOPICS, Where, is_of_topic, place_of
from geminga_protocol.topic_name import TopicName

TOPIC = "/admin/v2/persistent/public/default"


async def test_the_tables_name_every_route_of_a_topic_or_bundle() -> None:
    async with open_broker() as broker:
        routes = [
            (method, route.path)
            for route in routes_of(broker.service)
            for method in (route.methods or set()) - {"HEAD"}
        ]
    for method, path in routes:
        if is_of_topic(path):
            assert place_of(method, path) is not None, f"where is {method} {path} answered?"
        if "{bundle}" in path:
            assert f"{method} {path}" in {*BUNDLES, *OF_ANY_BROKER}, f"{method} {path}"
    known = {f"{method} {path}" for method, path in routes}
    assert known >= set(BUNDLES), "rules without a route"
    base = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
    for row in TOPICS:
        method, _, rest = row.partition(" ")
        assert f"{method} {base}{rest}" in known, f"{row} is no route"
    assert {row for row, where in TOPICS.items() if where is Where.PARTITIONS} == set(EACH)
    assert place_of("GET", base + "/new") is None


async def test_a_topic_of_another_broker_is_redirected_to_it() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await cluster.share()
        name = await cluster.topic_of(second)
        path = f"{TOPIC}/{name}"
        reply = await first.ask("PUT", path)
        assert reply == (307, f"http://b1:8080{path}?authoritative=true", b"")
        reply = await first.ask("GET", f"{path}/stats?a=%2F&authoritative=false&b")
        target = f"{path}/stats?a=%2F&b&authoritative=true"
        assert reply.location == f"http://b1:8080{target}"
        assert (await second.ask("PUT", path)).status == 204
        assert (await second.ask("GET", target)).status == 200
        # The second one doesn't lead.
        mine = await cluster.topic_of(first)
        reply = await second.ask("GET", f"{TOPIC}/{mine}/stats")
        assert reply.location == f"http://b0:8080{TOPIC}/{mine}/stats?authoritative=false"
        assert not first.service.topics.loaded
        assert list(second.service.topics.loaded) == [f"persistent://public/default/{name}"]


async def test_escapes_and_https_are_kept() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await cluster.share()
        secure = second.addresses._replace(web_url_tls="https://b1:8443")
        for bundle in second.service.ownership.owned():
            await second.service.unloader.unload(bundle)
        second.service.ownership.addresses = second.addresses = secure
        for bundle in await cluster.bundles():
            if not first.service.ownership.holds(bundle):
                await second.own(bundle)
        for number in range(100):
            if await cluster.owner(f"persistent://public/default/a?b {number}") is second:
                break
        path = f"{TOPIC}/a%3Fb%20{number}"
        reply = await first.ask("GET", f"{path}/stats", scheme="https")
        assert reply.location == f"https://b1:8443{path}/stats?authoritative=true"
        reply = await first.ask("GET", f"{path}/stats")
        assert reply.location == f"http://b1:8080{path}/stats?authoritative=true"


async def test_a_topic_that_nobody_owns_gets_an_owner_by_the_leader() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        path = f"{TOPIC}/t"
        reply = await second.ask("PUT", path)
        assert reply.location == f"http://b0:8080{path}?authoritative=false"
        reply = await first.ask("PUT", f"{path}?authoritative=false")
        if reply.status == 307:  # as the hash of its name has it
            assert reply.location == f"http://b1:8080{path}?authoritative=true"
            reply = await second.ask("PUT", f"{path}?authoritative=true")
        assert reply.status == 204
        assert sum(len(one.service.topics.loaded) for one in cluster) == 1


async def test_who_is_told_that_it_is_final_takes_the_topic() -> None:
    async with cluster_of() as cluster:
        second = cluster[1]
        for number in range(8):
            reply = await second.ask("PUT", f"{TOPIC}/t{number}?authoritative=true")
            assert reply.status == 204
        assert len(second.service.topics.loaded) == 8


async def test_what_stands_in_the_store_is_answered_by_all() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await cluster.share()
        name = await cluster.topic_of(second)
        assert (await second.ask("PUT", f"{TOPIC}/{name}")).status == 204
        assert (await first.ask("GET", TOPIC)).json == [f"persistent://public/default/{name}"]
        assert (await first.ask("GET", f"{TOPIC}/{name}/partitions")).status == 200


async def test_policies_are_changed_by_one_broker_and_known_to_all() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        await cluster.share()
        name = await cluster.topic_of(second)
        assert (await second.ask("PUT", f"{TOPIC}/{name}")).status == 204
        path = f"{TOPIC}/{name}/maxProducers"
        reply = await first.ask("POST", path, 5)
        assert (reply.status, reply.location.partition("?")[0]) == (307, f"http://b1:8080{path}")
        assert (await second.ask("POST", path, 5)).status == 204
        assert (await second.ask("GET", path)).json == 5
        topic = TopicName.parse(f"persistent://public/default/{name}")
        assert await first.service.policies.store.get(topic) == {"maxProducerPerTopic": 5}
        assert (await second.ask("PUT", f"{TOPIC}/{name}s/partitions", 3)).status == 204
        path = f"{TOPIC}/{name}s/maxProducers"
        owner = await cluster.owner(f"persistent://public/default/{name}s-partition-0")
        other = first if owner is second else second
        assert (await other.ask("POST", path, 5)).status == 307
        assert (await owner.ask("POST", path, 5)).status == 204


async def test_lookups_are_redirected_as_the_binary_ones() -> None:
    async with cluster_of() as cluster:
        first, second = cluster
        path = "/lookup/v2/topic/persistent/public/default/t"
        reply = await second.ask("GET", f"{path}?listenerName=")
        assert reply.status == 307
        assert reply.location == f"http://b0:8080{path}?listenerName=&authoritative=false"
        reply = await second.ask("GET", f"{path}?authoritative=true")
        assert reply.status == 200
        reply = await first.ask("GET", path)
        assert isinstance(reply.json, dict)
        assert reply.json["brokerUrl"] == "pulsar://b1:6650", "the owner is told, by any broker"


@pytest.mark.parametrize("bundle", ["x", "0x0_", "a_b", "0x00000000_0x40000001", "1_2"])
@pytest.mark.slow
async def test_bundles_that_are_none(bundle: str) -> None:
    async with cluster_of(1) as cluster:
        reply = await cluster[0].ask("PUT", f"/admin/v2/namespaces/public/default/{bundle}/unload")
        assert reply.status == 412
        missing = await cluster[0].ask("PUT", f"/admin/v2/namespaces/public/no/{bundle}/unload")
        assert (missing.status, missing.json) == (404, {"reason": "Namespace not found"})
