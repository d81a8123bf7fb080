"""`Producer` of `geminga.aio`; tools/faces.py makes the blocking one from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Unpack

import geminga.producer
from geminga._bridge.asyncs import AsyncBlock, AsyncSender, AsyncSession, Receipt
from geminga._connection.statistics import ProducerStatistics as ProducerStatistics
from geminga.producer import MessageKeywords, S
from geminga_protocol.message_id import MessageId


class Producer(AsyncBlock, Generic[S]):
    """Sends messages to one topic, over all its partitions. Made by `Client.create_producer`. `S`
    is the type of what it sends: bytes, or that of its schema.

    `send` waits for the receipt. `submit` and `send_nowait` only hand the message over and
    answer a `Receipt`; messages of one task arrive in the order in which they were handed over.
    Nothing that was acknowledged is lost; when the connection is lost, everything pending is sent
    again in order.
    """

    def __init__(self, session: AsyncSession, inner: geminga.producer.Producer[S]) -> None:
        self._session = session
        self._inner = inner
        self._sender = AsyncSender(session, inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def topic(self) -> str:
        """Full name of the topic, without partition."""
        return self._inner.topic

    @property
    def producer_name(self) -> str:
        """The name that the program gave, or the broker."""
        return self._inner.producer_name

    @property
    def is_connected(self) -> bool:
        """Whether the brokers of all partitions that were started know the producer now."""
        return self._inner.is_connected

    @property
    def last_sequence_id(self) -> int:
        """Highest sequence id that was confirmed, or that the broker remembers of this name; -1 for
        none.
        """
        return self._inner.last_sequence_id

    @property
    def pending_messages(self) -> int:
        """Messages without receipt yet."""
        return self._sender.pending_messages

    async def send(
        self, data: S, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> MessageId:
        """Send a message and wait until the broker has stored it; returns its id.

        With a schema `data` is a value of it (None: a message that says that it is null). Keywords
        are `properties`, `partition_key`, `ordering_key`, `event_time_ms`, `deliver_at_ms`,
        `deliver_after` (a timedelta), `replication_clusters` and `disable_replication`. Waits
        while `max_pending_messages` or the client's memory limit are used up: cancelled then, the
        message is not sent. Cancelled later, it is sent all the same. Raises InvalidArgumentError,
        MessageTooBigError, OperationTimeoutError (send timeout), TopicTerminatedError,
        ProducerFencedError, QuotaExceededError, AlreadyClosedError and other GemingaErrors.
        """
        return await self._sender.send(self._sender.made(data, sequence_id, described))

    async def submit(
        self, data: S, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> Receipt:
        """Hand a message over for sending; wait only while there is no room.

        `max_pending_messages` counts over all partitions together. Raises InvalidArgumentError for
        what can't be sent at all; what else happens to the message stands in the receipt.
        """
        sender = self._sender
        if sender.takes_bytes and isinstance(data, bytes) and sequence_id is None and not described:
            receipt = sender.send_at_once(data)
            if receipt is not None:
                return receipt
        return await self._sender.submit(self._sender.made(data, sequence_id, described))

    async def submit_many(self, payloads: Iterable[S]) -> list[Receipt]:
        """`submit` for each, in order; returns their receipts.

        All are looked at first: with one that is too large or no value of the schema, nothing is
        sent. What was handed over before it is cancelled is sent. Raises what `send` does.
        """
        sender = self._sender
        receipts: list[Receipt] = []
        for payload, extras in sender.partitions.all_prepared(payloads):
            receipt = sender.send_at_once(payload) if extras is None else None
            if receipt is None:
                details = None if extras is None else (extras, None)
                receipt = await sender.submit(Receipt(self._session, payload, details))
            receipts.append(receipt)
        return receipts

    def send_nowait(
        self, data: S, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> Receipt:
        """The same without ever waiting. Raises ProducerQueueFullError or
        MemoryLimitError too.
        """
        handed = self._sender.made(data, sequence_id, described)
        full = self._sender.put(handed)
        if full is not None:
            raise full
        return handed

    def statistics(self) -> ProducerStatistics:
        """What has been sent so far, over all partitions and of each."""
        return self._inner.statistics()

    async def flush(self) -> None:
        """Send what is batched and wait until all that was handed over before has its receipt or
        has failed.

        If messages that were pending at the call fail, it raises the error of the first one, which
        tells how many failed. What failed before the call stands in the receipts.
        """
        await self._sender.call(lambda: self._inner.flush())

    async def aclose(self) -> None:
        """Flush, and leave the topic. Idempotent; pending messages that can't be sent fail with
        AlreadyClosedError. A warning in the log tells how many messages of the producer failed:
        their receipts tell why.
        """
        await self._sender.close()
