"""How many topics a namespace may have, and names that only partitions have, with the answers that
Apache Pulsar 4.0.7's broker gave to the same calls.
"""

from __future__ import annotations

import pytest

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_schema_routes import Admin, admin
from geminga_broker.admin.app import create_app

SPACE = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/persistent/public/default"
PASSING = "/admin/v2/non-persistent/public/default"
DONE = 204, None
FULL = {"reason": "Exceed maximum number of topics in namespace."}
NO_PARTITION = {"reason": "Partitioned Topic Name should not contain '-partition-'"}


def lacks(name: str, base: str) -> object:
    what = f'Can\'t create topic {name} with "-partition-" followed by numeric value'
    return 412, {"reason": f"{what} if there isn't a partitioned topic {base} created."}


async def limited(rest: Admin, topics: int) -> None:
    assert await rest.ask("POST", f"{SPACE}/maxTopicsPerNamespace", topics) == DONE


async def test_partitions_count_for_the_limit_of_topics() -> None:
    async with admin() as rest:
        await limited(rest, 2)
        assert await rest.ask("PUT", f"{TOPICS}/a") == DONE
        assert await rest.ask("PUT", f"{TOPICS}/p/partitions", 2) == (412, FULL)
        assert await rest.ask("PUT", f"{TOPICS}/q/partitions", 1) == DONE
        assert await rest.ask("PUT", f"{TOPICS}/r/partitions", 1) == (412, FULL)
        assert await rest.ask("PUT", f"{TOPICS}/b") == (409, FULL)
        assert await rest.ask("PUT", f"{TOPICS}/c/subscription/s") == (409, FULL)
        # Those that aren't persistent are not counted.
        assert await rest.ask("PUT", f"{PASSING}/c") == DONE
        assert await rest.ask("PUT", f"{PASSING}/p/partitions", 2) == DONE
        assert await rest.ask("PUT", f"{PASSING}/p3/partitions", 3) == (412, FULL)
        # Growing isn't looked at.
        assert await rest.ask("POST", f"{TOPICS}/q/partitions", 4) == DONE


async def test_a_client_makes_no_partitioned_topic_above_the_limit() -> None:
    async with admin() as rest:
        policy = {
            "allowAutoTopicCreation": True,
            "topicType": "partitioned",
            "defaultNumPartitions": 3,
        }
        assert await rest.ask("POST", f"{SPACE}/autoTopicCreation", policy) == DONE
        await limited(rest, 2)
        looks = f"{TOPICS}/auto/partitions", None, "checkAllowAutoCreation=true"
        assert await rest.ask("GET", *looks) == (409, FULL)
        await limited(rest, 3)
        assert await rest.ask("GET", *looks) == (200, {"partitions": 3, "deleted": False})


async def test_a_limit_of_subscriptions_is_a_conflict() -> None:
    async with admin() as rest:
        assert await rest.ask("POST", f"{SPACE}/maxSubscriptionsPerTopic", 1) == DONE
        assert await rest.ask("PUT", f"{TOPICS}/a") == DONE
        assert await rest.ask("PUT", f"{TOPICS}/a/subscription/s") == DONE
        text = "Exceed the maximum number of subscriptions of the topic: "
        answer = 409, {"reason": text + "persistent://public/default/a"}
        assert await rest.ask("PUT", f"{TOPICS}/a/subscription/t") == answer


async def test_a_partitioned_topic_is_not_named_as_a_partition() -> None:
    async with admin() as rest:
        for name in ("y-partition-0", "y-partition-x"):
            one = f"{TOPICS}/{name}"
            assert await rest.ask("PUT", f"{one}/partitions", 2) == (412, NO_PARTITION)
            assert await rest.ask("POST", f"{one}/partitions", 3) == (412, NO_PARTITION)
            assert await rest.ask("DELETE", f"{one}/partitions") == (412, NO_PARTITION)
            assert await rest.ask("POST", f"{one}/createMissedPartitions") == (412, NO_PARTITION)
        assert await rest.ask("GET", f"{TOPICS}/partitioned") == (200, [])


@pytest.mark.parametrize("topics", [TOPICS, PASSING])
async def test_a_topic_of_its_own_is_not_named_as_a_partition(topics: str) -> None:
    async with admin() as rest:
        for name in ("z-partition-0", "z-partition-01", "z-partition-7"):
            assert await rest.ask("PUT", f"{topics}/{name}") == lacks(name, "z")
        assert await rest.ask("PUT", f"{topics}/z-partition-x") == DONE
        assert await rest.ask("PUT", f"{topics}/p/partitions", 2) == DONE
        number = "followed by a number smaller than number of partition of partitioned topic p"
        text = f'Can\'t create topic p-partition-2 with "-partition-" {number}'
        assert await rest.ask("PUT", f"{topics}/p-partition-2") == (412, {"reason": text})


async def test_a_topic_that_is_not_persistent_has_neither_last_message_nor_end() -> None:
    async with admin() as rest:
        needed = {"reason": "Need to provide a persistent topic name"}
        assert await rest.ask("POST", f"{PASSING}/n/terminate") == (406, needed)
        assert await rest.ask("PUT", f"{PASSING}/n") == DONE
        text = "GetLastMessageId on a non-persistent topic is not allowed"
        assert await rest.ask("GET", f"{PASSING}/n/lastMessageId") == (405, {"reason": text})


async def test_a_lookup_tells_of_topics_that_are_not_there_nor_made() -> None:
    async with admin() as rest:

        async def found(name: str, domain: str = "persistent") -> object:
            answer = await rest.ask("GET", f"/lookup/v2/topic/{domain}/public/default/{name}")
            assert isinstance(answer, tuple)
            return answer if answer[0] != 200 else 200

        def missing(name: str) -> object:
            return 404, {"reason": f"Topic not found persistent://public/default/{name}"}

        assert await rest.ask("PUT", f"{TOPICS}/p/partitions", 2) == DONE
        assert await rest.ask("PUT", f"{TOPICS}/t") == DONE
        assert await found("absent") == 200
        assert await found("p-partition-7") == missing("p-partition-7")
        policy = {"allowAutoTopicCreation": False}
        assert await rest.ask("POST", f"{SPACE}/autoTopicCreation", policy) == DONE
        assert await found("absent") == missing("absent")
        assert await found("absent-partition-0") == missing("absent-partition-0")
        for name in ("t", "p", "p-partition-1"):
            assert await found(name) == 200
        assert await found("absent", "non-persistent") == 200


async def test_tenants_and_their_namespaces_may_be_bounded() -> None:
    async with open_broker() as broker:
        rest, topics = Admin(create_app(broker.service)), broker.service.config.topics
        info = {"adminRoles": [], "allowedClusters": ["standalone"]}
        tenants = len(await broker.service.namespaces.tenants.names())
        object.__setattr__(topics, "tenants_max", tenants + 1)
        assert await rest.ask("PUT", "/admin/v2/tenants/one", info) == DONE
        reason = {"reason": "Exceed the maximum number of tenants"}
        assert await rest.ask("PUT", "/admin/v2/tenants/two", info) == (412, reason)
        object.__setattr__(topics, "namespaces_per_tenant_max", 2)
        for name in "ab":
            assert await rest.ask("PUT", f"/admin/v2/namespaces/one/{name}") == DONE
        reason = {"reason": "Exceed the maximum number of namespace in tenant :one"}
        assert await rest.ask("PUT", "/admin/v2/namespaces/one/c") == (412, reason)
        assert await rest.ask("DELETE", "/admin/v2/namespaces/one/a") == DONE
        assert await rest.ask("PUT", "/admin/v2/namespaces/one/c") == DONE
