"""Values that no client of Pulsar's sends, found by calls made of the description."""

from __future__ import annotations

import pytest

from geminga_broker.admin.namespaces._tests.test_kept import admin
from geminga_broker.config import BrokerConfig, TopicConfig

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"


async def test_a_topic_doesnt_grow_without_end() -> None:
    """Each partition is a record: 10^15 of them kept the broker busy until it was killed, and
    again after each start.
    """
    async with admin() as at:
        assert (await at.ask("PUT", TOPIC + "/partitions", 10_001))[0] == 406
        await at.done("PUT", TOPIC + "/partitions", 2)
        for count in (10_001, 1 << 50):
            told = await at.ask("POST", TOPIC + "/partitions", count)
            text = f"Desired partitions {count} can't be greater than the maximum partitions"
            assert told == (422, {"reason": f"{text} per topic 10000."})
        _, found = await at.ask("GET", TOPIC + "/partitions")
        assert isinstance(found, dict)
        assert found["partitions"] == 2


async def test_the_configured_limit_holds_for_growing_too() -> None:
    async with admin(BrokerConfig(topics=TopicConfig(partitions_max=3))) as at:
        await at.done("PUT", TOPIC + "/partitions", 2)
        assert (await at.ask("POST", TOPIC + "/partitions", 4))[0] == 422
        await at.done("POST", TOPIC + "/partitions", 3)


@pytest.mark.parametrize("name", ["", "a/b", "\x85"])
async def test_a_peer_cluster_with_no_possible_name(name: str) -> None:
    async with admin() as at:
        told = await at.ask("POST", "/admin/v2/clusters/standalone/peers", [name])
        assert told == (412, {"reason": f"Peer cluster {name} does not exist"})


@pytest.mark.parametrize("path", [NAMESPACE, TOPIC])
async def test_filters_that_are_null(path: str) -> None:
    async with admin() as at:
        await at.done("PUT", TOPIC)
        body = {"entryFilterNames": None}
        assert (await at.ask("POST", path + "/entryFilters", body))[0] == 400


async def test_members_of_a_new_namespace_that_nobody_knows() -> None:
    async with admin() as at:
        body = {"x": [{"a": 1}, {}], "max_producers_per_topic": 3}
        await at.done("PUT", "/admin/v2/namespaces/public/odd", body)
        told = await at.ask("GET", "/admin/v2/namespaces/public/odd/maxProducersPerTopic")
        assert told == (200, 3)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_a_partition_of_a_topic_without_a_name(domain: str) -> None:
    """Apache's broker answers 500 with a stack trace, or an empty 500."""
    odd = f"/admin/v2/{domain}/public/default/-partition-1"
    async with admin() as at:
        for method, tail in (
            ("PUT", ""), ("DELETE", ""), ("PUT", "/unload"), ("GET", "/stats"),
            ("GET", "/partitions"), ("PUT", "/partitions"), ("GET", "/retention"),
            ("PUT", "/subscription/s"), ("DELETE", "/policies"), ("PUT", "/backlogSize"),
        ):  # fmt: skip
            status, told = await at.ask(method, odd + tail)
            assert status == 412, (method, tail)
            assert "Topic name is not valid" in str(told), (method, tail)
        missing = f"/admin/v2/{domain}/public/default/nope-partition-1"
        assert (await at.ask("GET", missing + "/stats"))[0] == 404
        assert (await at.ask("DELETE", missing))[0] == 404
