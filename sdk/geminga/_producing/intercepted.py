"""A partition's producer with interceptors (spec SDK-11;
ProducerInterceptors of the Java client).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import Context

from geminga._connection.core import Core
from geminga._entries.encode import Extras
from geminga._options.callbacks import FAILURES
from geminga._options.producer_interceptors import ProducerInterceptor, ProducerMessage
from geminga._producing.message_options import extras_of, payload_of
from geminga._producing.outbox import Placed
from geminga._producing.partition_producer import PartitionProducer
from geminga._producing.receipt import Receipt
from geminga.errors import GemingaError, InvalidArgumentError
from geminga.options import ProducerOptions
from geminga_protocol.message_id import MessageId

logger = logging.getLogger("geminga")


class Interceptors:
    """All interceptors of a producer, in order. Their errors are logged, not raised."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._all = tuple(interceptors)

    def before_send(self, message: ProducerMessage) -> ProducerMessage:
        """The result of the last interceptor."""
        for each in self._all:
            try:
                if each.eligible(message):
                    message = _checked(each.before_send(message))
            except FAILURES:
                logger.exception("%s: an interceptor failed before_send", message.topic)
        return message

    def acknowledged(
        self, message: ProducerMessage, message_id: MessageId | None, error: GemingaError | None
    ) -> None:
        """The message is stored, or has failed."""
        for each in self._all:
            try:
                if each.eligible(message):
                    each.on_send_acknowledgement(message, message_id, error)
            except FAILURES:
                logger.exception("%s: an interceptor failed on_send_acknowledgement", message.topic)

    def partitions_changed(self, topic: str, partitions: int) -> None:
        """The topic has more partitions now."""
        self._call_all(topic, lambda each: each.on_partitions_change(topic, partitions))

    def close(self, topic: str) -> None:
        """The producer is closed."""
        self._call_all(topic, lambda each: each.close())

    def _call_all(self, topic: str, call: Callable[[ProducerInterceptor], object]) -> None:
        for each in self._all:
            try:
                call(each)
            except FAILURES:
                logger.exception("%s: an interceptor failed", topic)


def _checked(message: object) -> ProducerMessage:
    if not isinstance(message, ProducerMessage):
        raise InvalidArgumentError(f"before_send returned {message!r}, not a ProducerMessage")
    payload_of(message.data, message.sequence_id)
    _extras(message)
    return message


def _extras(message: ProducerMessage) -> Extras:
    return extras_of(
        {
            "properties": message.properties,
            "partition_key": message.partition_key,
            "ordering_key": message.ordering_key,
            "event_time_ms": message.event_time_ms,
            "deliver_at_ms": message.deliver_at_ms,
            "replication_clusters": message.replication_clusters,
        }
    )


def _kept(known: Extras, message: ProducerMessage) -> Extras:
    """The changed message's options, with those that interceptors don't get."""
    made = _extras(message)
    made.key_is_base64 |= known.key_is_base64 and made.partition_key == known.partition_key
    made.schema_version = known.schema_version
    made.is_null = known.is_null and not message.data
    return made


class InterceptedProducer(PartitionProducer):
    """Sends the messages returned by interceptors."""

    def __init__(
        self,
        core: Core,
        topic: str,
        partition: int,
        options: ProducerOptions,
        interceptors: Interceptors,
    ) -> None:
        super().__init__(core, topic, partition, options)
        self._interceptors = interceptors

    def add_run(self, payloads: Sequence[bytes]) -> list[Placed]:
        """None: interceptors see each message."""
        return []

    def add(self, data: bytes, extras: Extras | None, sequence_id: int | None) -> Receipt:
        """Add a message, changed by interceptors, and pass them its result."""
        known = extras or Extras()
        before_send = self._interceptors.before_send
        given = ProducerMessage(
            data,
            self.topic,
            self.name,
            known.properties or {},
            known.partition_key,
            known.ordering_key,
            known.event_time_ms,
            known.deliver_at_ms,
            known.replication_clusters,
            sequence_id,
        )
        context: Context | None = getattr(known, "context", None)
        message = before_send(given) if context is None else context.run(before_send, given)
        payload = payload_of(message.data, None)
        try:
            receipt = super().add(payload, _kept(known, message), message.sequence_id)
        except GemingaError as error:
            self._interceptors.acknowledged(message, None, error)
            raise
        receipt.add_done_callback(lambda done: self._done(message, done))
        return receipt

    def _done(self, message: ProducerMessage, receipt: Receipt) -> None:
        error = receipt.error
        message_id = receipt.message_id if error is None else None
        self._interceptors.acknowledged(message, message_id, error)
