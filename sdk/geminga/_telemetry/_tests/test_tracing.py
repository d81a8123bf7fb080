"""Spans of messages, and the context that they carry."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from trio.testing import MockClock

import geminga
import geminga.otel
from geminga import ConsumerType, DeadLetterPolicy
from geminga._bridge._tests.three_faces import FACES, Face
from geminga._telemetry import tracing
from geminga._tests.fake_broker import fake_broker
from geminga.testing import broker

TOPIC = "persistent://public/default/t"
SHARED: dict[str, Any] = {"consumer_type": ConsumerType.SHARED}


class Spans:
    """A provider, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [each for each in self._exporter.get_finished_spans() if each.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    @property
    def names(self) -> list[str]:
        return [each.name for each in self._exporter.get_finished_spans()]


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent and span.parent.span_id


def id_of(span: Any) -> int:
    found: int = span.get_span_context().span_id
    return found


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with broker() as url:
        yield url


async def test_from_send_to_acknowledgement(spans: Spans, autojump_clock: MockClock) -> None:
    async with fake_broker() as server, server.client(tracer_provider=spans.provider) as client:
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t")
        with spans.tracer.start_as_current_span("order") as outer:
            sent_id = await producer.send(b"one", properties={"own": "1"})
        message = await consumer.receive()
        assert spans.names == [f"send {TOPIC}", "order"]
        with spans.tracer.start_as_current_span("bill", context=geminga.otel.context_of(message)):
            await consumer.acknowledge(message)
    sent, processed, billed = (
        spans.one(f"send {TOPIC}"), spans.one(f"process {TOPIC}"), spans.one("bill"),
    )  # fmt: skip
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent_of(sent) == id_of(outer)
    assert parent_of(processed) == id_of(sent)
    assert parent_of(billed) == id_of(processed)
    common = {
        "messaging.system": "pulsar",
        "messaging.destination.name": TOPIC,
        "messaging.message.body.size": 3,
        "messaging.message.id": repr(sent_id),
    }
    send, process = (
        {"messaging.operation.name": each, "messaging.operation.type": each}
        for each in ("send", "process")
    )
    assert dict(sent.attributes or {}) == common | send
    assert dict(processed.attributes or {}) == common | process | {
        "messaging.destination.subscription.name": "s",
        "messaging.pulsar.acknowledgment.type": "acknowledge",
    }
    # As the agent for Java writes and reads it: W3C's header as a property.
    found = message.properties
    trace_id = trace.format_trace_id(sent.get_span_context().trace_id)
    assert found.pop("own") == "1"
    assert re.fullmatch(rf"00-{trace_id}-[0-9a-f]{{16}}-0[13]", found.pop("traceparent"))
    assert found == {}


async def test_what_another_client_wrote_is_the_parent(
    spans: Spans, autojump_clock: MockClock
) -> None:
    async with fake_broker() as server, server.client() as plain:
        traced = geminga.otel.TracingConsumerInterceptor(spans.provider)
        consumer = await plain.subscribe("t", "s", interceptors=[traced])
        producer = await plain.create_producer("t")
        header = "00-0bf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await producer.send(b"x", properties={"traceparent": header, "tracestate": "a=b"})
        message = await consumer.receive()
        await consumer.acknowledge(message)
    span = spans.one(f"process {TOPIC}")
    assert span.parent is not None
    assert trace.format_trace_id(span.parent.trace_id) == "0bf7651916cd43dd8448eb211c80319c"
    assert trace.format_span_id(span.parent.span_id) == "b7ad6b7169203331"
    assert message.properties["tracestate"] == "a=b"


async def test_a_failed_message(spans: Spans, autojump_clock: MockClock) -> None:
    async with fake_broker() as server, server.client(tracer_provider=spans.provider) as client:
        producer = await client.create_producer("t", send_timeout_s=1)
        server.hold_receipts = True
        receipt = await producer.submit(b"x")
        with pytest.raises(geminga.OperationTimeoutError):
            await receipt.wait()
    span = spans.one(f"send {TOPIC}")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "OperationTimeoutError"


async def test_how_processing_ends(spans: Spans, autojump_clock: MockClock) -> None:
    async with fake_broker() as server, server.client(tracer_provider=spans.provider) as client:
        options = {"negative_ack_redelivery_delay_s": 1, **SHARED}
        consumer = await client.subscribe("t", "s", **options)
        slow = await client.subscribe("t", "slow", ack_timeout_s=2, **SHARED)
        all_at_once = await client.subscribe("t", "all")
        producer = await client.create_producer("t")
        for each in await producer.submit_many([b"0", b"1", b"2"]):
            await each.wait()
        taken = [await all_at_once.receive() for _ in range(3)]
        await all_at_once.acknowledge_cumulative(taken[1])
        consumer.negative_acknowledge(await consumer.receive())
        await slow.receive()
        await trio.sleep(6)
    how = [
        (
            (each.attributes or {})["messaging.destination.subscription.name"],
            (each.attributes or {}).get("messaging.pulsar.acknowledgment.type"),
        )
        for each in spans.named(f"process {TOPIC}")
    ]
    assert how.count(("all", "cumulative_acknowledge")) == 2
    assert how.count(("all", None)) == 1, "what closing left"
    assert ("s", "negative_acknowledge") in how
    assert ("slow", "ack_timeout") in how


async def test_open_spans_are_bounded(
    spans: Spans, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "OPEN_MAX", 5)
    async with fake_broker() as server, server.client(tracer_provider=spans.provider) as client:
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t", batching_enabled=False)
        for n in range(8):
            await producer.send(b"%d" % n)
        taken = [await consumer.receive() for _ in range(8)]
        assert len(spans.named(f"process {TOPIC}")) == 3
        for each in taken:
            await consumer.acknowledge(each)
        assert len(spans.named(f"process {TOPIC}")) == 8


def test_one_trace_over_retries_to_the_dead_letter(url: str, spans: Spans) -> None:
    """Producer, consumer, retry letter, its consumer, dead letter: all are in one trace."""

    async def main() -> None:
        async with geminga.connect(url, tracer_provider=spans.provider) as client:
            policy = DeadLetterPolicy(max_redeliver_count=1, dead_letter_topic="dead")
            consumer = await client.subscribe(
                "again", "s", retry_enabled=True, dead_letter_policy=policy, **SHARED
            )
            dead = await client.subscribe("dead", "d")
            producer = await client.create_producer("again")
            await producer.send(b"x")
            for _ in range(2):
                await consumer.reconsume_later(await consumer.receive(30), 0.01)
            await dead.acknowledge(await dead.receive(30))

    trio.run(main)
    base = "persistent://public/default/"
    order = [
        f"send {base}again", f"process {base}again", f"send {base}again-s-RETRY",
        f"process {base}again-s-RETRY", f"send {base}dead", f"process {base}dead",
    ]  # fmt: skip
    chain = [spans.one(name) for name in order]
    assert sorted(spans.names) == sorted(order)
    for before, after in itertools.pairwise(chain):
        assert parent_of(after) == id_of(before), after.name


@pytest.mark.parametrize("face", FACES, ids=lambda face: type(face).__name__)
def test_the_callers_span_is_the_parent_in_every_face(face: Face, url: str, spans: Spans) -> None:
    """In two of them the interceptors run in another thread."""
    topic = f"faces-{type(face).__name__}"

    async def script() -> None:
        async with face.connect(url, tracer_provider=spans.provider) as client:
            producer = await client.create_producer(topic)
            consumer = await client.subscribe(topic, "s")
            ways = {
                "send": lambda: producer.send(b"1"),
                "submit": lambda: producer.submit(b"2"),
                "many": lambda: producer.submit_many([b"3"]),
            }
            for name, way in ways.items():
                with spans.tracer.start_as_current_span(name):
                    await way()
            with spans.tracer.start_as_current_span("nowait"):
                producer.send_nowait(b"4", properties={"own": "1"})
            await producer.flush()
            for _ in range(4):
                await consumer.acknowledge(await consumer.receive(30))

    face.run(script)
    sent = {
        parent_of(each): each for each in spans.named(f"send persistent://public/default/{topic}")
    }
    assert set(sent) == {id_of(spans.one(each)) for each in ("send", "submit", "many", "nowait")}
    processed = spans.named(f"process persistent://public/default/{topic}")
    assert {parent_of(each) for each in processed} == {id_of(each) for each in sent.values()}


async def test_without_a_provider_nothing_is_added(autojump_clock: MockClock) -> None:
    async with fake_broker() as server, server.client() as client:
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t")
        await producer.send(b"x")
        message = await consumer.receive()
        assert message.properties == {}
        assert consumer._interceptors is None
        assert geminga.otel.context_of(message) == context.Context()


def test_what_is_no_provider() -> None:
    for name in ("tracer_provider", "meter_provider"):
        wrong: dict[str, Any] = {name: 5}
        with pytest.raises(geminga.InvalidArgumentError, match=f"{name} must be a"):
            geminga.connect("pulsar://127.0.0.1:1", **wrong)


async def test_producers_share_an_interceptor(spans: Spans, autojump_clock: MockClock) -> None:
    shared: Any = [tracing.TracingProducerInterceptor(spans.provider)]
    async with fake_broker() as server, server.client() as client:
        one = await client.create_producer("one", interceptors=shared)
        two = await client.create_producer("two", interceptors=shared)
        sent = {"one": await one.send(b"1"), "two": await two.send(b"2")}
        await one.aclose()
        await two.send(b"3")
    for topic, message_id in sent.items():
        first, *more = spans.named(f"send persistent://public/default/{topic}")
        assert (first.attributes or {})["messaging.message.id"] == repr(message_id)
        assert len(more) == (topic == "two")


async def test_consumers_do_not_share_one(spans: Spans, autojump_clock: MockClock) -> None:
    own: Any = [tracing.TracingConsumerInterceptor(spans.provider)]
    async with fake_broker() as server, server.client() as client:
        first = await client.subscribe("t", "s", interceptors=own)
        with pytest.raises(geminga.InvalidArgumentError, match="make one for each consumer"):
            await client.subscribe("t", "other", interceptors=own)
        await first.aclose()
        again = await client.subscribe("t", "s", interceptors=own)
        producer = await client.create_producer("t")
        await producer.send(b"x")
        await again.acknowledge(await again.receive())
        await trio.testing.wait_all_tasks_blocked()
    assert len(spans.named(f"process {TOPIC}")) == 1


async def test_a_consumer_that_cannot_be_opened_keeps_none(
    spans: Spans, autojump_clock: MockClock
) -> None:
    own = tracing.TracingConsumerInterceptor(spans.provider)
    taken = tracing.TracingConsumerInterceptor(spans.provider)
    several: Any = [own, taken]
    with_own: Any = [own]
    with_taken: Any = [taken]
    async with fake_broker() as server, server.client() as client:
        first = await client.subscribe("t", "s", interceptors=with_taken)
        with pytest.raises(geminga.InvalidArgumentError, match="make one for each consumer"):
            await client.subscribe("t", "other", interceptors=several)
        with pytest.raises(geminga.ConsumerBusyError):
            await client.subscribe("t", "s", interceptors=with_own)
        await first.aclose()
        await client.subscribe("t", "s", interceptors=with_own)
