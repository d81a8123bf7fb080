"""Receiving messages (spec SDK-20 to SDK-24, SDK-26 in part, SDK-27)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Generic

import trio

from geminga._acknowledging.ack_runs import MessageOrId as MessageOrId
from geminga._acknowledging.ack_runs import id_of, note_runs
from geminga._acknowledging.acknowledger import wait_for_receipts
from geminga._connection.core import Core
from geminga._connection.opening import Block
from geminga._connection.together import undone_on_error
from geminga._consuming.context import ConsumerContext
from geminga._consuming.discovery import Discovery
from geminga._consuming.inbox import Inbox
from geminga._consuming.interceptors import ConsumerInterceptors
from geminga._consuming.listening import Listening
from geminga._consuming.partition_consumer import PartitionConsumer
from geminga._consuming.parts import ConsumerParts
from geminga._consuming.receiving import (
    RECEIVES_BETWEEN_CHECKPOINTS,
    Receiving,
)
from geminga._consuming.statistics import ConsumerStatistics
from geminga._consuming.subscribe import Subscription
from geminga._consuming.trio_listening import listen
from geminga._consuming.typed_inbox import TypedInbox, make_inbox
from geminga._dead_letter.sender import DeadLetterSender
from geminga._options.arguments import delay, duration, several
from geminga._options.checks import texts
from geminga.errors import AlreadyClosedError, GemingaError, InvalidArgumentError
from geminga.message import Message, V_co
from geminga_protocol.message_id import MessageId


class Consumer(Block, Generic[V_co]):
    """Receives the messages of a subscription, over all partitions of its topics. Created by
    `Client.subscribe`.

    Messages of a partition are in order. An unacknowledged message is redelivered after a negative
    acknowledgement, or when the consumer reconnects. A cancelled or interrupted
    (KeyboardInterrupt) `receive` loses no message.
    """

    def __init__(
        self,
        core: Core,
        subscription: Subscription,
        partitions: list[tuple[str, int]],
        dead_letter_sender: DeadLetterSender | None = None,
        discovery: Discovery | None = None,
    ) -> None:
        """`partitions`: full topic names with their partition index; -1 if unpartitioned."""
        self._core = core
        self._subscription = subscription
        options = subscription.options
        self._interceptors = ConsumerInterceptors.of(options.interceptors)
        before_consume = self._interceptors.before_consume if self._interceptors else None
        self._inbox = make_inbox(core, options.schema, before_consume)
        self._open_inbox: Inbox | None = self._inbox  # None once it closes
        self._since_checkpoint = 0
        self._dead_letter_sender = dead_letter_sender
        self._receipts = options.ack_receipt_enabled
        self._listening: Listening | None = None
        self._is_closed = False
        self._receiving = Receiving(self._inbox, subscription)
        notify = self._receiving.notify
        if isinstance(self._inbox, TypedInbox):
            self._inbox.notify = notify
        context = ConsumerContext(
            core, subscription, self._inbox, notify, dead_letter_sender, self._interceptors
        )
        self._parts = self._receiving.parts = ConsumerParts(context, partitions, discovery)

    def __repr__(self) -> str:
        return f"<Consumer {self.consumer_name!r} of {self.subscription_name} on {self.topics}>"

    @property
    def topics(self) -> list[str]:
        """Full names of the topics; each partition is listed."""
        return [part.topic for part in self._parts.each]

    @property
    def subscription_name(self) -> str:
        """Name of the subscription."""
        return self._subscription.name

    @property
    def consumer_name(self) -> str:
        """The name given by the program, or a generated one."""
        return self._subscription.consumer_name

    @property
    def is_connected(self) -> bool:
        """Whether the consumer is connected to the brokers of all partitions."""
        return all(part.is_connected for part in self._parts.each)

    @property
    def reached_end_of_topic(self) -> bool:
        """Whether all topics are terminated and everything in them was delivered."""
        parts = self._parts.each
        return bool(parts) and all(part.events.reached_end for part in parts)

    async def _start(
        self, listener: Callable[[Consumer[V_co], Message[V_co]], object] | None = None
    ) -> None:
        """Connect to all partitions. Raises the first GemingaError, after closing the others."""
        async with undone_on_error(self._abandon):
            await self._parts.start()
        if listener is not None:
            self._receiving.is_listened = True
            self._since_checkpoint = RECEIVES_BETWEEN_CHECKPOINTS
            calls = partial(listener, self), self.negative_acknowledge
            self._listening = listen(
                self._core, self._subscription.options, self._receiving.next, *calls
            )

    async def _abandon(self) -> None:
        if self._interceptors is not None:
            self._interceptors.abandon()
        await self._parts.aclose()

    # ---- receiving ----

    @trio.lowlevel.enable_ki_protection
    async def receive(self, timeout_s: float | None = None) -> Message[V_co]:
        """The next message.

        Raises OperationTimeoutError after `timeout_s` seconds, AlreadyClosedError,
        InvalidArgumentError if there is a `message_listener`, and the error that ended the
        subscription. It suspends if there is no message and after every 200 messages.
        """
        if timeout_s is not None:
            duration(timeout_s, "timeout_s")
        if self._since_checkpoint < RECEIVES_BETWEEN_CHECKPOINTS:
            message = self._inbox.take()
            if message is not None:
                self._since_checkpoint += 1
                return message
        self._receiving.refuse_beside_listener()
        self._since_checkpoint = 0
        return await self._receiving.wait_and_take(timeout_s)

    @trio.lowlevel.enable_ki_protection
    async def receive_batch(
        self,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        wait_s: float | None = None,
    ) -> list[Message[V_co]]:
        """Wait for a message, then take all available ones, up to `max_messages` (1000) and
        `max_bytes` (10 MiB), at least one. Returns an empty list after `wait_s` seconds without
        any.

        With a `batch_receive_policy` it waits until the policy's bounds or its timeout are reached,
        and may return an empty list; an argument overrides the policy's bound. That needs a
        receiver queue. Otherwise raises what `receive` does.
        """
        limits = self._receiving.batch_limits(max_messages, max_bytes, wait_s)
        if limits.fills:
            return await self._receiving.receive_batch(*limits[:3])
        return await self._receiving.receive_some(*limits[:3])

    def __aiter__(self) -> Consumer[V_co]:
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> Message[V_co]:
        """The next message; the iteration ends when the consumer is closed."""
        if self._since_checkpoint < RECEIVES_BETWEEN_CHECKPOINTS:
            message = self._inbox.take()
            if message is not None:
                self._since_checkpoint += 1
                return message
        try:
            return await self.receive()
        except AlreadyClosedError:
            raise StopAsyncIteration from None

    def pause(self) -> None:
        """Request no more messages; requested ones may still arrive."""
        self._parts.pause()

    def resume(self) -> None:
        """Request messages again."""
        self._parts.resume()

    # ---- acknowledging ----

    async def acknowledge(self, message: MessageOrId) -> None:
        """Acknowledge a message. Acknowledgements are sent in groups; with `ack_receipt_enabled`
        this waits for the broker's receipt, and raises its error.

        A batch is acknowledged to the broker once all its messages are. If the connection is lost
        before, all of them are redelivered, unless `batch_index_ack_enabled`. Raises
        AlreadyClosedError if the consumer is closed: then the message is redelivered.
        """
        if isinstance(message, Message):
            entry = message._entry
            source = entry.source
            # `part_of`, inlined: this is on the hot path.
            if isinstance(source, PartitionConsumer) and source.inbox is self._open_inbox:
                part = source
            else:
                part = self._receiving.part_of(message)
            part.acknowledger.acknowledge(entry, message._index)
        else:
            part = self._receiving.part_of(message)
            part.acknowledger.acknowledge_id(message)
        if self._receipts:
            await wait_for_receipts((part.acknowledger,))

    async def acknowledge_all(self, messages: Iterable[MessageOrId]) -> None:
        """`acknowledge` each of the messages, with one wait for receipts."""
        several(messages, "messages")
        # Check all first: an invalid one must not leave some acknowledged.
        runs = self._receiving.runs(messages)
        note_runs(runs)
        if self._receipts:
            await wait_for_receipts({part.acknowledger: None for part, _, _ in runs})

    async def acknowledge_cumulative(self, message: MessageOrId) -> None:
        """Acknowledge the message and all before it in its partition.

        Raises InvalidArgumentError on a Shared or Key_Shared subscription.
        """
        if self._subscription.options.consumer_type.is_shared:
            raise InvalidArgumentError(
                "acknowledge_cumulative needs an Exclusive or Failover subscription"
            )
        part = self._receiving.part_of(message)
        part.acknowledger.acknowledge_cumulative(id_of(message))
        if self._receipts:
            await wait_for_receipts((part.acknowledger,))

    def negative_acknowledge(self, message: MessageOrId) -> None:
        """Request redelivery of the message after `negative_ack_redelivery_delay_s`, or as
        `negative_ack_backoff` says. Its whole batch is redelivered, except acknowledged messages.
        """
        count = message.redelivery_count if isinstance(message, Message) else 0
        self._receiving.source_of(message).acknowledger.refuse(id_of(message), count)

    async def reconsume_later(
        self,
        message: Message[object],
        delay_s: float,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Receive the message again after a delay in seconds: it is sent to the retry-letter topic,
        with the additional properties, and acknowledged. After the policy's `max_redeliver_count`
        times it goes to the dead-letter topic instead.

        Needs `retry_enabled`. Raises InvalidArgumentError, and the GemingaError of a failed send:
        then the message isn't acknowledged.
        """
        if not isinstance(message, Message):
            raise InvalidArgumentError(f"message must be a Message, not {message!r}")
        delay(delay_s, "delay_s")
        texts({} if properties is None else properties, "properties")
        part = self._receiving.part_of(message)
        if self._dead_letter_sender is None:
            raise InvalidArgumentError("reconsume_later needs retry_enabled")
        if await self._dead_letter_sender.send_again(message, delay_s, properties or {}):
            part.counts.dead_letters += 1
        await self.acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Request redelivery of all received messages that are not acknowledged."""
        for part in self._parts.each:
            part.redeliver(None)

    # ---- asking and moving ----

    async def seek(
        self, to: MessageId | datetime | int | Callable[[str], MessageId | datetime | int | None]
    ) -> None:
        """Move the subscription, in all partitions, to a message id, `MessageId.EARLIEST` or
        `LATEST`, or to the first message published at or after a time: a datetime with a time
        zone, or ms since 1970. A function is called with the full name of each topic or partition;
        if it returns None, that one is not moved.

        With an id the next message is the one after it, or itself if `start_message_id_inclusive`.
        Received messages that the program has not taken are dropped. Raises GemingaError.
        """
        await self._parts.seek(to)

    async def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition; -1:-1 for one without messages."""
        return await self._parts.last_message_ids()

    async def has_message_available(self) -> bool:
        """Whether there is a message after the last received one."""
        return await self._parts.has_message_available()

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription in all partitions, with `force` even if it has other consumers,
        and close this consumer. Raises GemingaError: then it is deleted in some partitions or in
        none, and the consumer receives from the others, until it is closed or this is called again.
        If cancelled, the consumer is closed; the subscription may be deleted or not.
        """
        try:
            await self._parts.unsubscribe(force)
        except GemingaError:
            raise
        except BaseException:
            with trio.move_on_after(0):
                await self.aclose()  # noqa: ASYNC102 - it writes before it waits
            raise
        await self.aclose()

    def statistics(self) -> ConsumerStatistics:
        """The consumer's counters."""
        return self._parts.statistics()

    async def aclose(self) -> None:
        """Send pending acknowledgements, and leave the subscription. Idempotent. Unacknowledged
        messages are redelivered, to other consumers or later. Waits for running calls of a
        `message_listener`, unless called by a listener.
        """
        parts = self._parts
        try:
            if self._listening is not None:
                await self._listening.stop()
        finally:
            # Even if cancelled, it notifies the brokers.
            self._core.open.pop(self, None)
            self._open_inbox = None
            self._receiving.is_closed = True
            parts.error = parts.error or AlreadyClosedError("the consumer is closed")
            await parts.aclose()  # noqa: ASYNC102 - it writes before it waits
        if self._dead_letter_sender is not None:
            await self._dead_letter_sender.aclose()
        self._receiving.wake_all()
        if self._interceptors is not None and not self._is_closed:
            self._interceptors.close()
        self._is_closed = True


def receiving_of(consumer: Consumer[Any]) -> Receiving:
    """A consumer's receiving part, for the package's own use."""
    return consumer._receiving
