"""The producer of one topic or partition: drives an Outbox over a connection (spec SDK-01, SDK-02,
SDK-04, SDK-07; ProducerImpl of the Java client).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import suppress

import trio

from geminga._connection.alarm import Alarm
from geminga._connection.connection import Connection
from geminga._connection.connection_handler import ConnectionHandler
from geminga._connection.core import Core
from geminga._connection.retry import FAILS_PENDING, SendErrorAction, send_error_action
from geminga._connection.statistics import Counts, ProducerStatistics
from geminga._entries.encode import Encoder, Extras
from geminga._producing.keyed_outbox import KeyedOutbox
from geminga._producing.outbox import Outbox, Placed
from geminga._producing.receipt import Outgoing, Receipt
from geminga._producing.sending_room import SendingRoom
from geminga._producing.timed_outbox import TimedKeyedOutbox, TimedOutbox
from geminga._producing.window import ReceiptVerdict
from geminga.errors import (
    AlreadyClosedError,
    BrokerError,
    ConnectionFailedError,
    GemingaError,
    OperationTimeoutError,
    from_broker,
)
from geminga.options import BatchingType, ProducerOptions
from geminga.options import ProducerAccessMode as AccessMode
from geminga_protocol.arrivals import ReceiptRun
from geminga_protocol.commands import producing as commands
from geminga_protocol.pb.pulsar_api_pb2 import CommandSendError, ProducerAccessMode
from geminga_runtime.clock import wall_clock_ms

logger = logging.getLogger("geminga")

_ACCESS_MODES = {
    AccessMode.SHARED: ProducerAccessMode.Shared,
    AccessMode.EXCLUSIVE: ProducerAccessMode.Exclusive,
    AccessMode.WAIT_FOR_EXCLUSIVE: ProducerAccessMode.WaitForExclusive,
    AccessMode.EXCLUSIVE_WITH_FENCING: ProducerAccessMode.ExclusiveWithFencing,
}


class PartitionProducer(SendingRoom):
    """Sends to one partition or unpartitioned topic."""

    def __init__(self, core: Core, topic: str, partition: int, options: ProducerOptions) -> None:
        self._partition = partition
        self._id = next(core.producer_ids)
        encoder = Encoder(self._id, topic, options, wall_clock_ms)
        is_keyed = options.batching_type is BatchingType.KEY_BASED
        if core.metrics is None:
            kind = KeyedOutbox if is_keyed else Outbox
            outbox = kind(options, encoder, trio.current_time, self._on_settled, core.memory)
        else:
            timed = TimedKeyedOutbox if is_keyed else TimedOutbox
            outbox = timed(options, encoder, trio.current_time, self._on_settled, core.memory)
            outbox.timer = core.metrics.sends(topic)
        super().__init__(core, topic, options, encoder, outbox)
        self.is_started = False
        self.counts = Counts()
        self._times_sends = core.intervals.length_s > 0
        self._delay_s = options.batching_max_publish_delay_s
        self._send_timeout_s = options.send_timeout_s or math.inf
        self._alarm = Alarm(self._on_alarm)
        self._handler = ConnectionHandler(core, self)
        self._connection: Connection | None = None
        self._epoch = 0
        self._topic_epoch: int | None = None
        self._refused: tuple[float, GemingaError | None] = -math.inf, None
        """Time and error of the broker's last refusal of a message or of the producer."""

    @property
    def name(self) -> str:
        """The producer's name, given by the program or by the broker."""
        return self._encoder.producer_name

    @property
    def is_connected(self) -> bool:
        """Whether it is connected to its broker."""
        return self._connection is not None

    async def start(self) -> None:
        """Wait until it is connected. Raises GemingaError."""
        if self._encoder.sealer is not None:
            self._encoder.sealer.prepare()
        self.is_started = True
        self._core.nursery.start_soon(self._alarm.run)
        try:
            await self._handler.start()
        except BaseException:
            self._alarm.stop()
            raise

    def start_soon(self) -> None:
        """`start` without waiting: messages added meanwhile are sent once it is connected."""
        self.is_started = True
        self._core.nursery.start_soon(self._alarm.run)
        self._handler.start_soon()

    # ---- sending ----

    @trio.lowlevel.enable_ki_protection
    def add(self, data: bytes, extras: Extras | None, sequence_id: int | None) -> Receipt:
        """Add a message, even if there is no room."""
        size_bytes = len(data)
        if size_bytes > self._encoder.max_message_size_bytes:
            self._check(size_bytes)
        self._memory.used_bytes += size_bytes
        outbox = self.outbox
        receipt = outbox.add(data, extras, sequence_id)
        if outbox.unsent:
            self._write_unsent()
        batch = outbox.open_batch
        if batch is not None and batch.count == 1:
            self._keep_time_of(batch)
        return receipt

    def _keep_time_of(self, batch: Outgoing) -> None:
        # With nothing in flight, waiting for more would only add latency: the batch is sent in the
        # event loop's next turn.
        if self.outbox.in_flight:
            self._alarm.at(batch.created_s + self._delay_s)
        elif batch.count == 1 and self.outbox.is_lone:
            self.seal()
        else:
            self._alarm.now()

    @trio.lowlevel.enable_ki_protection
    def add_run(self, payloads: Sequence[bytes]) -> list[Placed]:
        """Add messages with a payload only, as many as there is room for; together they may exceed
        the memory limit. Adds none if they must be added singly.
        """
        outbox = self.outbox
        payloads = payloads[: max(0, self._pending_max - outbox.pending_messages)]
        largest = max(map(len, payloads), default=0)
        if not self.has_room() or largest > self._encoder.max_message_size_bytes:
            return []
        size_bytes = sum(map(len, payloads))
        self._memory.used_bytes += size_bytes
        placed = outbox.add_run(payloads)
        if not placed:
            self._memory.used_bytes -= size_bytes
            return placed
        if outbox.unsent:
            self._write_unsent()
        batch, first, _ = placed[-1]
        if not first and batch is outbox.open_batch:
            self._keep_time_of(batch)
        return placed

    def _write_unsent(self) -> None:
        unsent = self.outbox.take_unsent()
        if not unsent:
            return
        first = unsent[0]
        self._alarm.at(first.created_s + self._send_timeout_s)
        connection = self._connection
        partition = self._partition
        for outgoing in unsent:
            outgoing.partition = partition
        if connection is None:
            self._handler.hurry()
        elif len(unsent) > 1:
            for outgoing in unsent:
                connection.write(*outgoing.frame)
        elif self.outbox.in_flight == 1:
            # Nothing else is in flight: the program waits for this one only.
            connection.write_now(*first.frame)
        else:
            connection.write(*first.frame)

    @trio.lowlevel.enable_ki_protection
    def seal(self) -> None:
        """Send the open batch now."""
        self.outbox.seal()
        self._write_unsent()

    def _on_alarm(self, now_s: float) -> float:
        outbox = self.outbox
        opened_s = outbox.open_since_s
        if opened_s is not None and (not outbox.in_flight or now_s >= opened_s + self._delay_s):
            self.seal()
        refused_s, refused = self._refused
        if self._connection is not None and now_s >= refused_s + self._send_timeout_s:
            refused = None
        expired = outbox.expire(self._send_timeout_s, now_s, self.topic, refused)
        if expired:
            logger.warning("%s: %d messages got no receipt in time", self.topic, expired)
        next_s = math.inf
        if outbox.open_since_s is not None:
            next_s = outbox.open_since_s + self._delay_s
        oldest_s = outbox.oldest_since_s
        return next_s if oldest_s is None else min(next_s, oldest_s + self._send_timeout_s)

    def _on_settled(self, run: Sequence[Outgoing], messages: int, size_bytes: int) -> None:
        counts = self.counts
        if run[0].error is not None:
            counts.lost(messages, size_bytes)
        else:
            counts.messages += messages
            counts.size_bytes += size_bytes
            counts.entries += len(run)
            connection = self._connection
            if self._times_sends and messages and connection is not None:
                if connection.read_at_s == counts.read_at_s:
                    counts.run_messages += messages
                else:
                    counts.begin_run(connection.read_at_s, run[0].created_s, messages)
        self._memory.release(size_bytes)
        if self._is_waited_for:
            self._room.unpark(count=messages)
            self._is_waited_for = bool(self._room)

    async def flush(self) -> list[Outgoing]:
        """Wait until all earlier messages have a receipt or failed. Returns the failed ones."""
        pending = self.outbox.pending()
        self.seal()
        if not pending:
            await trio.lowlevel.checkpoint()
        # Wait for the last one first: mostly all others are settled then.
        for each in reversed(pending):
            if each is pending[-1] or not each.is_settled:
                await each.wait()
        return [each for each in pending if each.error is not None]

    async def aclose(self) -> None:
        """Flush, notify the broker, and stop. Idempotent; messages that can't be sent fail with
        AlreadyClosedError.
        """
        if isinstance(self.error, AlreadyClosedError):
            await trio.lowlevel.checkpoint()
            return
        try:
            if self._connection is not None or (self.is_started and self.outbox.is_held):
                # Failed messages have their receipts; the broker must be notified of the end.
                timeout_s = self._core.options.operation_timeout_s
                try:
                    with suppress(GemingaError), trio.move_on_after(timeout_s):
                        await self.flush()
                    await self._handler.stop()  # or it is attached to its next broker meanwhile
                except BaseException:
                    self._say_goodbye()
                    raise
                await self._tell_closed()
        except GemingaError as error:
            logger.debug("%s: closing the producer: %s", self.topic, error)
        finally:
            if self._connection is not None:
                self._connection.producers.pop(self._id, None)
            self.failed(AlreadyClosedError("the producer is closed", topic=self.topic))
            self._handler.abandon()

    def _say_goodbye(self) -> None:
        """Notify the broker without waiting: else it would keep the producer registered."""
        connection = self._connection
        if connection is not None:
            connection.write(commands.close_producer(self._id, connection.next_request_id()))

    async def _tell_closed(self) -> None:
        connection = self._connection
        if connection is None:
            return
        await connection.request(
            lambda request_id: commands.close_producer(self._id, request_id),
            timeout_s=self._core.options.operation_timeout_s,
            topic=self.topic,
        )

    def statistics(self) -> ProducerStatistics:
        """The producer's counters."""
        outbox = self.outbox
        connected = self._connection is not None
        return self.counts.statistics(outbox.pending_messages, outbox.pending_bytes, connected)

    # ---- as the attachment's target ----

    @property
    def has_pending(self) -> bool:
        """Whether messages wait to be sent."""
        return self.outbox.pending_messages > 0

    async def attach(self, connection: Connection) -> None:
        """PRODUCER; then everything pending is resent, in order."""
        connection.producers[self._id] = self
        try:
            answer = await connection.request(
                self._producer_command,
                timeout_s=self._handler.timeout_s,
                topic=self.topic,
            )
            # Closed since the response: the broker must be notified.
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException as error:
            connection.producers.pop(self._id, None)
            if isinstance(error, GemingaError) and error.code in FAILS_PENDING:
                self.outbox.fail_all(error)
            if isinstance(error, BrokerError):
                self._refused = trio.current_time(), error
            if not isinstance(error, GemingaError) or isinstance(error, OperationTimeoutError):
                # The outcome is unknown: make sure that the broker closes the producer.
                connection.write(commands.close_producer(self._id, connection.next_request_id()))
            raise
        success = answer.producer_success
        self._epoch += 1
        self._encoder.schema_version = success.schema_version if self._options.schema else b""
        self._encoder.producer_name = success.producer_name
        self._encoder.max_message_size_bytes = connection.max_message_size_bytes
        self.outbox.note_joined()  # what joins from now on may be too large
        if success.HasField("topic_epoch"):
            self._topic_epoch = success.topic_epoch
        self.outbox.begin(success.last_sequence_id)
        if connection.is_lost:
            raise ConnectionFailedError("connection lost while attaching", topic=self.topic)
        self._connection = connection
        for outgoing in self.outbox.resend():
            connection.write(*outgoing.frame)

    def _producer_command(self, request_id: int) -> bytes:
        """PRODUCER, with the name that the broker gave before."""
        options = self._options
        return commands.producer(
            self.topic,
            self._id,
            request_id,
            producer_name=self.name or options.producer_name,
            metadata=options.properties,
            schema=None if options.schema is None else options.schema.info.to_wire(),
            epoch=self._epoch,
            user_provided_producer_name=options.producer_name is not None,
            access_mode=_ACCESS_MODES[options.access_mode],
            topic_epoch=self._topic_epoch,
            encrypted=bool(options.encryption_keys),
            initial_subscription_name=options.initial_subscription_name,
        )

    def detached(self) -> None:
        """The connection is lost: messages wait for the next one."""
        self._connection = None

    def failed(self, error: GemingaError) -> None:
        """Fail all pending and all later messages."""
        self.error = error
        self._connection = None
        self._alarm.stop()
        self.outbox.fail_all(error)
        self._room.unpark_all()
        self._memory.wake_all()

    # ---- as the connection's sink ----

    def on_receipts(self, run: ReceiptRun) -> None:
        """Settle the frames; if nothing is in flight, send the open batch."""
        first = run.sequence_id
        verdict = self.outbox.on_receipts(first, run.ledger_id, run.entry_id, run.count)
        if verdict is ReceiptVerdict.GAP and self._connection is not None:
            last = first + run.count - 1
            which = f"receipt {first}" if first == last else f"one of the receipts {first}-{last}"
            self._connection.close(f"{self.topic}: {which} is out of order")
        elif not self.outbox.in_flight and self.outbox.open_batch is not None:
            self.seal()

    def on_send_error(self, error: CommandSendError, code: str) -> None:
        """React by the table in `retry`."""
        failure = from_broker(code, error.message, self.topic)
        self._refused = trio.current_time(), failure
        action = send_error_action(code)
        connection = self._connection
        if action is SendErrorAction.TERMINATE:
            if connection is not None:
                connection.producers.pop(self._id, None)
            self._say_goodbye()
            self.failed(failure)
            self._handler.abandon()
        elif action is SendErrorAction.FAIL:
            self.outbox.fail(error.sequence_id, failure)
        elif action is SendErrorAction.VERIFY:
            if self.outbox.verify(error.sequence_id) and connection is not None:
                for outgoing in self.outbox.resend():
                    connection.write(*outgoing.frame)
        elif connection is not None:
            connection.close(f"{self.topic}: {failure}")

    def on_lost(self, assigned_broker_url: str | None) -> None:
        """Reconnect."""
        self._handler.lost(assigned_broker_url)
