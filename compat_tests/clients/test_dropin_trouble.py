"""`geminga.pulsar` where calls fail, are cancelled, or come from a callback (spec SDK-45)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import geminga.aio
import geminga.pulsar as pulsar
import geminga.pulsar.asyncio as face
from compat_tests.clients.conftest import WAIT_MS
from compat_tests.processes import ServerProcess
from geminga import errors
from geminga.pulsar.schema import AvroSchema, Integer, Record

WAIT_S = WAIT_MS / 1000


class Order(Record):
    number = Integer()


def topic(about: str) -> str:
    return f"persistent://public/default/dropin-trouble-{about}"


def test_a_callback_may_send_much(standalone: ServerProcess) -> None:
    """It runs in the client's own thread, which must not wait for itself."""
    results: list[pulsar.Result] = []
    sent = threading.Event()
    client = pulsar.Client(standalone.service_url)
    producer = client.create_producer(
        topic("much"), max_pending_messages=5000, block_if_queue_full=True, batching_enabled=True
    )

    def more(result: pulsar.Result, _place: pulsar.MessageId) -> None:
        results.append(result)
        for _ in range(1500):
            producer.send_async(b"x", lambda result, _place: results.append(result))
        sent.set()

    producer.send_async(b"first", more)
    assert sent.wait(WAIT_S)
    producer.flush()
    assert results == [pulsar.Result.Ok] * 1501
    client.close()


def test_what_fails_in_a_callback_can_be_closed_later(standalone: ServerProcess) -> None:
    refused: list[Exception] = []
    tried = threading.Event()
    client = pulsar.Client(standalone.service_url)
    producer = client.create_producer(topic("close"))
    consumer = client.subscribe(topic("close"), "s")

    def close(_result: pulsar.Result, _place: pulsar.MessageId) -> None:
        for each in (producer, consumer, client):
            try:
                each.close()
            except pulsar.PulsarException as error:
                refused.append(error)
        tried.set()

    producer.send_async(b"", close)
    assert tried.wait(WAIT_S)
    assert len(refused) == 3
    consumer.acknowledge(consumer.receive(WAIT_MS))
    for each in (producer, consumer, client):
        each.close()
        with pytest.raises(pulsar.AlreadyClosed):
            each.close()


def test_a_listener_outlives_an_unsubscribe_that_fails(standalone: ServerProcess) -> None:
    got: list[bytes] = []
    client = pulsar.Client(standalone.service_url)
    shared = pulsar.ConsumerType.Shared

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        consumer.acknowledge(message)
        got.append(message.data())

    listened = client.subscribe(topic("listen"), "s", shared, message_listener=listen)
    other = client.subscribe(topic("listen"), "s", shared)
    with pytest.raises(pulsar.PulsarException):
        listened.unsubscribe()
    other.close()
    client.create_producer(topic("listen")).send(b"still there")
    until = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        if got or until.wait(0.05):
            break
    assert got == [b"still there"]
    listened.unsubscribe()
    client.close()


def test_a_cancelled_call_keeps_its_message(
    standalone: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the schema of its writer is fetched; without that the reader's own counts."""

    async def hang(*_: object) -> Any:
        await asyncio.sleep(3600)

    async def refuse(*_: object) -> Any:
        raise errors.AuthorizationError("not yours")

    async def run() -> list[int]:
        client = face.Client(standalone.service_url)
        schema = AvroSchema(Order)
        producer = await client.create_producer(topic("kept"), schema=schema)
        consumer = await client.subscribe(topic("kept"), "s", schema=schema)
        reader = await client.create_reader(topic("kept"), pulsar.MessageId.earliest, schema)
        await producer.send(Order(number=7))
        for receive in (consumer.receive, reader.read_next):
            monkeypatch.setattr(geminga.aio.Client, "get_schema", hang)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(receive(), 1)
        monkeypatch.setattr(geminga.aio.Client, "get_schema", refuse)
        assert await reader.has_message_available()
        found = [await asyncio.wait_for(each(), WAIT_S) for each in (
            consumer.receive, reader.read_next)]  # fmt: skip
        await client.close()
        return [each.value().number for each in found]

    assert asyncio.run(run()) == [7, 7]


def test_secondary_clusters_have_the_clients_tls(tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.touch()
    of_client = {
        "tls_allow_insecure_connection": True,
        "tls_validate_hostname": False,
        "tls_private_key_file_path": None,
        "tls_certificate_file_path": None,
    }
    first, second = (pulsar.ServiceInfo(f"pulsar+ssl://{host}:6651") for host in "ab")
    (cluster,) = pulsar.AutoClusterFailover(first, [second])._policy(of_client).secondary
    assert not isinstance(cluster, str)
    assert cluster.tls_allow_insecure_connection
    assert not cluster.tls_validate_hostname
