"""The official Python client, connected to the server under test, and helpers around it."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from compat_tests.processes import ServerProcess

WAIT_MS = 15_000


class Peer:
    """A client of the server under test; closed with all it made at the end of the test."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.client = new_client(server)

    def topic(self, name: str, domain: str = "persistent") -> str:
        """A fresh topic name."""
        return f"{domain}://public/default/py-{name}-{uuid.uuid4().hex[:8]}"

    def partitioned(self, name: str, partitions: int) -> str:
        """A fresh partitioned topic, made through the admin REST API."""
        topic = self.topic(name)
        self.admin("PUT", topic.replace("://", "/") + "/partitions", partitions)
        return topic

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """A request to the admin REST API; its JSON answer, None when there is none."""
        request = urllib.request.Request(
            f"{self.server.web_url}/admin/v2/{path}",
            method=method,
            data=b"" if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def producer(self, topic: str, **options: Any) -> pulsar.Producer:
        """A producer; sends are not batched unless asked."""
        return self.client.create_producer(topic, **options)

    def consumer(
        self, topic: Any, kind: pulsar.ConsumerType = pulsar.ConsumerType.Exclusive, **options: Any
    ) -> pulsar.Consumer:
        """A consumer of subscription "sub" from the earliest message."""
        options.setdefault("initial_position", pulsar.InitialPosition.Earliest)
        name = options.pop("subscription", "sub")
        return self.client.subscribe(topic, name, consumer_type=kind, **options)


def new_client(server: ServerProcess) -> pulsar.Client:
    """A client of its own connection."""
    return pulsar.Client(
        server.service_url,
        operation_timeout_seconds=15,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


@pytest.fixture
def peer(server: ServerProcess) -> Iterator[Peer]:
    """The official client on the server under test."""
    peer = Peer(server)
    yield peer
    # The official client's close raises this when it meets a producer that was fenced a moment
    # ago, with Apache's broker as with ours; one test in some hundred on a busy machine.
    with contextlib.suppress(pulsar.AlreadyClosed):
        peer.client.close()


def send_all(producer: pulsar.Producer, texts: list[str], **options: Any) -> list[Any]:
    """Send without waiting for each; return the message ids of the receipts, in order."""
    ids: list[Any] = []
    for text in texts:
        producer.send_async(text.encode(), lambda result, id_: ids.append((result, id_)), **options)
    producer.flush()
    deadline = time.monotonic() + 15
    while len(ids) < len(texts) and time.monotonic() < deadline:
        time.sleep(0.002)
    assert [result for result, _ in ids] == [pulsar.Result.Ok] * len(texts)
    return [id_ for _, id_ in ids]


def receive(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    """So many messages; the client raises Timeout when one does not come."""
    return [consumer.receive(WAIT_MS) for _ in range(count)]


def texts(messages: list[pulsar.Message]) -> list[str]:
    """The payloads as text."""
    return [message.data().decode() for message in messages]


def numbered(prefix: str, start: int, stop: int) -> list[str]:
    """Payloads with a number each."""
    return [f"{prefix}{number}" for number in range(start, stop)]


def assert_nothing_more(consumer: pulsar.Consumer, wait_ms: int = 250) -> None:
    """No further message comes."""
    with pytest.raises(pulsar.Timeout):
        consumer.receive(wait_ms)


def drain(consumers: list[pulsar.Consumer], count: int) -> list[list[pulsar.Message]]:
    """Take from the consumers by turns until so many messages came in all."""
    got: list[list[pulsar.Message]] = [[] for _ in consumers]
    deadline = time.monotonic() + 15
    while sum(map(len, got)) < count and time.monotonic() < deadline:
        for consumer, messages in zip(consumers, got, strict=True):
            try:
                messages.append(consumer.receive(10))
            except pulsar.Timeout:
                continue
    assert sum(map(len, got)) == count
    return got
