"""What may be asked of a topic's statistics, on both servers (Apache's GetStatsOptions)."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx

from compat_tests.clients.conftest import Peer
from geminga.blocking.admin import AdminClient

TIMES = {"getEarliestTimeInBacklog": "true"}


def stats(web: httpx.Client, topic: str, path: str = "stats", **asked: str) -> Any:
    base = f"/admin/v2/{topic.replace('://', '/')}"
    return web.get(f"{base}/{path}", params=asked).raise_for_status().json()


def earliest(told: Any) -> dict[str, int]:
    """Of each subscription, and of the topic under no name."""
    found = {
        name: each["earliestMsgPublishTimeInBacklog"]
        for name, each in told["subscriptions"].items()
    }
    return {**found, "": told["earliestMsgPublishTimeInBacklogs"]}


def test_clients_and_sizes_can_be_left_out(
    peer: Peer, admin: AdminClient, web: httpx.Client, namespace: str
) -> None:
    topic = f"persistent://{namespace}/t"
    admin.topics.create(topic)
    producer, consumer = peer.producer(topic), peer.consumer(topic)
    producer.send(b"x" * 100)
    whole = stats(web, topic)
    sub = whole["subscriptions"]["sub"]
    assert (len(whole["publishers"]), len(sub["consumers"])) == (1, 1)
    assert sub["backlogSize"] > 100
    less = stats(
        web,
        topic,
        excludePublishers="true",
        excludeConsumers="true",
        subscriptionBacklogSize="false",
        getPreciseBacklog="true",
    )
    found = less["subscriptions"]["sub"]
    assert (less["publishers"], found["consumers"], found["backlogSize"]) == ([], [], -1)
    assert less["backlogSize"] == whole["backlogSize"]
    assert (found["msgBacklog"], found["type"], found["unackedMessages"]) == (
        sub["msgBacklog"],
        "Exclusive",
        sub["unackedMessages"],
    )
    only_publishers = stats(web, topic, excludePublishers="true")
    assert only_publishers["publishers"] == []
    assert len(only_publishers["subscriptions"]["sub"]["consumers"]) == 1
    consumer.close()


def test_times_of_the_oldest_messages(
    peer: Peer, admin: AdminClient, web: httpx.Client, namespace: str
) -> None:
    topic = f"persistent://{namespace}/t"
    admin.topics.create(topic)
    assert earliest(stats(web, topic, **TIMES)) == {"": 0}
    for name in ("behind", "ahead", "done"):
        admin.subscriptions.create(topic, name)
    assert earliest(stats(web, topic, **TIMES)) == {"behind": -1, "ahead": -1, "done": -1, "": 0}
    producer = peer.producer(topic)
    consumer = peer.consumer(topic, subscription="behind")
    for text in (b"one", b"two", b"three"):
        producer.send(text)
    times = []
    for _ in range(3):
        times.append(consumer.receive(60_000).publish_timestamp())
    admin.subscriptions.skip(topic, "ahead", 2)
    admin.subscriptions.skip_all(topic, "done")
    told = earliest(stats(web, topic, **TIMES))
    assert told == {"behind": times[0], "ahead": times[2], "done": -1, "": times[0]}
    assert earliest(stats(web, topic)) == {"behind": 0, "ahead": 0, "done": 0, "": 0}


def test_options_hold_for_partitions(
    peer: Peer, admin: AdminClient, web: httpx.Client, namespace: str
) -> None:
    topic = f"persistent://{namespace}/p"
    admin.topics.create_partitioned(topic, 2)
    consumer, producer = peer.consumer(topic), peer.producer(topic)
    for number in range(8):
        producer.send(b"%d" % number)
    times = [consumer.receive(60_000).publish_timestamp() for _ in range(8)]
    asked = {**TIMES, "excludeConsumers": "true", "excludePublishers": "true"}
    told = stats(web, topic, "partitioned-stats", subscriptionBacklogSize="false", **asked)
    assert told["subscriptions"]["sub"]["earliestMsgPublishTimeInBacklog"] == min(times)
    for part in (told, *told["partitions"].values()):
        assert (part["publishers"], part["subscriptions"]["sub"]["consumers"]) == ([], [])
    sizes = [each["subscriptions"]["sub"]["backlogSize"] for each in told["partitions"].values()]
    assert sizes == [-1, -1]
    assert told["subscriptions"]["sub"]["backlogSize"] == -2
