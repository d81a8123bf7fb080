"""A subscription made over REST makes its topic, where policy makes topics for clients too."""

from __future__ import annotations

import pytest

from geminga_broker.admin._tests.test_schema_routes import Admin, admin

SPACE = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/persistent/public/default"
REFUSED = 412, {"reason": "Topic does not exist and cannot be auto-created"}
DONE = 204, None


async def allow(rest: Admin, **policy: object) -> None:
    assert await rest.ask("POST", f"{SPACE}/autoTopicCreation", policy) == DONE


async def subscribe(rest: Admin, topic: str, body: object = None, name: str = "keep") -> object:
    return await rest.ask("PUT", f"{TOPICS}/{topic}/subscription/{name}", body)


async def names(rest: Admin) -> list[str]:
    found = await rest.ask("GET", TOPICS)
    assert isinstance(found, tuple)
    return [name.rpartition("/")[2] for name in found[1]]


@pytest.mark.parametrize("body", [None, "latest", "earliest"])
async def test_a_topic_that_is_not_there_is_made(body: object) -> None:
    async with admin() as rest:
        assert await subscribe(rest, "t", body) == DONE
        assert await names(rest) == ["t"]
        assert await rest.ask("GET", f"{TOPICS}/t/subscriptions") == (200, ["keep"])
        again = 409, {"reason": "Subscription already exists for topic"}
        assert await subscribe(rest, "t", body) == again
        missing = await rest.ask("PUT", "/admin/v2/persistent/public/no/t/subscription/keep")
        assert missing == (404, {"reason": "Namespace not found"})


async def test_where_partitioned_topics_are_made() -> None:
    async with admin() as rest:
        kind = {"topicType": "partitioned", "defaultNumPartitions": 3}
        await allow(rest, allowAutoTopicCreation=True, **kind)
        assert await subscribe(rest, "t") == DONE
        assert await names(rest) == [f"t-partition-{n}" for n in range(3)]
        for n in range(3):
            found = await rest.ask("GET", f"{TOPICS}/t-partition-{n}/subscriptions")
            assert found == (200, ["keep"])


async def test_where_no_topics_are_made() -> None:
    async with admin() as rest:
        assert await rest.ask("PUT", f"{TOPICS}/q/partitions", 2) == DONE
        assert await subscribe(rest, "q-partition-2") == REFUSED
        assert await rest.ask("DELETE", f"{TOPICS}/q/partitions") == DONE
        await allow(rest, allowAutoTopicCreation=False)
        assert await subscribe(rest, "t") == REFUSED
        assert await subscribe(rest, "t-partition-0") == REFUSED
        assert await names(rest) == []
        assert await rest.ask("PUT", f"{TOPICS}/p/partitions", 2) == DONE
        assert await subscribe(rest, "p") == DONE
        assert await subscribe(rest, "p-partition-2") == REFUSED
        assert await names(rest) == ["p-partition-0", "p-partition-1"]


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_partition_that_was_deleted_is_made_again(is_allowed: bool) -> None:
    """Also where no topics are made: its topic is there."""
    async with admin() as rest:
        await allow(rest, allowAutoTopicCreation=is_allowed)
        assert await rest.ask("PUT", f"{TOPICS}/p/partitions", 2) == DONE
        assert await rest.ask("DELETE", f"{TOPICS}/p-partition-0", query="force=true") == DONE
        assert await subscribe(rest, "p") == DONE
        assert await names(rest) == ["p-partition-0", "p-partition-1"]
