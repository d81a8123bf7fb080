"""Stored messages and backlogs over the admin REST: status, body and headers are those of Apache's
broker, on both servers.
"""

from __future__ import annotations

import json
import re

import httpx2 as httpx
import pytest

import geminga.blocking
from compat_tests.clients.admin_calls import settled
from compat_tests.clients.conftest import new_client, send_all
from compat_tests.processes import ServerProcess
from geminga.blocking.admin import AdminClient

PARTITIONED = "please try do it on specific topic partition"


@pytest.fixture
def ledger(admin: AdminClient, server: ServerProcess, namespace: str) -> int:
    """The ledger of topic `t`, whose entries are 0, 1, and 2 with a batch of two messages."""
    topic = f"persistent://{namespace}/t"
    admin.topics.create(topic)
    with (
        geminga.blocking.connect(server.service_url) as client,
        client.create_producer(topic, producer_name="p", batching_enabled=False) as producer,
    ):
        first = producer.send(
            b"one",
            partition_key="k",
            properties={"Name": 'q"x', "a": "ü€\n"},
            event_time_ms=1_700_000_000_000,
        )
        producer.send(b"two", event_time_ms=1_700_000_000_120)
    official = new_client(server)
    try:
        batching = official.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=2,
            batching_max_publish_delay_ms=60_000,
        )
        send_all(batching, ["b0", "b1"])
    finally:
        official.close()
    return first.ledger_id


def reason(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["reason"]


def special(response: httpx.Response) -> dict[str, str]:
    """The headers of the message, but the time of publishing."""
    assert response.status_code == 200, response.text
    found = {name.lower(): value for name, value in response.headers.items()}
    return {
        name.removeprefix("x-pulsar-"): value
        for name, value in found.items()
        if name.startswith("x-pulsar-") and name != "x-pulsar-publish-time"
    }


def test_headers_of_messages(web: httpx.Client, namespace: str, ledger: int) -> None:
    base = f"/admin/v2/persistent/{namespace}/t/ledger/{ledger}/entry"
    one, two, batch = (web.get(f"{base}/{entry}") for entry in range(3))
    assert (one.content, two.content) == (b"one", b"two")
    assert one.headers["content-type"] == "application/json"
    found = special(one)
    assert json.loads(found.pop("property")) == {"Name": 'q"x', "a": "ü \n"}
    assert found == {
        "message-id": f"{ledger}:0",
        "event-time": "2023-11-14T22:13:20Z",
        "is-encrypted": "false",
        "producer-name": "p",
        "sequence-id": "0",
        "partition-key": "k",
        "uncompressed-size": "3",
        "txn-uncommitted": "false",
    }
    assert special(two)["event-time"] == "2023-11-14T22:13:20.12Z"
    assert special(two)["property"] == "{}"
    found = special(batch)
    size = len(batch.content)
    assert found["num-batch-message"] == "2"
    assert int(found["batch-size"]) == size + 10


def test_entries_that_are_not_there(web: httpx.Client, namespace: str, ledger: int) -> None:
    topic = f"/admin/v2/persistent/{namespace}/t"
    web.put(f"/admin/v2/persistent/{namespace}/p/partitions", json=2).raise_for_status()
    missing = 404, "Message id not found"
    assert reason(web.get(f"{topic}/ledger/{ledger + 10_000}/entry/0")) == missing
    assert reason(web.get(f"{topic}/ledger/-1/entry/0")) == missing
    status, text = reason(web.get(f"{topic}/ledger/{ledger}/entry/9"))
    assert status == 500
    assert f"LastConfirmedEntry is {ledger}:2 when reading entry 9" in text
    assert web.get(f"{topic}/ledger/{ledger}/entry/x").status_code == 404
    other = f"/admin/v2/persistent/{namespace}/no"
    refused = 404, f"Topic persistent://{namespace}/no not found"
    assert reason(web.get(f"{other}/ledger/{ledger}/entry/0")) == refused
    parts = web.get(f"/admin/v2/persistent/{namespace}/p/ledger/1/entry/0")
    assert reason(parts) == (405, "GetMessageById is not allowed on partitioned-topic")


def test_peeking(web: httpx.Client, namespace: str, ledger: int) -> None:
    topic = f"/admin/v2/persistent/{namespace}/t"

    def peek(number: object) -> httpx.Response:
        return web.get(f"{topic}/subscription/s/position/{number}")

    assert peek(2).content == b"two"
    assert web.get(f"{topic}/subscriptions").json() == ["s"]  # as in Apache: it was made
    second = {"ledgerId": ledger, "entryId": 1}
    assert web.post(f"{topic}/subscription/s/resetcursor", json=second).status_code == 204
    assert peek(1).content == b"two"
    assert special(peek(2))["message-id"] == f"{ledger}:2"
    assert reason(peek(3)) == (404, "Message not found")
    assert peek(0).status_code == 500
    assert peek("x").status_code == 404


def test_examining(web: httpx.Client, namespace: str, ledger: int) -> None:
    base = f"/admin/v2/persistent/{namespace}"

    def examine(topic: str = "t", /, **query: str | int) -> httpx.Response:
        return web.get(
            f"{base}/{topic}/examinemessage",
            params={name: str(value) for name, value in query.items()},
        )

    def found(**query: str | int) -> str:
        return special(examine(**query))["message-id"]

    assert found() == f"{ledger}:2"
    assert found(initialPosition="latest", messagePosition=2) == f"{ledger}:1"
    assert found(initialPosition="earliest") == f"{ledger}:0"
    assert found(initialPosition="earliest", messagePosition=-3) == f"{ledger}:0"
    assert found(initialPosition="earliest", messagePosition=9) == f"{ledger}:2"
    assert examine(messagePosition=9).status_code == 500
    assert examine(messagePosition="x").status_code == 404
    web.put(f"{base}/e").raise_for_status()
    text = "Could not examine messages due to the total message is zero"
    assert reason(examine("e")) == (412, text)


def test_places_by_time(web: httpx.Client, namespace: str, ledger: int) -> None:
    base = f"/admin/v2/persistent/{namespace}/t/messageid"
    place = {"ledgerId": ledger, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0}
    assert web.get(f"{base}/0").json() == {**place, "entryId": 0}
    assert web.get(f"{base}/99999999999999").json() == {**place, "entryId": 3}
    assert web.get(f"{base}/x").status_code == 404
    web.put(f"/admin/v2/persistent/{namespace}/p/partitions", json=2).raise_for_status()
    text = f"Get message ID by timestamp on a partitioned topic is not allowed, {PARTITIONED}"
    assert reason(web.get(f"/admin/v2/persistent/{namespace}/p/messageid/0")) == (405, text)


def test_sizes_of_backlogs(web: httpx.Client, namespace: str, ledger: int) -> None:
    path = f"/admin/v2/persistent/{namespace}/t/backlogSize"

    def size(ledger_id: int, entry_id: int) -> int:
        answer = web.put(path, json={"ledgerId": ledger_id, "entryId": entry_id})
        assert answer.status_code == 200
        return int(answer.text)

    total = size(-1, -1)
    assert total > 0
    assert size(ledger + 10_000, 1) == total
    assert size(ledger, 0) == total - total // 3
    assert size(ledger, 9) == 0
    assert web.put(path, json="earliest").status_code == 400
    assert web.put(path).status_code in {415, 500}


def test_analysing(web: httpx.Client, namespace: str, ledger: int) -> None:
    base = f"/admin/v2/persistent/{namespace}"

    def analyse(body: object = None, topic: str = "t") -> httpx.Response:
        return web.post(f"{base}/{topic}/subscription/s/analyzeBacklog", json=body)

    def counted(entries: int, messages: int) -> dict[str, object]:
        return {
            "entries": entries,
            "messages": messages,
            "filterRejectedEntries": 0,
            "filterAcceptedEntries": entries,
            "filterRescheduledEntries": 0,
            "filterRejectedMessages": 0,
            "filterAcceptedMessages": messages,
            "filterRescheduledMessages": 0,
            "aborted": False,
        }

    refused = 404, f"Subscription s not found for topic persistent://{namespace}/t"
    assert reason(analyse()) == refused
    web.put(f"{base}/t/subscription/s", json="earliest").raise_for_status()
    ends = {"firstMessageId": f"{ledger}:0", "lastMessageId": f"{ledger}:2"}
    assert analyse().json() == counted(3, 4) | ends
    assert analyse("earliest").json() == counted(3, 4) | ends
    second = {"ledgerId": ledger, "entryId": 1}
    after = ends | {"firstMessageId": f"{ledger}:1"}
    assert analyse(second).json() == counted(2, 3) | after
    assert analyse("latest").json() == counted(0, 0)
    web.put(f"{base}/p/partitions", json=2).raise_for_status()
    text = f"Analyze backlog on a partitioned topic is not allowed, {PARTITIONED}"
    assert reason(analyse(topic="p")) == (405, text)


def test_trimming(web: httpx.Client, namespace: str) -> None:
    base = f"/admin/v2/persistent/{namespace}"
    web.put(f"{base}/e").raise_for_status()
    web.put(f"{base}/p/partitions", json=2).raise_for_status()
    for topic in ("e", "p"):
        answer = web.post(f"{base}/{topic}/trim")
        assert (answer.status_code, answer.content) == (200, b"")
    refused = 404, f"Topic persistent://{namespace}/no not found"
    assert reason(web.post(f"{base}/no/trim")) == refused


def test_expiring(web: httpx.Client, namespace: str, ledger: int) -> None:
    base = f"/admin/v2/persistent/{namespace}"
    topic = f"{base}/t"
    web.put(f"{topic}/subscription/s", json="earliest").raise_for_status()
    web.put(f"{topic}/subscription/none", json="latest").raise_for_status()
    web.put(f"{base}/p/partitions", json=2).raise_for_status()

    def expire(body: object, subscription: str = "s", topic: str = topic) -> httpx.Response:
        return web.post(f"{topic}/subscription/{subscription}/expireMessages", json=body)

    def backlog() -> int:
        stats = web.get(f"{topic}/stats", params={"getPreciseBacklog": "true"}).json()
        return int(stats["subscriptions"]["s"]["msgBacklog"])

    assert backlog() == 3
    first = {"ledgerId": ledger, "entryId": 0}
    not_issued = (
        f"Expire message by position not issued on topic persistent://{namespace}/t for "
        "subscription s due to ongoing message expiration not finished or invalid message position "
        "provided."
    )
    assert reason(expire("latest")) == (409, not_issued)
    assert expire(first).status_code == 204
    assert settled(backlog, lambda left: left == 2) == 2
    assert reason(expire(first, "no"))[0] == 404
    text = "Expire message at position is not supported for partitioned-topic"
    assert reason(expire(first, topic=f"{base}/p")) == (405, text)
    status, text = reason(web.post(f"{topic}/all_subscription/expireMessages/1"))
    assert status == 409
    # Both have nothing to expire; Apache names the one that its map gives first, or last.
    assert re.search(r"for subscription (s|none) due to", text)
    assert web.post(f"{topic}/all_subscription/expireMessages/x").status_code == 404


def test_missed_partitions(web: httpx.Client, namespace: str) -> None:
    base = f"/admin/v2/persistent/{namespace}"
    path = f"{base}/p/partitions?createLocalTopicOnly=true"
    web.put(path, json=2).raise_for_status()
    assert web.post(f"{base}/p/createMissedPartitions").status_code == 204
    assert web.get(base).json() == [
        f"persistent://{namespace}/p-partition-{number}" for number in range(2)
    ]
    refused = 404, f"Topic persistent://{namespace}/no does not exist"
    assert reason(web.post(f"{base}/no/createMissedPartitions")) == refused
