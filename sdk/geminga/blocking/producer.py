"""`Producer` of `geminga.blocking`. Made by tools/faces.py from `aio`: don't edit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Unpack

import geminga.producer
from geminga._bridge.threads import Receipt, ThreadBlock, ThreadSession, sender_of
from geminga._connection.statistics import ProducerStatistics as ProducerStatistics
from geminga.producer import MessageKeywords, S
from geminga_protocol.message_id import MessageId


class Producer(ThreadBlock, Generic[S]):
    """Sends messages to one topic, over all its partitions. Created by `Client.create_producer`.
    `S` is the type of its values: bytes, or that of its schema.

    `send` waits for the receipt. `submit` and `send_nowait` only queue the message and return a
    `Receipt`; messages of one task are sent in order. After a lost connection, all pending messages
    are resent in order; a confirmed message is not lost.
    """

    def __init__(self, session: ThreadSession, inner: geminga.producer.Producer[S]) -> None:
        self._session = session
        self._inner = inner
        self._sender = sender_of(session, inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def topic(self) -> str:
        """Full name of the topic, without partition."""
        return self._inner.topic

    @property
    def producer_name(self) -> str:
        """The name given by the program, or by the broker."""
        return self._inner.producer_name

    @property
    def is_connected(self) -> bool:
        """Whether it is connected to the brokers of all partitions in use."""
        return self._inner.is_connected

    @property
    def last_sequence_id(self) -> int:
        """The highest confirmed sequence id, or the one that the broker stores for this name; -1 if
        there is none.
        """
        return self._inner.last_sequence_id

    @property
    def pending_messages(self) -> int:
        """Number of messages without a receipt."""
        return self._sender.pending_messages

    def send(
        self, data: S, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> MessageId:
        """Send a message and wait until the broker has stored it; returns its id.

        With a schema `data` is a value (None: a null message). Keywords are `properties`,
        `partition_key`, `ordering_key`, `event_time_ms`, `deliver_at_ms`, `deliver_after` (a
        timedelta), `replication_clusters` and `disable_replication`. Waits while
        `max_pending_messages` or the client's memory limit are used up: if cancelled then, the
        message is not sent; if cancelled later, it is. Raises InvalidArgumentError,
        MessageTooBigError, OperationTimeoutError (send timeout), TopicTerminatedError,
        ProducerFencedError, QuotaExceededError, AlreadyClosedError and other GemingaErrors.
        """
        return self._sender.send(self._sender.made(data, sequence_id, described))

    def submit(
        self, data: S, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> Receipt:
        """Queue a message for sending; wait only while there is no room for it.

        `max_pending_messages` counts over all partitions together. Raises InvalidArgumentError for
        an invalid message; other errors are in the receipt.
        """
        sender = self._sender
        if sender.takes_bytes and isinstance(data, bytes) and sequence_id is None and not described:
            receipt = sender.send_at_once(data)
            if receipt is not None:
                return receipt
        return self._sender.submit(self._sender.made(data, sequence_id, described))

    def submit_many(self, payloads: Iterable[S]) -> list[Receipt]:
        """`submit` for each, in order; returns their receipts.

        All are checked first: if one is too large or not a value of the schema, none is sent. If
        cancelled, messages queued before are sent. Raises what `send` does.
        """
        sender = self._sender
        receipts: list[Receipt] = []
        for payload, extras in sender.all_prepared(payloads):
            receipt = sender.send_at_once(payload) if extras is None else None
            if receipt is None:
                details = None if extras is None else (extras, None)
                receipt = sender.submit(Receipt(self._session, payload, details))
            receipts.append(receipt)
        return receipts

    def send_nowait(
        self, data: S, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> Receipt:
        """`submit` without waiting. Also raises ProducerQueueFullError or MemoryLimitError."""
        handed = self._sender.made(data, sequence_id, described)
        full = self._sender.put(handed)
        if full is not None:
            raise full
        return handed

    def statistics(self) -> ProducerStatistics:
        """Counters of sent messages, in total and per partition."""
        return self._inner.statistics()

    def flush(self) -> None:
        """Send open batches, and wait until all earlier messages have a receipt or have failed.

        If messages that were pending at the call fail, it raises the first one's error, with the
        number of failures. For earlier failures see the receipts.
        """
        self._sender.call(lambda: self._inner.flush())

    def close(self) -> None:
        """Flush, and leave the topic. Idempotent; pending messages that can't be sent fail with
        AlreadyClosedError. A warning in the log has the number of messages that failed, now or
        before; their receipts have the errors.
        """
        self._sender.close()
