"""`auto_create=False`: readers and consumers that never create a topic."""

from __future__ import annotations

import time
import urllib.request
import uuid
from collections.abc import Iterator

import pytest

import geminga
import geminga.blocking
import geminga.testing


@pytest.fixture(scope="module")
def url() -> Iterator[geminga.testing.BrokerUrl]:
    with geminga.testing.broker() as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[geminga.blocking.Client]:
    with geminga.blocking.connect(url) as found:
        yield found


def admin(url: geminga.testing.BrokerUrl, method: str, path: str, body: bytes | None = None) -> str:
    address = f"{url.web_url}/admin/v2/persistent/public/default{path}"
    request = urllib.request.Request(
        address, method=method, data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


def fresh() -> str:
    return uuid.uuid4().hex


def test_no_topic_is_made(client: geminga.blocking.Client, url: geminga.testing.BrokerUrl) -> None:
    topic = fresh()
    for name in (topic, f"{topic}-partition-3"):
        with pytest.raises(geminga.TopicNotFoundError):
            client.create_reader(name, geminga.LATEST, auto_create=False)
        with pytest.raises(geminga.TopicNotFoundError):
            client.subscribe(name, "s", auto_create=False)
    assert topic not in admin(url, "GET", "")


@pytest.mark.parametrize("kind", ["reader", "consumer"])
@pytest.mark.slow
def test_a_deleted_topic_stays_deleted(
    client: geminga.blocking.Client, url: geminga.testing.BrokerUrl, kind: str
) -> None:
    topic = fresh()
    client.create_producer(topic).close()
    watching = (
        client.create_reader(topic, geminga.LATEST, auto_create=False)
        if kind == "reader"
        else client.subscribe(topic, "s", durable=False, receiver_queue_size=0, auto_create=False)
    )
    assert watching.last_message_ids()[0].entry_id == -1
    admin(url, "DELETE", f"/{topic}?force=true")
    time.sleep(0.5)
    with pytest.raises(geminga.GemingaError):
        watching.last_message_ids()
    watching.close()
    assert topic not in admin(url, "GET", "")
    with pytest.raises(geminga.TopicNotFoundError):
        client.list_partitions(topic, auto_create=False)


def test_a_partition_that_was_deleted_stays_deleted(
    client: geminga.blocking.Client, url: geminga.testing.BrokerUrl
) -> None:
    topic = fresh()
    admin(url, "PUT", f"/{topic}/partitions", b"2")
    gone = f"{topic}-partition-1"
    admin(url, "DELETE", f"/{gone}")
    for ask in (
        lambda: client.create_reader(gone, geminga.LATEST, auto_create=False),
        lambda: client.create_reader(topic, geminga.LATEST, auto_create=False),
        lambda: client.list_partitions(gone, auto_create=False),
    ):
        with pytest.raises(geminga.TopicNotFoundError):
            ask()
    assert gone not in admin(url, "GET", "")
    assert len(client.list_partitions(topic, auto_create=False)) == 2
    client.create_reader(topic, geminga.LATEST).close()
    assert gone in admin(url, "GET", "")
