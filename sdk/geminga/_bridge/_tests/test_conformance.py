"""All three faces behave the same: each script runs on all of them, against a real broker."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import geminga
from geminga import ConsumerType, InitialPosition
from geminga._bridge._tests.three_faces import FACES, Face
from geminga._consuming._tests import test_consumer_arguments as consumer_arguments
from geminga._tests import test_arguments as producer_arguments
from geminga._tests.crypto_keys import READER

EARLIEST = InitialPosition.EARLIEST
SHARED = ConsumerType.SHARED
Scripted = Callable[..., Coroutine[Any, Any, None]]


def on_all_faces(script: Scripted) -> Callable[..., None]:
    """Run a script on each face."""

    @pytest.mark.parametrize("face", FACES, ids=lambda face: type(face).__name__)
    @functools.wraps(script)
    def run(**given: Any) -> None:
        given["face"].run(lambda: script(**given))

    return run


async def texts(consumer: Any, count: int) -> list[str]:
    """The next messages' payloads."""
    return [(await consumer.receive(60)).data.decode() for _ in range(count)]


async def fill(client: Any, topic: str, count: int, **options: Any) -> list[geminga.MessageId]:
    """Send `count` numbers."""
    async with client.create_producer(topic, **options) as producer:
        receipts = await producer.submit_many(b"%d" % n for n in range(count))
        return [await each.wait() for each in receipts]


def numbers(count: int, start: int = 0) -> list[str]:
    return [str(n) for n in range(start, start + count)]


# ---- clients ----


@on_all_faces
async def test_a_client_without_a_block(face: Face, url: str, topic: str) -> None:
    client = face.client(url)
    assert repr(client).startswith("<Client")
    async with client.create_producer(topic) as producer:
        receipts = await producer.submit_many([b"one", b"two"])
        assert [(await each.wait()).partition for each in receipts] == [-1, -1]
    with pytest.raises(geminga.AlreadyClosedError):
        await producer.send(b"three")
    await client.aclose()
    await client.aclose()
    for call in (client.create_producer, client.list_partitions):
        with pytest.raises(geminga.AlreadyClosedError):
            await call(topic)


@on_all_faces
async def test_a_client_that_was_never_used(face: Face, url: str) -> None:
    await face.client(url).aclose()
    with pytest.raises(KeyError):
        async with face.connect(url):
            raise KeyError


@on_all_faces
async def test_what_brokers_tell_of_topics(
    face: Face, url: str, topic: str, partitioned: Callable[[str, int], str]
) -> None:
    parts = partitioned(f"{topic}-parts", 2)
    expected = [f"{parts}-partition-{n}" for n in range(2)]
    async with face.connect(url) as client:
        await fill(client, topic, 1)
        pattern = re.compile(f"{topic}.*")
        assert await client.list_topics(pattern) == [topic, parts]
        mode = geminga.RegexSubscriptionMode.NON_PERSISTENT_ONLY
        assert await client.list_topics(pattern, mode) == []
        assert await client.list_partitions(topic, auto_create=False) == [topic]
        assert await client.list_partitions(parts, auto_create=False) == expected
        for missing in (f"{topic}-no", f"{parts}-partition-2", f"{topic}-partition-0"):
            with pytest.raises(geminga.TopicNotFoundError) as raised:
                await client.list_partitions(missing, auto_create=False)
            assert raised.value.topic == missing
            with pytest.raises(geminga.TopicNotFoundError):
                await client.get_schema(missing)
        assert await client.get_schema(topic) is None
        schema = geminga.schema.String()
        await (await client.create_producer(parts, schema=schema)).aclose()
        found = await client.get_schema(parts)
        assert found is not None
        assert found.type == schema.info.type
        assert await client.get_schema(f"{parts}-partition-1") == found
        assert await client.get_schema(parts, (0).to_bytes(8, "big")) == found
        assert await client.get_schema(parts, (7).to_bytes(8, "big")) is None
        with pytest.raises(geminga.InvalidArgumentError, match="version"):
            await client.get_schema(parts, 0)
        with pytest.raises(geminga.InvalidArgumentError, match="pattern"):
            await client.list_topics(topic)
        with pytest.raises(geminga.InvalidArgumentError, match="mode"):
            await client.list_topics(pattern, "all")


# ---- wrong arguments ----


async def refuse(call: Callable[[], Any], name: str) -> None:
    with pytest.raises(geminga.InvalidArgumentError, match=name):
        if inspect.isawaitable(answer := call()):
            await answer


@pytest.mark.parametrize("face", FACES, ids=lambda face: type(face).__name__)
@pytest.mark.parametrize(("name", "value"), producer_arguments.CONNECT, ids=str)
def test_wrong_arguments_of_connect_are_told_at_the_call(face: Face, name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"service_url": "pulsar://localhost", name: value}
    with pytest.raises(geminga.InvalidArgumentError, match=name):
        face.module.connect(**arguments)
    with pytest.raises(geminga.InvalidServiceUrlError):
        face.module.connect("nowhere")


@on_all_faces
async def test_wrong_arguments_of_producers(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        for name, value in producer_arguments.CREATE:
            arguments: dict[str, Any] = {"topic": topic, name: value}
            await refuse(functools.partial(client.create_producer, **arguments), name)
        producer = await client.create_producer(topic)
        for name, value in producer_arguments.SEND:
            arguments = {"data": b"x", name: value}
            for call in (producer.send, producer.submit, producer.send_nowait):
                await refuse(functools.partial(call, **arguments), name)
        assert producer.pending_messages == 0
        assert producer.statistics().total_msgs_sent == 0


@on_all_faces
async def test_wrong_arguments_of_consumers(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        for name, value in consumer_arguments.SUBSCRIBE:
            arguments: dict[str, Any] = {"topic": topic, "subscription_name": "s", name: value}
            await refuse(functools.partial(client.subscribe, **arguments), name)
        for name, value in consumer_arguments.READ:
            arguments = {"topic": topic, "start_message_id": geminga.EARLIEST, name: value}
            await refuse(functools.partial(client.create_reader, **arguments), name)
        consumer = await client.subscribe(topic, "s")
        for method, name, values in consumer_arguments.CALLS:
            await refuse(functools.partial(getattr(consumer, method), *values), name)
        for method, name, value in consumer_arguments.KEYWORD_CALLS:
            await refuse(functools.partial(getattr(consumer, method), **{name: value}), name)
        view = await client.create_table_view(topic)
        await refuse(lambda: view.listen(5), "listener")
        await refuse(lambda: view.for_each_and_listen("print"), "listener")
        assert consumer.statistics().total_acks_sent == 0


# ---- sending ----


@pytest.mark.parametrize("batching_enabled", [True, False])
@on_all_faces
async def test_sends_keep_their_order(
    face: Face, url: str, topic: str, batching_enabled: bool
) -> None:
    """By any method, with room for few of them."""
    async with face.connect(url) as client:
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(
            topic, batching_enabled=batching_enabled, max_pending_messages=50
        )
        receipts = []
        for n in range(1500):
            described: dict[str, Any] = {} if n % 100 < 60 else {"properties": {"n": str(n)}}
            receipts.append(await producer.submit(b"%d" % n, **described))
            assert producer.pending_messages <= 50
        await producer.flush()
        receipts += [producer.send_nowait(b"%d" % n) for n in range(1500, 1540)]
        receipts += await producer.submit_many(b"%d" % n for n in range(1540, 1700))
        ids = [await each.wait() for each in receipts]
        ids.append(await producer.send(b"1700"))
        assert all(each.is_done for each in receipts)
        assert [each.message_id for each in receipts] == ids[:-1] == sorted(ids[:-1])
        assert producer.last_sequence_id == 1700
        got = [await consumer.receive(60) for _ in range(500)]
        while len(got) < 1701:
            got += await consumer.receive_batch(1000, wait_s=60)
        assert [each.data.decode() for each in got] == numbers(1701)
        assert [each.message_id for each in got] == ids
        assert [each.properties for each in got[55:65]] == [{}] * 5 + [
            {"n": str(n)} for n in range(60, 65)
        ]


@on_all_faces
async def test_receipts_tell_what_happened(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        producer = await client.create_producer(topic)
        told: list[object] = []
        receipt = await producer.submit(b"x", partition_key="k")
        receipt.add_done_callback(told.append)
        await face.until(lambda: told)
        assert told == [receipt]
        assert await receipt.wait() == receipt.message_id
        assert receipt.error is None
        assert repr(receipt) == f"<Receipt {receipt.message_id!r}>"
        with pytest.raises(geminga.MessageTooBigError):
            await producer.send(b"x" * 6 * 1024 * 1024)
        assert producer.pending_messages == 0


@on_all_faces
async def test_many_are_looked_at_before_one_is_sent(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic)
        with pytest.raises(geminga.MessageTooBigError):
            await producer.submit_many([b"x", b"x" * 6 * 1024 * 1024])
        for wrong in ([b"x", "text"], b"xyz", 5):
            with pytest.raises(geminga.InvalidArgumentError):
                await producer.submit_many(wrong)
        assert await producer.submit_many([]) == []
        await producer.send(b"y")
        assert await texts(consumer, 1) == ["y"]


@on_all_faces
async def test_bounds(
    face: Face, url: str, topic: str, partitioned: Callable[[str, int], str]
) -> None:
    async with face.connect(url, memory_limit_bytes=1024 * 1024) as client:
        options = {"max_pending_messages": 10, "batching_max_publish_delay_s": 0.01}
        producer = await client.create_producer(partitioned(topic, 3), **options)
        with pytest.raises(geminga.ProducerQueueFullError, match="0 messages wait"):
            for n in range(100_000):  # as quick as the loop may be, it is outrun for a moment
                producer.send_nowait(b"%d" % n)
        receipts = [await producer.submit(b"%d" % n) for n in range(1000)]
        await producer.flush()
        assert all(each.error is None for each in receipts)
        # Messages of one key go to one partition, which is full before the whole producer is.
        receipts = [await producer.submit(b"%d" % n, partition_key="k") for n in range(200)]
        ids = [await each.wait() for each in receipts]
        assert ids == sorted(ids)
        assert len({each.partition for each in ids}) == 1
        large = await client.create_producer(f"{topic}-large")
        with pytest.raises(geminga.MemoryLimitError):
            for _ in range(10_000):
                large.send_nowait(b"x" * 100_000)
        receipts = await large.submit_many([b"x" * 100_000] * 100)
        await large.flush()
        assert all(each.error is None for each in receipts)


@on_all_faces
async def test_many_send_at_once(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        producer = await client.create_producer(topic, max_pending_messages=20)
        consumer = await client.subscribe(topic, "s", consumer_type=SHARED)
        got: list[geminga.Message] = []

        def produce(number: int) -> Callable[[], Coroutine[Any, Any, None]]:
            async def work() -> None:
                for n in range(100):
                    await producer.submit(f"{number}-{n}".encode())
                await producer.send(f"{number}-100".encode())

            return work

        async def consume() -> None:
            while len(got) < 404:
                batch = await consumer.receive_batch(50, wait_s=0.1)
                ids = [message.message_id for message in batch]
                assert ids == sorted(ids)
                for message in batch:
                    got.append(message)
                    await consumer.acknowledge(message)

        await face.together(*(produce(n) for n in range(4)), consume, consume)
        # The two receivers append in any order; the ids are in the order of publishing.
        stored = [each.data.decode() for each in sorted(got, key=lambda each: each.message_id)]
        assert sorted(stored) == sorted(f"{n}-{m}" for n in range(4) for m in range(101))
        for number in range(4):
            of_one = [each for each in stored if each.startswith(f"{number}-")]
            assert of_one == [f"{number}-{n}" for n in range(101)]


@on_all_faces
async def test_a_router_that_fails(
    face: Face, url: str, topic: str, partitioned: Callable[[str, int], str]
) -> None:
    async with face.connect(url) as client:
        producer = await client.create_producer(
            partitioned(topic, 2), message_router=lambda message, count: count
        )
        with pytest.raises(geminga.InvalidArgumentError, match="returned 2 for 2 partitions"):
            await producer.send(b"x")


class Marks(geminga.ProducerInterceptor):
    """Marks each message, and counts its calls."""

    def __init__(self) -> None:
        self.stored: list[tuple[bytes, geminga.MessageId | None]] = []

    def before_send(self, message: geminga.ProducerMessage) -> geminga.ProducerMessage:
        return dataclasses.replace(message, data=message.data + b"!")

    def on_send_acknowledgement(
        self,
        message: geminga.ProducerMessage,
        message_id: geminga.MessageId | None,
        error: geminga.GemingaError | None,
    ) -> None:
        assert error is None
        self.stored.append((message.data, message_id))


@on_all_faces
async def test_interceptors_and_statistics(face: Face, url: str, topic: str) -> None:
    marks = Marks()
    async with face.connect(url) as client, client.subscribe(topic, "s") as consumer:
        producer = await client.create_producer(topic, interceptors=[marks])
        receipts = [await producer.submit(b"%d" % n) for n in range(200)]
        receipts.append(producer.send_nowait(b"200", partition_key="k"))
        ids = [await receipt.wait() for receipt in receipts]
        await producer.flush()
        assert marks.stored == [(b"%d!" % n, ids[n]) for n in range(201)]
        assert await texts(consumer, 201) == [f"{n}!" for n in range(201)]
        found = producer.statistics()
        assert (found.total_msgs_sent, found.total_acks_received) == (201, 201)


@pytest.mark.parametrize("options", [{}, {"batching_enabled": False}])
@on_all_faces
async def test_encryption(face: Face, url: str, topic: str, options: dict[str, Any]) -> None:
    secrets = [f"secret {n}" for n in range(300)]
    keys = {"encryption_keys": ["ec"], "crypto_key_reader": READER}
    raw_action = geminga.ConsumerCryptoFailureAction.CONSUME
    async with (
        face.connect(url) as client,
        client.subscribe(topic, "s", crypto_key_reader=READER) as consumer,
        client.subscribe(topic, "raw", crypto_failure_action=raw_action) as raw,
        client.create_producer(topic, **keys, **options) as producer,
    ):
        await producer.submit_many([each.encode() for each in secrets])
        await producer.send(b"last", partition_key="k")
        assert await texts(consumer, 300) == secrets
        message = await consumer.receive(60)
        assert message.data == b"last"
        assert message.encryption_context is not None
        assert b"secret" not in (await raw.receive(60)).data
        async with client.create_table_view(topic, crypto_key_reader=READER) as view:
            assert view.get("k") == b"last"
        with pytest.raises(geminga.CryptoError, match="no public key 'gone'"):
            await client.create_producer(topic, **{**keys, "encryption_keys": ["gone"]})
