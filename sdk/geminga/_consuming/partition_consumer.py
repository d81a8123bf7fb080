"""The consumer of one topic or partition (spec SDK-20, SDK-21, SDK-24, SDK-27; ConsumerImpl of the
Java client).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from geminga._acknowledging.acknowledger import AckTarget
from geminga._acknowledging.intercepted_acks import make_acknowledger
from geminga._acknowledging.nacks import redeliveries
from geminga._connection.connection import Connection
from geminga._connection.connection_handler import ConnectionHandler
from geminga._consuming.context import ConsumerContext
from geminga._consuming.deliverable import deliverable, plain_entries
from geminga._consuming.events import Events
from geminga._consuming.flow import Flow
from geminga._consuming.inbox import Permits
from geminga._consuming.moves import Moves
from geminga._consuming.start import Start, last_and_mark_delete
from geminga._consuming.statistics import ConsumerCounts, ConsumerStatistics
from geminga._dead_letter.dead_letters import DeadLetters
from geminga._entries.crypto import Opener
from geminga._entries.entry import Entry, UndecodableEntry, decode
from geminga.errors import (
    AlreadyClosedError,
    ConnectionFailedError,
    GemingaError,
    OperationTimeoutError,
)
from geminga_protocol.ack_set import cardinality
from geminga_protocol.arrivals import MessageRun
from geminga_protocol.commands import consuming as commands
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

logger = logging.getLogger("geminga")

NOTHING_RECEIVED = (-1, -1)


class PartitionConsumer:
    """Receives from one partition or unpartitioned topic into an inbox."""

    def __init__(self, context: ConsumerContext, topic: str, partition: int) -> None:
        core = context.core
        subscription = context.subscription
        options = subscription.options
        self.topic = topic
        self.partition = partition
        self.generation = 0
        self.opener = Opener(options.crypto_key_reader)
        self.crypto_failure_action = options.crypto_failure_action
        self.counts = ConsumerCounts()
        self.events = Events(topic, options.consumer_event_listener)
        self.error: GemingaError | None = None
        self.received_to = NOTHING_RECEIVED
        """Ledger and entry of the last received entry that isn't needed again, even if without a
        message."""
        self._core = core
        self._subscription = subscription
        self._id = next(core.consumer_ids)
        self.inbox = context.inbox
        self._notify = context.notify
        self._permits = Permits(
            subscription.queue_size, scaled=options.auto_scaled_receiver_queue_size_enabled
        )
        self.flow = Flow(self._id, self._permits)
        target = AckTarget(topic, partition, self._id, self.counts, self.redeliver)
        self.acknowledger = make_acknowledger(core, target, options, context.interceptors)
        self._tells_each = self.acknowledger.unacked is not None
        self._dead_letters: DeadLetters | None = None
        if context.dead_letter_sender is not None:
            self._dead_letters = DeadLetters(core, context.dead_letter_sender, self.acknowledger)
        self._start = Start(
            subscription.start_message_id,
            options.start_message_id_inclusive,
            durable=options.durable,
        )
        self._consumer_epoch = 0
        self._attached = trio.Event()
        self._handler = ConnectionHandler(core, self)
        self._moves = Moves(self._id, self._request, self._handler)
        self._connection: Connection | None = None

    @property
    def is_connected(self) -> bool:
        """Whether it is connected to its broker."""
        return self._connection is not None

    async def start(self) -> None:
        """Wait until it is connected. Raises GemingaError."""
        self._core.nursery.start_soon(self.acknowledger.run)
        try:
            await self._handler.start()
        except BaseException:
            self.acknowledger.stop()
            raise

    # ---- receiving ----

    def on_messages(self, run: MessageRun) -> None:
        """Decode the entries, and put their deliverable messages in the inbox."""
        self.received_to = run.ledger_id, run.places[-1][0]
        # Entries sent before the broker got our request to redeliver all come again: drop these.
        is_old = run.epoch is not None and run.epoch < self._consumer_epoch
        messages = 0
        if not is_old and self._dead_letters is None:
            plain = plain_entries(self, run, self._start, self.acknowledger.acks)
            if messages := len(plain):
                self._permits.used(messages)
                self.inbox.put_all(plain)
        for place in run.places[messages:]:
            try:
                entry = decode(self, run, place, self.acknowledger.chunks, trio.current_time)
            except UndecodableEntry as error:
                self._discard_corrupt(run, place[0], error)
            else:
                if entry is None:
                    self._keep_chunk(run.ledger_id, place[0])
                else:
                    messages += self._put(entry, is_old)
        if messages:
            self._notify(messages)

    def _put(self, entry: Entry, is_old: bool) -> int:
        """Put an entry in the inbox if it has messages to deliver; returns their number."""
        # The broker doesn't count messages that its ack set has as acknowledged.
        counted = cardinality(entry.ack_set) if entry.ack_set else entry.message_count
        self._permits.used(counted)
        indexes: Sequence[int] = ()
        if not is_old:
            indexes = deliverable(entry, self._start, self.acknowledger, self._subscription.options)
        dead_letters = self._dead_letters
        if indexes and dead_letters is not None and dead_letters.takes(entry, indexes):
            indexes = ()
        wanted = len(indexes)
        if wanted < counted:
            self.flow.release(counted - wanted)
        if wanted:
            entry.indexes = indexes
            entry.generation = self.generation
            self.inbox.put(entry)
        else:
            self._ask_again()
        return wanted

    def _ask_again(self) -> None:
        """Without a queue: a waiting caller's permit was used up or lost, so request again."""
        if not self._permits.queue_size:
            self._notify(0)

    def _keep_chunk(self, ledger_id: int, entry_id: int) -> None:
        if self._subscription.options.durable and self._start.passes(ledger_id, entry_id):
            # The last chunk of the message named by a seek: the others don't come.
            self.acknowledger.acknowledge_id(MessageId(ledger_id, entry_id, self.partition))
        if self._start.is_taken(ledger_id, entry_id):
            # Redelivered because of other chunks: its message was completed or reported before.
            self.acknowledger.chunks.knows((ledger_id, entry_id))
        # It takes no room in the queue; without a queue, the next one must be requested.
        self.acknowledger.took_chunk()
        self._permits.used(1)
        self.flow.release(1)
        self.flow.demand()

    def _discard_corrupt(self, run: MessageRun, entry_id: int, error: UndecodableEntry) -> None:
        ledger_id = run.ledger_id
        logger.error("%s: message %d:%d: %s", self.topic, ledger_id, entry_id, error)
        self.counts.failed += 1
        count = cardinality(run.ack_set) if run.ack_set else error.messages
        self._permits.used(count)
        self.flow.release(count)
        place = MessageId(ledger_id, entry_id, self.partition)
        if error.comes_again and self._subscription.options.consumer_type.is_shared:
            self.acknowledger.refuse(place, run.redelivery_count)
        told = error.validation_error
        if self._connection is not None and told is not None:
            self._connection.write(commands.ack(self._id, [place], validation_error=told))
        self._ask_again()

    def taken(self, entry: Entry) -> int:
        """Count messages that the program took."""
        at = entry.at
        taken = at - entry.released
        counts = self.counts
        counts.messages += taken
        if entry.bounds is None:
            counts.size_bytes += len(entry.payload)
        else:
            counts.size_bytes += entry.size_between(entry.released, at)
        entry.released = at
        self._start.taken(entry)
        permits = self._permits
        # `flow.release`, inlined, without a call while there is nothing to grant.
        if permits.to_give + taken < permits.threshold:
            permits.to_give += taken
        else:
            self.flow.release(taken)
        if self._tells_each and self.acknowledger.received(entry):
            return at + 1
        return at + permits.step

    def statistics(self) -> ConsumerStatistics:
        """The consumer's counters."""
        return self.counts.statistics(*self.inbox.waiting_of(self), self.is_connected)

    def _drop_all(self, *, recalls: bool = True) -> int:
        """Drop received messages that were not taken; returns as Inbox.discard."""
        self.generation += recalls
        self.received_to = NOTHING_RECEIVED
        return self.inbox.discard(self, recalls=recalls)

    # ---- asking and moving ----

    def redeliver(self, positions: list[tuple[int, int]] | None) -> None:
        """Request redelivery of these entries, or of all unacknowledged ones. On Exclusive and
        Failover subscriptions it is always all.
        """
        connection = self._connection
        if connection is None:
            # Not connected: reconnecting redelivers everything.
            return
        self._start.all_again()
        self.acknowledger.flush()
        shared = self._subscription.options.consumer_type.is_shared
        if positions is not None and shared:
            dropped = self.inbox.discard(self, set(positions))
            if self._dead_letters is not None:
                positions = self._dead_letters.without(positions)
            connection.write(*redeliveries(self._id, positions))
        else:
            self.acknowledger.forget_refused()
            dropped = self._drop_all()
            if not shared:
                self._consumer_epoch += 1
            epoch = None if shared else self._consumer_epoch
            connection.write(commands.redeliver_unacknowledged(self._id, consumer_epoch=epoch))
        self.flow.release(dropped)

    async def _request(self, make: Callable[[int], bytes]) -> BaseCommand:
        connection = self._connection
        if connection is None:
            self.check()
            raise ConnectionFailedError("the consumer is not connected now", topic=self.topic)
        return await connection.request(
            make, timeout_s=self._core.options.operation_timeout_s, topic=self.topic
        )

    def check(self) -> None:
        """Raises the error that ended the consumer, if any."""
        if self.error is not None:
            raise type(self.error)(str(self.error), code=self.error.code, topic=self.topic)

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """Id of the topic's last message (-1:-1 if it has none), and the subscription's mark-delete
        position, if the broker sends it.
        """
        answer = await self._core.with_retries(
            lambda: self._request(lambda n: commands.get_last_message_id(self._id, n))
        )
        return last_and_mark_delete(answer.getLastMessageIdResponse, self.partition)

    async def has_message_available(self) -> bool:
        """Whether there is a message after the last one that the program took."""
        if self.inbox.holds(self):
            await trio.lowlevel.checkpoint()
            return True
        last, mark_delete = await self.last_message_id()
        return self.inbox.holds(self) or self._start.is_behind(last, mark_delete)

    async def seek(self, to: MessageId | int) -> None:
        """Move the subscription to a message, or to the first message published at or after a time
        in ms since 1970. Returns when the consumer is reconnected. Raises GemingaError.
        """
        await self.acknowledger.settle()
        await self._core.with_retries(lambda: self._moves.seek(self._start, to))
        self.acknowledger.reset()
        self._start.moved(to)
        self.events.moved()
        self.flow.release(self._drop_all())
        with trio.move_on_after(self._core.options.operation_timeout_s):
            while self._connection is None:
                self.check()
                await self._attached.wait()
            return
        raise OperationTimeoutError("not connected again after the seek", topic=self.topic)

    async def unsubscribe(self, force: bool) -> None:
        """Delete the subscription; then the consumer must be closed. Raises GemingaError."""
        await self.acknowledger.settle()
        await self._moves.unsubscribe(force)

    async def aclose(self) -> None:
        """Send waiting acknowledgements, notify the broker, and stop. Idempotent."""
        if isinstance(self.error, AlreadyClosedError):
            await trio.lowlevel.checkpoint()
            return
        try:
            try:
                await self.acknowledger.settle()
                await self._handler.stop()  # or it is attached to its next broker meanwhile
            except BaseException:
                # Cancelled: notify the broker without waiting, or it would keep sending.
                if (found := self._connection) is not None:
                    found.write(commands.close_consumer(self._id, found.next_request_id()))
                raise
            if self._connection is not None:
                await self._request(lambda n: commands.close_consumer(self._id, n))
        except GemingaError as error:
            logger.debug("%s: closing the consumer: %s", self.topic, error)
        finally:
            if self._connection is not None:
                self._connection.consumers.pop(self._id, None)
            self.failed(AlreadyClosedError("the consumer is closed", topic=self.topic))
            self._handler.abandon()

    # ---- as the attachment's target ----

    has_pending = False

    async def attach(self, connection: Connection) -> None:
        """SUBSCRIBE, then waiting acknowledgements, then permits."""
        await self._moves.over()
        connection.consumers[self._id] = self
        try:
            await connection.request(
                lambda n: self._subscription.command(
                    self.topic, self._id, n, self._start.resume_id, self._consumer_epoch
                ),
                timeout_s=self._handler.timeout_s,
                topic=self.topic,
            )
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException as error:
            connection.consumers.pop(self._id, None)
            if not isinstance(error, GemingaError) or isinstance(error, OperationTimeoutError):
                # The outcome is unknown: make sure that the broker closes the consumer.
                connection.write(commands.close_consumer(self._id, connection.next_request_id()))
            raise
        self._connection = connection
        self.acknowledger.attached(connection)
        self.flow.attached(connection)
        self._attached.set()
        self._ask_again()

    def detached(self) -> None:
        """Drop received messages that were not taken: they come again. A durable subscription gets
        all unacknowledged messages again, even taken ones.
        """
        self._connection = None
        self._attached = trio.Event()
        self.flow.detached()
        self._start.lost((self.acknowledger.chunks.oldest, self.inbox.begin_of(self)))
        self.acknowledger.detached()
        self.events.detached()
        self._drop_all(recalls=self._subscription.options.durable)

    def failed(self, error: GemingaError) -> None:
        """The consumer has ended with this error."""
        self.error = error
        self._connection = None
        self.flow.detached()
        self.acknowledger.stop()
        self.events.detached()
        self._drop_all()
        self._attached.set()
        self._notify(0)

    # ---- as the connection's sink ----

    def on_active_change(self, is_active: bool) -> None:
        """Failover: whether this is the active consumer."""
        self.events.active(is_active)

    def on_end_of_topic(self) -> None:
        """The topic is terminated and everything was delivered."""
        self.events.ended()

    def on_lost(self, assigned_broker_url: str | None) -> None:
        """Reconnect."""
        self._handler.lost(assigned_broker_url)
