"""Metrics under the names of the Java client."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from trio.testing import MockClock

import geminga
from geminga import ConsumerType, DeadLetterPolicy
from geminga._bridge._tests.three_faces import FACES, Face
from geminga._producing.partition_producer import PartitionProducer
from geminga._telemetry import metrics
from geminga._tests.fake_broker import fake_broker
from geminga.producer import partitions_of
from geminga.testing import broker

SPACE = {"pulsar.tenant": "public", "pulsar.namespace": "public/default"}
SUBSCRIBED = {**SPACE, "pulsar.subscription": "s"}
SHARED: dict[str, Any] = {"consumer_type": ConsumerType.SHARED}


class Meters:
    """A provider, and what a reader collects from it."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def collected(self) -> dict[str, Any]:
        """The metrics by name, without `pulsar.client.`."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        assert len({each.name for each in found}) == len(found)
        return {each.name.removeprefix("pulsar.client."): each for each in found}

    def values(self, **attributes: str) -> dict[str, int]:
        """The numbers with exactly these attributes; of histograms their counts."""
        wanted = {name.replace("_", "."): value for name, value in attributes.items()}
        return {
            name: getattr(point, "value", None) or getattr(point, "count", 0)
            for name, metric in self.collected().items()
            for point in metric.data.data_points
            if dict(point.attributes) == wanted
        }


@pytest.fixture
def meters() -> Meters:
    return Meters()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with broker() as url:
        yield url


def of_namespace(meters: Meters, **more: str) -> dict[str, int]:
    return meters.values(pulsar_tenant="public", pulsar_namespace="public/default", **more)


async def test_a_producer(meters: Meters, autojump_clock: MockClock) -> None:
    async with fake_broker() as server, server.client(meter_provider=meters.provider) as client:
        async with client.create_producer("t", batching_max_publish_delay_s=1) as producer:
            for receipt in await producer.submit_many([b"Hello"] * 5):
                await receipt.wait()
            assert of_namespace(meters) == {
                "producer.opened": 1,
                "producer.closed": 0,
                "producer.message.send.size": 25,
                "producer.message.pending.count": 0,
                "producer.message.pending.size": 0,
            }
            assert of_namespace(meters, pulsar_response_status="success") == {
                "producer.message.send.duration": 5,
                "producer.rpc.send.duration": 1,
            }
            server.hold_receipts = True
            await producer.submit_many([b"123"] * 2)
            found = of_namespace(meters)
            assert found["producer.message.pending.count"] == 2
            assert found["producer.message.pending.size"] == 6
            assert meters.values()["memory.buffer.usage"] == 6
            await trio.sleep(2)
            server.hold_receipts = False
            server.release_receipts()
        assert of_namespace(meters)["producer.closed"] == 1
        assert of_namespace(meters)["producer.message.send.size"] == 31
        for kind in ("topic", "metadata"):
            found = meters.values(**{
                "pulsar_lookup_type": kind,
                "pulsar_lookup_transport-type": "binary",
                "pulsar_response_status": "success",
            })  # fmt: skip
            assert found == {"lookup.duration": 1}
        assert meters.values()["connection.opened"] == 1
        assert meters.values()["connection.closed"] == 0
        assert meters.values()["memory.buffer.limit"] == 64 * 1024 * 1024
    assert meters.values() == {
        "connection.opened": 1,
        "connection.closed": 1,
        "memory.buffer.usage": 0,
        "memory.buffer.limit": 0,
    }


async def test_units_and_kinds(meters: Meters, autojump_clock: MockClock) -> None:
    async with fake_broker() as server, server.client(meter_provider=meters.provider) as client:
        producer = await client.create_producer("t")
        await client.subscribe("t", "s")
        await producer.send(b"x")
        found = meters.collected()
    assert found["producer.message.send.duration"].unit == "s"
    (point,) = found["producer.message.send.duration"].data.data_points
    assert point.explicit_bounds == metrics.BUCKETS_S
    for each in metrics.INSTRUMENTS:
        name = each.name.removeprefix("pulsar.client.")
        if name == "connection.failed":
            continue
        assert found[name].unit == each.unit
        assert found[name].data.is_monotonic is not each.falls


async def test_a_consumer(meters: Meters, autojump_clock: MockClock) -> None:
    """As in ClientMetricsTest.testConsumerMetrics of the Java client."""
    async with fake_broker() as server, server.client(meter_provider=meters.provider) as client:
        producer = await client.create_producer("t", batching_enabled=False)
        options = {"ack_timeout_s": 2, "negative_ack_redelivery_delay_s": 5, **SHARED}
        async with client.subscribe("t", "s", **options) as consumer:
            for _ in range(10):
                await producer.send(b"Hello")
            await trio.sleep(0.1)
            found = of_namespace(meters, pulsar_subscription="s")
            assert found["consumer.receive_queue.count"] == 10
            assert found["consumer.receive_queue.size"] == 50
            await consumer.acknowledge(await consumer.receive())
            consumer.negative_acknowledge(await consumer.receive())
            await consumer.receive()
            found = of_namespace(meters, pulsar_subscription="s")
            assert found["consumer.receive_queue.count"] == 7
            assert found["consumer.receive_queue.size"] == 35
            assert found["consumer.message.received.count"] == 3
            assert found["consumer.message.received.size"] == 15
            await trio.sleep(7)
            found = of_namespace(meters, pulsar_subscription="s")
            assert found["consumer.message.ack"] == 1
            assert found["consumer.message.nack"] == 1
            assert found["consumer.message.ack.timeout"] == 1
            assert (found["consumer.opened"], found["consumer.closed"]) == (1, 0)
        found = of_namespace(meters, pulsar_subscription="s")
        assert found["consumer.closed"] == 1
        assert found["consumer.message.received.count"] == 3
        assert found["consumer.receive_queue.count"] == 0


async def test_what_fails(meters: Meters, autojump_clock: MockClock) -> None:
    async with fake_broker() as server, server.client(meter_provider=meters.provider) as client:
        server.refuse_connections = 2
        producer = await client.create_producer("t", send_timeout_s=1)
        server.hold_receipts = True
        receipt = await producer.submit(b"x")
        with pytest.raises(geminga.OperationTimeoutError):
            await receipt.wait()
        assert meters.values(pulsar_failure_type="tcp-failed") == {"connection.failed": 2}
        assert of_namespace(meters, pulsar_response_status="failed") == {
            "producer.message.send.duration": 1,
            "producer.rpc.send.duration": 1,
        }
        assert of_namespace(meters)["producer.message.send.size"] == 0


async def test_several_clients_of_one_provider(meters: Meters, autojump_clock: MockClock) -> None:
    """Values are summed; what closed clients counted stays."""
    for sent in (1, 2):
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(fake_broker())
            for _ in range(2):
                client = await stack.enter_async_context(
                    server.client(meter_provider=meters.provider)
                )
                producer = await client.create_producer("t")
                await producer.send(b"1234")
            assert of_namespace(meters)["producer.message.send.size"] == 8 * sent
    found = of_namespace(meters)
    assert found["producer.message.send.size"] == 16
    assert (found["producer.opened"], found["producer.closed"]) == (4, 4)
    assert meters.values()["connection.opened"] == 4
    assert not metrics.registry_of(meters.provider).clients


async def test_a_reader_in_another_thread(meters: Meters) -> None:
    async with fake_broker() as server, server.client(meter_provider=meters.provider) as client:
        producer = await client.create_producer("t")
        await producer.send(b"1234")
        found = await trio.to_thread.run_sync(lambda: of_namespace(meters))
        assert found["producer.message.send.size"] == 4
        # A loop that does something else for long doesn't hold up the reader for ever.
        await producer.send(b"1234")
        late: list[dict[str, int]] = []
        thread = threading.Thread(target=lambda: late.append(of_namespace(meters)))
        thread.start()
        thread.join(30)
        assert late
        assert late[0]["producer.message.send.size"] == 4


def test_a_partition_that_is_gone() -> None:
    """What a pattern's topic or a replaced partition counted stays; its queue doesn't."""
    parts = {"a": 1, "b": 10}
    attributes = (("k", "v"),)
    source = metrics._Source(
        "consumer",
        lambda: [
            (part, attributes, [("message.ack", n), ("receive_queue.count", n)])
            for part, n in parts.items()
        ],
    )

    def read() -> dict[str, int]:
        found: metrics.Values = defaultdict(int)
        source.read(found)
        return {name.removeprefix("pulsar.client.consumer."): n for (name, _), n in found.items()}

    assert read() == {"message.ack": 11, "receive_queue.count": 11, "opened": 2, "closed": 0}
    del parts["b"]
    for _ in range(2):
        assert read() == {"message.ack": 11, "receive_queue.count": 1, "opened": 2, "closed": 1}
    assert source.close()["pulsar.client.consumer.closed", attributes] == 2


def test_dead_letters(url: str, meters: Meters) -> None:
    def counted() -> int:
        return of_namespace(meters, pulsar_subscription="s")["consumer.message.dlq"]

    async def main() -> None:
        async with geminga.connect(url, meter_provider=meters.provider) as client:
            policy = DeadLetterPolicy(max_redeliver_count=1, dead_letter_topic="metered-dead")
            consumer = await client.subscribe(
                "metered", "s", retry_enabled=True, dead_letter_policy=policy,
                negative_ack_redelivery_delay_s=0.1, **SHARED,
            )  # fmt: skip
            dead = await client.subscribe("metered-dead", "d")
            producer = await client.create_producer("metered")
            await producer.send(b"x")
            for _ in range(2):
                await consumer.reconsume_later(await consumer.receive(30), 0.01)
            await dead.receive(30)
            await producer.send(b"y")
            for _ in range(2):
                consumer.negative_acknowledge(await consumer.receive(30))
            await dead.receive(30)
            with trio.fail_after(60):  # it is counted with its receipt, which may come later
                while counted() != 2:  # noqa: ASYNC110
                    await trio.sleep(0.01)
        assert counted() == 2

    trio.run(main)


@pytest.mark.parametrize("face", FACES, ids=lambda face: type(face).__name__)
def test_in_every_face(face: Face, url: str, meters: Meters) -> None:
    async def script() -> None:
        async with face.connect(url, meter_provider=meters.provider) as client:
            consumer = await client.subscribe(f"metered-{type(face).__name__}", "s")
            producer = await client.create_producer(f"metered-{type(face).__name__}")
            await producer.send(b"1234")
            await consumer.acknowledge(await consumer.receive(30))
            found = of_namespace(meters)
            assert found["producer.message.send.size"] == 4
            found = of_namespace(meters, pulsar_subscription="s")
            assert found["consumer.message.received.count"] == 1

    face.run(script)


async def test_without_a_provider_nothing_is_measured(autojump_clock: MockClock) -> None:
    async with fake_broker() as server, server.client() as client:
        producer = await client.create_producer("t")
        (part,) = partitions_of(producer).parts
        assert client._core.metrics is None
        assert part.outbox._settled.__func__ is PartitionProducer._on_settled


async def test_durations(meters: Meters, autojump_clock: MockClock) -> None:
    """Of a message from its queueing, of an entry from its writing; batches by key, too."""
    keyed = geminga.BatchingType.KEY_BASED
    async with fake_broker() as server, server.client(meter_provider=meters.provider) as client:
        producer = await client.create_producer(
            "t", batching_max_publish_delay_s=4, batching_type=keyed
        )
        server.hold_receipts = True
        await producer.submit(b"first", partition_key="a")
        await trio.sleep(1)
        await producer.submit(b"second", partition_key="b")
        await trio.sleep(10)
        server.release_receipts()
        await producer.flush()
        found = meters.collected()
    (messages,) = found["producer.message.send.duration"].data.data_points
    (entries,) = found["producer.rpc.send.duration"].data.data_points
    assert (messages.count, entries.count) == (2, 2)
    assert (messages.min, messages.max) == (pytest.approx(10), pytest.approx(11))
    assert (entries.min, entries.max) == (pytest.approx(6), pytest.approx(11))
