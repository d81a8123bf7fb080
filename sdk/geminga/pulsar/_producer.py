"""`Producer` of the official client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import geminga.blocking
from geminga.errors import GemingaError
from geminga.pulsar._checks import check_function, closing_of
from geminga.pulsar._enums import Result
from geminga.pulsar._errors import officially, result_of
from geminga.pulsar._ids import MessageId
from geminga.pulsar._outgoing import outgoing
from geminga.pulsar.exceptions import AlreadyClosed
from geminga.pulsar.schema.schema import Schema

logger = logging.getLogger("geminga")

Callback = Callable[[Result, MessageId], object]


class Producer:
    """Sends messages to a topic. Created by `Client.create_producer`."""

    _producer: geminga.blocking.Producer[bytes | None]
    _schema: Schema
    _waits_for_room: bool
    _is_closed = False

    def topic(self) -> str:
        """Full name of the topic, without partition."""
        return self._producer.topic

    def producer_name(self) -> str:
        """The name given by the program, or by the broker."""
        return self._producer.producer_name

    def last_sequence_id(self) -> int:
        """The highest confirmed sequence id, -1 if there is none."""
        return self._producer.last_sequence_id

    @officially
    def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Send a value (None: a null message), and wait until it is stored.

        Waits for room if the queue is full, also without `block_if_queue_full`. Raises TypeError
        for a value that the schema doesn't take, ValueError for another argument's type,
        MessageTooBig, Timeout, AlreadyClosed and other PulsarExceptions.
        """
        data, number, described = outgoing(self._schema, content, locals())
        return MessageId._of(self._producer.send(data, sequence_id=number, **described))

    def send_async(
        self,
        content: Any,
        callback: Callback | None,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Queue a message; `callback(result, message_id)` is called once it is stored or has
        failed, in the client's own thread: it must not wait. Its errors are logged.

        If the queue is full it waits with `block_if_queue_full`, else the callback gets
        ProducerQueueIsFull. Raises TypeError and ValueError as `send`.
        """
        if callback is not None:
            check_function(callback, "callback")
        data, number, described = outgoing(self._schema, content, locals())
        queue = self._producer.submit if self._waits_for_room else self._producer.send_nowait
        try:
            receipt = queue(data, sequence_id=number, **described)
            if callback is not None:
                _report(receipt, callback)
        except GemingaError as error:
            if callback is not None:
                _call(callback, result_of(error), MessageId())

    @officially
    def flush(self) -> None:
        """Send open batches, and wait until all messages are stored. Raises AlreadyClosed, and the
        error of the first message that failed meanwhile.
        """
        self._check_open()
        self._producer.flush()

    @officially
    def close(self) -> None:
        """Flush, and leave the topic. Raises AlreadyClosed the second time."""
        self._check_open()
        with closing_of(self):
            self._producer.close()

    def is_connected(self) -> bool:
        """Whether it is connected to the brokers of all partitions in use."""
        return not self._is_closed and self._producer.is_connected

    def _check_open(self) -> None:
        if self._is_closed:
            raise AlreadyClosed("Pulsar error: AlreadyClosed: the producer is closed")


def _report(receipt: geminga.blocking.Receipt, callback: Callback) -> None:
    def report(done: geminga.blocking.Receipt) -> None:
        error = done.error
        if error is None:
            callback(Result.Ok, MessageId._of(done.message_id))
        else:
            callback(result_of(error), MessageId())

    receipt.add_done_callback(report)


def _call(callback: Callback, result: Result, place: MessageId) -> None:
    """Call it in the sending thread; its error is logged there too."""
    try:
        callback(result, place)
    except Exception:
        logger.exception("a callback of a refused message failed")
