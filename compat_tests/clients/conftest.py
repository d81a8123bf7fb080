"""The official Python client, connected to the server under test, and helpers around it."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx2 as httpx
import pulsar
import pytest
import trio

import geminga
import geminga.blocking.admin
from compat_tests.processes import ServerProcess
from geminga.blocking.admin import AdminClient, TenantInfo

PATIENCE_S = 60
"""What must come is given so long, on the busiest machine too."""
WAIT_MS = PATIENCE_S * 1000


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
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def compact(self, topic: str) -> None:
        """Have a topic compacted, and wait for that."""
        path = topic.replace("://", "/")
        before = self.admin("GET", f"{path}/internalStats")["compactedLedger"]["ledgerId"]
        self.admin("PUT", f"{path}/compaction")
        self.compacted(topic)

        def is_used() -> bool:
            told = self.admin("GET", f"{path}/internalStats")
            found = told["compactedLedger"]["ledgerId"]
            named = told["cursors"].get("__compaction", {}).get("properties", {})
            return found != before and named == {"CompactedTopicLedger": found}

        if self.server.kind == "apache":
            # Its compactor tells the topic of the new ledger by a message that nothing answers.
            eventually(is_used, "the compacted ledger isn't used")

    def compacted(self, topic: str) -> None:
        """Wait until a compaction that was asked for has ended well."""
        path = topic.replace("://", "/") + "/compaction"
        eventually(lambda: self.admin("GET", path)["status"] != "RUNNING", "it still runs")
        assert self.admin("GET", path) == {"status": "SUCCESS", "lastError": ""}

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


def eventually(condition: Callable[[], bool], otherwise: str) -> None:
    """Ask again and again for what only the server knows; as long as a message may take."""
    deadline = time.monotonic() + 2 * WAIT_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def new_client(server: ServerProcess) -> pulsar.Client:
    """A client of its own connection."""
    return pulsar.Client(
        server.service_url,
        operation_timeout_seconds=30,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


@pytest.fixture
def web(server: ServerProcess) -> Iterator[httpx.Client]:
    """The admin REST of the server under test, by path."""
    with httpx.Client(base_url=server.web_url, timeout=60) as client:
        yield client


@pytest.fixture
def peer(server: ServerProcess) -> Iterator[Peer]:
    """The official client on the server under test."""
    peer = Peer(server)
    yield peer
    # The official client's close raises this when it meets a producer that was fenced a moment
    # ago, with Apache's broker as with ours; one test in some hundred on a busy machine.
    with contextlib.suppress(pulsar.AlreadyClosed):
        peer.client.close()


def settled_active(server: ServerProcess, topic: str, subscription: str) -> str:
    """The name of a Failover subscription's active consumer, now that all have joined. Apache's
    broker may choose another one a second after that.
    """
    if server.kind == "apache":
        time.sleep(2)
    url = f"{server.web_url}/admin/v2/{topic.replace('://', '/')}/stats"
    with urllib.request.urlopen(url, timeout=60) as answer:
        told = json.loads(answer.read())["subscriptions"][subscription]
    name: str = told["activeConsumerName"]
    return name


def send_all(producer: pulsar.Producer, texts: list[str], **options: Any) -> list[Any]:
    """Send without waiting for each; return the message ids of the receipts, in order."""
    ids: list[Any] = []
    for text in texts:
        producer.send_async(text.encode(), lambda result, id_: ids.append((result, id_)), **options)
    producer.flush()
    deadline = time.monotonic() + PATIENCE_S
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
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, got)) < count and time.monotonic() < deadline:
        for consumer, messages in zip(consumers, got, strict=True):
            try:
                messages.append(consumer.receive(10))
            except pulsar.Timeout:
                continue
    assert sum(map(len, got)) == count
    return got


async def take_by_turns(
    consumers: Sequence[geminga.Consumer], count: int
) -> list[list[geminga.Message]]:
    """The same with our own SDK, by consumer."""
    got: list[list[geminga.Message]] = [[] for _ in consumers]
    with trio.fail_after(PATIENCE_S):
        while sum(map(len, got)) < count:
            for messages, consumer in zip(got, consumers, strict=True):
                messages += await consumer.receive_batch(wait_s=0.1)
    return got


def receive_after_change(
    peer: Peer, topic: str, consumer: pulsar.Consumer, count: int
) -> list[pulsar.Message]:
    """So many messages for who has just become active. Apache's broker now and then waits with
    them until something new is written.
    """
    is_apache = peer.server.kind == "apache"
    messages: list[pulsar.Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        try:
            messages.append(consumer.receive(3000 if is_apache else WAIT_MS))
        except pulsar.Timeout:
            if not is_apache or time.monotonic() > deadline:
                raise
            peer.producer(topic).send(b"new")
    return messages


async def take_after_change(
    server: ServerProcess,
    client: geminga.Client,
    topic: str,
    consumer: geminga.Consumer,
    count: int,
) -> list[geminga.Message]:
    """The same with our own SDK."""
    is_apache = server.kind == "apache"
    messages: list[geminga.Message] = []
    with trio.fail_after(PATIENCE_S):
        while len(messages) < count:
            try:
                messages.append(await consumer.receive(3 if is_apache else None))
            except geminga.OperationTimeoutError:
                await (await client.create_producer(topic)).send(b"new")
    return messages


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[AdminClient]:
    with geminga.blocking.admin.connect(server.web_url) as client:
        yield client


@pytest.fixture
def namespace(admin: AdminClient) -> str:
    """A fresh namespace in a fresh tenant."""
    tenant = f"adm{uuid.uuid4().hex[:8]}"
    admin.tenants.create(tenant, TenantInfo(allowed_clusters=["standalone"]))
    admin.namespaces.create(f"{tenant}/ns")
    return f"{tenant}/ns"
