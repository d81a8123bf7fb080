"""Sending messages (spec SDK-01 to SDK-04, SDK-09)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Unpack

import trio

from geminga._connection.core import Core
from geminga._connection.opening import Block
from geminga._connection.statistics import ProducerStatistics, log_interval, summed
from geminga._connection.together import together, undone_on_error
from geminga._producing.message_options import MessageKeywords as MessageKeywords
from geminga._producing.message_options import extras_of, payload_of
from geminga._producing.partition_producer import PartitionProducer
from geminga._producing.partitions import Partitions
from geminga._producing.receipt import Outgoing, Receipt, first_failure
from geminga._producing.schema_encoding import prepared
from geminga.errors import GemingaError
from geminga.options import ProducerOptions
from geminga_protocol.message_id import MessageId
from geminga_protocol.topic_name import TopicName

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    S = TypeVar("S", default=bytes)
else:
    from typing import TypeVar

    S = TypeVar("S")

logger = logging.getLogger("geminga")

BYTES_BETWEEN_CHECKPOINTS = 128 * 1024
"""`submit` yields to the event loop after this size; a message counts as at least 1 KiB."""

SUBMITS_BETWEEN_CHECKPOINTS = 100
"""Messages that `submit_many` submits before it yields to the event loop."""


class Producer(Block, Generic[S]):
    """Sends messages to one topic, over all its partitions. Created by `Client.create_producer`.
    `S` is the type of its values: bytes, or that of its schema.

    `send` waits for the receipt. `submit` and `send_nowait` only queue the message and return a
    `Receipt`; messages of one task are sent in order. After a lost connection, all pending messages
    are resent in order; a confirmed message is not lost.
    """

    def __init__(
        self, core: Core, topic: TopicName, partitions: int, options: ProducerOptions
    ) -> None:
        self._core = core
        self._topic = topic
        self._options = options
        self._partitions = Partitions(core, topic, partitions, options)
        self._parts = self._partitions.parts
        self._choose = self._partitions.choose
        self._since_checkpoint = 0
        self._schema = options.schema
        self._takes_bytes = self._partitions.takes_bytes
        self._joins = self._partitions.joins

    def __repr__(self) -> str:
        return f"<Producer {self.producer_name!r} of {self._topic}>"

    @property
    def topic(self) -> str:
        """Full name of the topic, without partition."""
        return str(self._topic)

    @property
    def producer_name(self) -> str:
        """The name given by the program, or by the broker."""
        return next(filter(None, (part.name for part in self._parts)), "")

    @property
    def is_connected(self) -> bool:
        """Whether it is connected to the brokers of all partitions in use."""
        return all(part.is_connected for part in self._partitions.started)

    @property
    def last_sequence_id(self) -> int:
        """The highest confirmed sequence id, or the one that the broker stores for this name; -1 if
        there is none.
        """
        return max(part.outbox.last_sequence_id for part in self._parts)

    @property
    def pending_messages(self) -> int:
        """Number of messages without a receipt."""
        return sum(part.outbox.pending_messages for part in self._parts)

    async def _start(self) -> None:
        """Connect to all partitions. Raises the first GemingaError, after closing the others."""
        async with undone_on_error(self.aclose):
            await self._partitions.start()
        self._core.intervals.add(self._roll)
        if self._core.metrics is not None:
            self._core.metrics.add_producer(self, lambda: self._partitions.started)

    async def send(
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
        try:
            payload, extras = prepared(self._schema, data, sequence_id, described)
            part = self._parts[0] if len(self._parts) == 1 else self._choose(payload, extras)
            if not part.has_room():
                await part.wait_for_room(len(payload))
            # Queued before the first checkpoint: if cancelled there, the message is sent.
            receipt = part.add(payload, extras, sequence_id)
        except GemingaError as error:
            refusal = error
        else:
            return await receipt.wait()
        try:
            await trio.lowlevel.checkpoint()  # who tries again and again lets others run
            raise refusal
        finally:
            del refusal  # it refers to this frame

    async def submit(
        self, data: S, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> Receipt:
        """Queue a message for sending; wait only while there is no room for it.

        It suspends if there is no room and after every 128 KiB or so; if cancelled then, the
        message is not sent. Raises what `send` raises at the call; later errors are in the receipt.
        """
        payload: bytes
        parts = self._parts
        joins = self._joins and sequence_id is None and not described and len(parts) == 1
        value: object = data  # mypy narrows this by its type, and no type variable
        if joins and type(value) is bytes:
            # Most messages of a batch: neither first nor last.
            receipt = parts[0].joining.join(value)
            if receipt is not None:
                return receipt
        if type(value) is bytes and self._takes_bytes:
            extras = extras_of(described) if described else None
            payload = value if sequence_id is None else payload_of(value, sequence_id)
        else:
            payload, extras = prepared(self._schema, data, sequence_id, described)
        size_bytes = len(payload)
        since = self._since_checkpoint + (size_bytes if size_bytes > 1024 else 1024)
        if parts[0].joining.cost_bytes or parts[0].joining.first:
            since += parts[0].stop_joining()
        self._since_checkpoint = since
        if since >= BYTES_BETWEEN_CHECKPOINTS:
            self._since_checkpoint = since = 0
            await trio.lowlevel.checkpoint()
        part = parts[0] if len(parts) == 1 else self._choose(payload, extras)
        if not part.has_room():
            await part.wait_for_room(size_bytes)
        receipt = part.add(payload, extras, sequence_id)
        if joins and len(parts) == 1:
            part.let_join(BYTES_BETWEEN_CHECKPOINTS - since)
        return receipt

    async def submit_many(self, payloads: Iterable[S]) -> list[Receipt]:
        """`submit` for each, in order; returns their receipts.

        All are checked first: if one is too large or not a value of the schema, none is sent. If
        cancelled, messages queued before are sent. Raises what `send` does.
        """
        receipts: list[Receipt] = []
        ready = self._partitions.all_prepared(payloads)
        for at in range(0, len(ready), SUBMITS_BETWEEN_CHECKPOINTS):
            await trio.lowlevel.checkpoint()
            some = ready[at : at + SUBMITS_BETWEEN_CHECKPOINTS]
            taken = self._partitions.send_plain(some)
            receipts += taken
            for payload, extras in some[len(taken) :]:
                receipts.append(await self._partitions.send_checked_soon(payload, extras, None))
        return receipts

    def send_nowait(
        self, data: S, *, sequence_id: int | None = None, **described: Unpack[MessageKeywords]
    ) -> Receipt:
        """`submit` without waiting. Also raises ProducerQueueFullError or MemoryLimitError.

        Bytes that the socket doesn't take at once are written by the event loop.
        """
        payload, extras = prepared(self._schema, data, sequence_id, described)
        return self._partitions.send_checked(payload, extras, sequence_id)

    def statistics(self) -> ProducerStatistics:
        """Counters of sent messages, in total and per partition."""
        parts = self._parts
        if not self._partitions.is_partitioned:
            return parts[0].statistics()
        each = {part.topic: part.statistics() for part in parts}
        return summed([part.counts.last for part in parts], each)

    def _roll(self) -> None:
        """Begin a new statistics interval."""
        length_s = self._core.intervals.length_s
        for part in self._parts:
            part.counts.roll(length_s, part.outbox.pending_messages, part.outbox.pending_bytes)
        if logger.isEnabledFor(logging.INFO):
            log_interval(str(self._topic), self.producer_name, self.statistics())

    async def flush(self) -> None:
        """Send open batches, and wait until all earlier messages have a receipt or have failed.

        If messages that were pending at the call fail, it raises the first one's error, with the
        number of failures. For earlier failures see the receipts.
        """
        self._core.check_fork(self.topic)
        failed: list[Outgoing] = []

        async def flush(part: PartitionProducer) -> None:
            failed.extend(await part.flush())

        await together(partial(flush, part) for part in self._partitions.started)
        if failed:
            raise first_failure(failed)

    async def aclose(self) -> None:
        """Flush, and leave the topic. Idempotent; pending messages that can't be sent fail with
        AlreadyClosedError. A warning in the log has the number of messages that failed, now or
        before; their receipts have the errors.
        """
        if self._core.is_forked:
            return
        was_open = self in self._core.open
        self._core.open.pop(self, None)
        self._core.intervals.remove(self._roll)
        self._partitions.stop()
        try:
            await together(part.aclose for part in self._parts)
        finally:
            if self._core.metrics is not None:
                self._core.metrics.remove(self)
            self._partitions.closed()
            failed = sum(part.counts.failed for part in self._parts)
            if failed and was_open:
                logger.warning("%s: closed; %d messages got no receipt", self._topic, failed)


def partitions_of(producer: Producer[Any]) -> Partitions:
    """A producer's sending part, for the package's own use."""
    return producer._partitions
