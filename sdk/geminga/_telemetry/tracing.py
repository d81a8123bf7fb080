"""Spans of sending and of processing messages (spec SDK-49; OpenTelemetry's conventions for
messaging, and PIP-446, the spans of Java's client 4.2).

The context is carried in properties, under the keys of the global propagator (`traceparent`,
`tracestate`), as that client and OpenTelemetry's agent for Java write and read them.
"""

from __future__ import annotations

import dataclasses

from geminga._options.consumer_hooks import OwnInterceptor
from geminga._options.producer_interceptors import ProducerInterceptor, ProducerMessage
from geminga._telemetry.providers import NEEDED
from geminga.errors import GemingaError, InvalidArgumentError
from geminga.message import Message
from geminga_protocol.message_id import MessageId
from geminga_protocol.topic_name import TopicName

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError(NEEDED) from error

OPEN_MAX = 10_000
"""Bound of the messages of one consumer whose processing is under way; the oldest one's span ends
then.
"""
_SCOPE = "geminga"
_FIELDS = tuple(each.name for each in dataclasses.fields(ProducerMessage))
Place = tuple[int, int]


def context_of(message: Message) -> Context:
    """The context that a message carries: that of its processing if the consumer traces it, else
    that of its sending. Spans of the program's own belong there, and so does what it sends:

        with tracer.start_as_current_span("bill", context=context_of(message)):
            ...
    """
    return propagate.extract(message.properties, Context())


@dataclasses.dataclass(frozen=True, slots=True)
class _Traced(ProducerMessage):
    """A message with its span."""

    span: Span = trace.INVALID_SPAN


def _described(topic: str, operation: str, size_bytes: int) -> tuple[str, dict[str, str | int]]:
    """A span's name and attributes. A partition is told apart from its topic."""
    name = TopicName.parse(topic)
    base = str(name.partitioned_base)
    attributes: dict[str, str | int] = {
        "messaging.system": "pulsar",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": base,
        "messaging.message.body.size": size_bytes,
    }
    if name.partition_index >= 0:
        attributes["messaging.destination.partition.id"] = str(name.partition_index)
    return f"{operation} {base}", attributes


class TracingProducerInterceptor(ProducerInterceptor):
    """A PRODUCER span for each message, from `send` to its receipt. Its parent is the caller's
    current span; without one, the context that the message's properties have already, as those of
    a retry or dead letter. The last of several interceptors, so that it sees what is sent.

    It keeps nothing of a producer: several may share one.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """None: the global provider."""
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)

    def before_send(self, message: ProducerMessage) -> ProducerMessage:
        """The message with the span's context in its properties."""
        if isinstance(message, _Traced):
            return message
        parent = context.get_current()
        if not trace.get_current_span(parent).get_span_context().is_valid:
            parent = propagate.extract(message.properties, parent)
        name, attributes = _described(message.topic, "send", len(message.data))
        span = self._tracer.start_span(name, parent, SpanKind.PRODUCER, attributes)
        carrier = dict(message.properties)
        propagate.inject(carrier, trace.set_span_in_context(span, parent))
        given = {field: getattr(message, field) for field in _FIELDS}
        return _Traced(**{**given, "properties": carrier}, span=span)

    def on_send_acknowledgement(
        self, message: ProducerMessage, message_id: MessageId | None, error: GemingaError | None
    ) -> None:
        """The span ends."""
        if not isinstance(message, _Traced):
            return
        span = message.span
        if message_id is not None:
            span.set_attribute("messaging.message.id", repr(message_id))
        if error is not None:
            span.set_attribute("error.type", error.code)
            span.set_status(StatusCode.ERROR, str(error))
        span.end()


class TracingConsumerInterceptor(OwnInterceptor):
    """A CONSUMER span for each message, from its delivery to its acknowledgement, negative
    acknowledgement or ack timeout; its parent is the context in the message's properties. The
    message that the program gets has the span's context there: see `context_of`.

    One object for each consumer; that of one that is open is refused. Of messages that are never
    acknowledged, OPEN_MAX spans stay open.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, *, subscription_name: str | None = None
    ) -> None:
        """None: the global provider. The subscription's name is an attribute of the spans."""
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._more = {}
        if subscription_name is not None:
            self._more = {"messaging.destination.subscription.name": subscription_name}
        self._open: dict[str, dict[Place, dict[int, Span]]] = {}
        self._count = 0
        self._is_taken = False

    def begin(self) -> None:
        """A consumer takes it. Raises InvalidArgumentError if another one has it."""
        if self._is_taken:
            raise InvalidArgumentError(
                "interceptors: another consumer has this TracingConsumerInterceptor, which keeps "
                "its spans: make one for each consumer"
            )
        self._is_taken = True

    def before_consume(self, topic: str, message: Message) -> Message:
        """The message with the span's context in its properties."""
        properties = message.properties
        parent = propagate.extract(properties, Context())
        name, attributes = _described(message.topic_name, "process", len(message.data))
        found = message.message_id
        attributes |= {"messaging.message.id": repr(found), **self._more}
        span = self._tracer.start_span(name, parent, SpanKind.CONSUMER, attributes)
        if not span.is_recording():
            return message
        self._keep(message.topic_name, found, span)
        propagate.inject(properties, trace.set_span_in_context(span, parent))
        return message.replace(properties=properties)

    def _keep(self, topic: str, found: MessageId, span: Span) -> None:
        place = found.ledger_id, found.entry_id
        at_place = self._open.setdefault(topic, {}).setdefault(place, {})
        before = at_place.pop(found.batch_index, None)
        if before is not None:
            before.end()  # it came again
            self._count -= 1
        at_place[found.batch_index] = span
        self._count += 1
        while self._count > OPEN_MAX:
            oldest_topic = next(iter(self._open))
            oldest = next(iter(self._open[oldest_topic]))
            self._end(oldest_topic, oldest, None, None)

    def _end(self, topic: str, place: Place, to_index: int | None, how: str | None) -> None:
        """End the spans of an entry's messages, up to one of them."""
        places = self._open.get(topic, {})
        spans = places.get(place, {})
        for index in [each for each in spans if to_index is None or each <= to_index]:
            self._settle(spans.pop(index), how)
        self._forget(topic, place)

    def _settle(self, span: Span, how: str | None) -> None:
        self._count -= 1
        if how is not None:
            span.set_attribute("messaging.pulsar.acknowledgment.type", how)
        span.end()

    def _forget(self, topic: str, place: Place) -> None:
        """Keep no empty tables."""
        places = self._open.get(topic, {})
        if not places.get(place, True):
            del places[place]
            if not places:
                del self._open[topic]

    def on_acknowledge(self, topic: str, message_id: MessageId, error: GemingaError | None) -> None:
        """The message's span ends."""
        place = message_id.ledger_id, message_id.entry_id
        span = self._open.get(topic, {}).get(place, {}).pop(message_id.batch_index, None)
        if span is not None:
            self._settle(span, "acknowledge")
            self._forget(topic, place)

    def on_acknowledge_cumulative(
        self, topic: str, message_id: MessageId, error: GemingaError | None
    ) -> None:
        """The spans of all messages up to this one end."""
        last = message_id.ledger_id, message_id.entry_id
        to_index = None if message_id.batch_index < 0 else message_id.batch_index
        for place in [each for each in self._open.get(topic, {}) if each <= last]:
            self._end(topic, place, to_index if place == last else None, "cumulative_acknowledge")

    def on_negative_acks_send(self, topic: str, message_ids: frozenset[MessageId]) -> None:
        """The spans of these entries' messages end."""
        for each in message_ids:
            self._end(topic, (each.ledger_id, each.entry_id), None, "negative_acknowledge")

    def on_ack_timeout_send(self, topic: str, message_ids: frozenset[MessageId]) -> None:
        """The spans of these entries' messages end."""
        for each in message_ids:
            self._end(topic, (each.ledger_id, each.entry_id), None, "ack_timeout")

    def close(self) -> None:
        """All spans end: what isn't acknowledged comes again elsewhere."""
        self._is_taken = False
        for topic in list(self._open):
            for place in list(self._open[topic]):
                self._end(topic, place, None, None)
