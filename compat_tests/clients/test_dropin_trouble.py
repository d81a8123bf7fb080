"""`geminga.pulsar` where calls fail, are cancelled, or come from a callback (spec SDK-45)."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import geminga.aio
import geminga.blocking
import geminga.pulsar as pulsar
import geminga.pulsar.asyncio as face
from compat_tests.clients.conftest import WAIT_MS
from compat_tests.clients.dropin_world import until
from compat_tests.processes import ServerProcess
from geminga import errors
from geminga.pulsar.schema import AvroSchema, Integer, Record, String

WAIT_S = WAIT_MS / 1000


class Order(Record):
    number = Integer()


class Name(Record):
    first = String()
    last = String()


class Reversed(Record):
    last = String()
    first = String()


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


def listened_to(client: pulsar.Client, name: str) -> tuple[pulsar.Consumer, list[bytes]]:
    """A shared consumer with a listener, and what that has got."""
    got: list[bytes] = []

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        consumer.acknowledge(message)
        got.append(message.data())

    return client.subscribe(name, "s", pulsar.ConsumerType.Shared, message_listener=listen), got


def test_a_listener_outlives_an_unsubscribe_that_fails(standalone: ServerProcess) -> None:
    client = pulsar.Client(standalone.service_url)
    listened, got = listened_to(client, topic("listen"))
    other = client.subscribe(topic("listen"), "s", pulsar.ConsumerType.Shared)
    with pytest.raises(pulsar.PulsarException):
        listened.unsubscribe()
    other.close()
    client.create_producer(topic("listen")).send(b"still there")
    until(lambda: bool(got))
    assert got == [b"still there"]
    listened.unsubscribe()
    client.close()


def test_what_waits_for_its_turn_outlives_an_unsubscribe_that_fails(
    standalone: ServerProcess,
) -> None:
    client = pulsar.Client(standalone.service_url)
    listened, got = listened_to(client, topic("turn"))
    listened.pause_message_listener()
    producer = client.create_producer(topic("turn"))
    for number in b"12":
        producer.send(bytes([number]))
    other = client.subscribe(topic("turn"), "s", pulsar.ConsumerType.Shared)
    with pytest.raises(pulsar.PulsarException):
        listened.unsubscribe()
    other.close()
    listened.resume_message_listener()
    until(lambda: len(got) == 2)
    assert got == [b"1", b"2"]
    listened.unsubscribe()
    listened.close()  # as the official client allows
    with pytest.raises(pulsar.AlreadyClosed):
        listened.close()
    client.close()


def test_a_table_views_close_that_fails_can_be_tried_again(standalone: ServerProcess) -> None:
    tried = threading.Event()
    client = pulsar.Client(standalone.service_url)
    producer = client.create_producer(topic("view"))
    view = client.create_table_view(topic("view"))

    def close(_key: str, _value: bytes) -> None:
        with pytest.raises(pulsar.OperationNotSupported):
            view.close()
        tried.set()

    view.for_each_and_listen(close)
    producer.send(b"", partition_key="k")
    assert tried.wait(WAIT_S)
    view.close()
    with pytest.raises(pulsar.ConsumerNotInitialized):
        view.close()
    client.close()


def test_the_listeners_first_call_has_all_it_needs(
    standalone: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come before `subscribe` returns: decode with the writer's schema, and close."""
    got: list[str] = []
    failed: list[Exception] = []
    done = threading.Event()
    client = pulsar.Client(standalone.service_url)
    client.subscribe(topic("first"), "s").close()
    client.create_producer(topic("first"), schema=AvroSchema(Name)).send(Name(first="A", last="B"))

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        try:
            got.append(message.value().first)
            consumer.acknowledge(message)
            consumer.close()
        except Exception as error:
            failed.append(error)
        done.set()

    subscribe = geminga.blocking.Client.subscribe

    def slowly(*args: Any, **options: Any) -> Any:
        made = subscribe(*args, **options)
        assert done.wait(WAIT_S)
        return made

    monkeypatch.setattr(geminga.blocking.Client, "subscribe", slowly)
    client.subscribe(topic("first"), "s", schema=AvroSchema(Reversed), message_listener=listen)
    assert (got, failed) == (["A"], [])
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


def test_what_is_said_of_messages_while_an_unsubscribe_fails_counts(
    standalone: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pulsar.Client(standalone.service_url)
    consumer = client.subscribe(topic("said"), "s", negative_ack_redelivery_delay_ms=100)
    client.create_producer(topic("said")).send(b"again")
    message = consumer.receive(WAIT_MS)
    receiver = consumer._consumer._receiver

    def call(_function: object) -> None:
        consumer.negative_acknowledge(message)
        raise errors.ConsumerBusyError("others are there")

    with monkeypatch.context() as patched:
        patched.setattr(type(receiver), "call", lambda _self, function: call(function))
        with pytest.raises(pulsar.ConsumerBusy):
            consumer.unsubscribe()
    assert consumer.receive(WAIT_MS).data() == b"again"
    client.close()


def test_a_record_is_written_once(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Though several clients write to one place, and two loggers lead to the root's handlers."""
    told = logging.getLogger("dropin-told")
    file = tmp_path / "log"
    level = pulsar.LoggerLevel
    loggers = (
        *(pulsar.ConsoleLogger(each) for each in (level.Error, level.Warn, level.Warn)),
        *(pulsar.FileLogger(level.Warn, str(file)) for _ in range(2)),
        *(told, told),
    )
    own = logging.StreamHandler(sys.stderr)
    told.addHandler(own)
    clients = [pulsar.Client("pulsar://127.0.0.1:1", logger=each) for each in loggers]
    logging.getLogger("geminga").warning("once only")
    clients[1].close()
    logging.getLogger("geminga").warning("once more")
    for each in clients[:1] + clients[2:]:
        each.close()
    told.removeHandler(own)
    written = capsys.readouterr()
    for text in (written.out, written.err, file.read_text(), caplog.text):
        assert [text.count(each) for each in ("once only", "once more")] == [1, 1]


@pytest.mark.parametrize("make", [pulsar.Client, face.Client])
@pytest.mark.parametrize("wrong", [{"service_url": "none"}, {"connection_timeout_ms": "soon"}])
def test_a_refused_client_leaves_no_open_log(
    make: Any, wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[logging.FileHandler] = []

    def open_file(name: str) -> logging.FileHandler:
        opened.append(FileHandler(name))
        return opened[-1]

    FileHandler = logging.FileHandler
    monkeypatch.setattr(logging, "FileHandler", open_file)
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(tmp_path / "log"))
    with pytest.raises(ValueError, match=r"must be|service_url"):
        make(**{"service_url": "pulsar://127.0.0.1:1", "logger": logger, **wrong})
    assert all(each.stream is None for each in opened)


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


def test_consumers_and_readers_may_be_closed_twice(standalone: ServerProcess) -> None:
    async def run() -> None:
        client = face.Client(standalone.service_url)
        consumer = await client.subscribe(topic("twice"), "s")
        reader = await client.create_reader(topic("twice"), pulsar.MessageId.earliest)
        await consumer.unsubscribe()
        for each in (consumer, consumer, reader, reader):
            await each.close()
        await client.close()

    asyncio.run(run())


def test_one_event_loop_after_the_other(standalone: ServerProcess) -> None:
    """As with the official client: one `asyncio.run` per call of a program without a loop."""
    client = face.Client(standalone.service_url)

    async def make() -> tuple[face.Producer, face.Consumer]:
        # A queue of one: the sending tasks wait for room, and for their lock.
        producer = await client.create_producer(topic("loops"), max_pending_messages=1)
        consumer = await client.subscribe(topic("loops"), "s")
        await asyncio.gather(*[producer.send(b"1") for _ in range(50)])
        return producer, consumer

    async def use(producer: face.Producer, consumer: face.Consumer) -> None:
        await asyncio.gather(*[producer.send(b"2") for _ in range(50)])
        for _ in range(100):
            await consumer.acknowledge(await asyncio.wait_for(consumer.receive(), WAIT_S))
        await client.close()

    asyncio.run(use(*asyncio.run(make())))
