"""Receiving messages (spec SDK-20 to SDK-24, SDK-26 in part, SDK-27)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TypeAlias

import trio

from geminga._core import Core
from geminga._discovery import Discovery
from geminga._inbox import Inbox
from geminga._letterbox import Letterbox
from geminga._partition_consumer import PartitionConsumer
from geminga._subscribe import Subscription
from geminga._together import ABANDON_TIMEOUT_S, together
from geminga.errors import AlreadyClosed, GemingaError, InvalidArgument, Timeout, TopicNotFound
from geminga.message import Message
from geminga_protocol.message_id import MessageId

RECEIVES_BETWEEN_CHECKPOINTS = 200
"""`receive` lets the event loop turn after that many messages that were there already."""

logger = logging.getLogger("geminga")
MessageOrId: TypeAlias = Message | MessageId


class Consumer:
    """Receives the messages of a subscription, over all partitions of its topics. Made by
    `Client.subscribe`.

    Messages come in order within a partition. A message must be acknowledged, or it comes again:
    after a negative acknowledgement, or when the consumer is connected again. A `receive` that is
    cancelled loses no message.
    """

    def __init__(
        self,
        core: Core,
        subscription: Subscription,
        partitions: list[tuple[str, int]],
        letterbox: Letterbox | None = None,
        discovery: Discovery | None = None,
    ) -> None:
        """`partitions` are full topic names with their partition index, -1 for none."""
        self._core = core
        self._subscription = subscription
        self._inbox = Inbox()
        self._lot = trio.lowlevel.ParkingLot()
        self._is_waited_for = False
        self._since_checkpoint = 0
        self._error: GemingaError | None = None
        self._letterbox = letterbox
        self._discovery = discovery
        self._receipts = subscription.options.ack_receipt_enabled
        self._parts = [self._make(subscription, *each) for each in partitions]

    def _make(self, subscription: Subscription, topic: str, index: int) -> PartitionConsumer:
        return PartitionConsumer(
            self._core, topic, index, subscription, self._inbox, self._notify, self._letterbox
        )

    def __repr__(self) -> str:
        return f"<Consumer {self.consumer_name!r} of {self.subscription_name} on {self.topics}>"

    @property
    def topics(self) -> list[str]:
        """Full names of the topics, each partition by itself."""
        return [part.topic for part in self._parts]

    @property
    def subscription_name(self) -> str:
        """Name of the subscription."""
        return self._subscription.name

    @property
    def consumer_name(self) -> str:
        """The name that the program gave, or one made up."""
        return self._subscription.consumer_name

    @property
    def is_connected(self) -> bool:
        """Whether the brokers of all partitions know the consumer now."""
        return all(part.is_connected for part in self._parts)

    @property
    def reached_end_of_topic(self) -> bool:
        """Whether all topics are terminated and everything in them was delivered."""
        return bool(self._parts) and all(part.events.reached_end for part in self._parts)

    async def _start(self) -> None:
        """Until all partitions know it. Raises the first GemingaError; then none is left over."""
        try:
            await together(part.start for part in self._parts)
        except BaseException:
            with trio.move_on_after(ABANDON_TIMEOUT_S, shield=True):
                await self.aclose()
            raise
        if self._discovery is not None:
            self._discovery.start(self._update)

    async def _update(self, found: list[tuple[str, int]]) -> None:
        """Be on these topics and partitions too, and with a pattern no more on others."""
        if self._discovery is not None and self._discovery.pattern is not None:
            wanted = dict(found)
            gone = [part for part in self._parts if part.topic not in wanted]
            self._parts = [part for part in self._parts if part.topic in wanted]
            await together(part.aclose for part in gone)
        known = {part.topic for part in self._parts}
        new = [each for each in found if each[0] not in known]
        total_max = self._subscription.options.receiver_queue_total_max
        share = max(1, total_max // max(1, len(known) + len(new)))
        subscription = self._subscription.for_later(min(self._subscription.queue_size, share))
        for topic, index in new:
            part = self._make(subscription, topic, index)
            try:
                await part.start()
            except GemingaError as error:
                # It is tried again when topics are looked for the next time.
                logger.warning("%s: %s", topic, error)
            else:
                self._parts.append(part)

    def _notify(self, messages: int) -> None:
        if messages:
            if self._is_waited_for:
                self._lot.unpark(count=messages)
                self._is_waited_for = bool(self._lot)
            return
        if self._discovery is not None and self._discovery.pattern is not None:
            # A topic that was deleted.
            self._parts = [p for p in self._parts if not isinstance(p.error, TopicNotFound)]
        for part in self._parts:
            self._error = self._error or part.error
        self._lot.unpark_all()

    # ---- receiving ----

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message.

        Raises Timeout after `timeout_s` seconds, AlreadyClosed, and what ended the subscription. It
        suspends when there is no message and after every 200, not at each call.
        """
        if self._since_checkpoint < RECEIVES_BETWEEN_CHECKPOINTS:
            message = self._inbox.take()
            if message is not None:
                self._since_checkpoint += 1
                return message
        self._since_checkpoint = 0
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(math.inf if timeout_s is None else timeout_s):
            await self._wait_for_message()
        # Taken only now, with no checkpoint behind it: cancellation can't lose it.
        message = self._inbox.take()
        if message is None:
            self._check()
            raise Timeout(f"no message within {timeout_s} s")
        return message

    async def _wait_for_message(self) -> None:
        while not self._inbox.messages:
            self._check()
            for part in self._parts:
                part.flow.demand()
            self._is_waited_for = True
            await self._lot.park()

    def _check(self) -> None:
        if self._error is not None:
            error = self._error
            raise type(error)(str(error), code=error.code, topic=error.topic)

    async def receive_many(
        self,
        messages_max: int = 1000,
        *,
        bytes_max: int = 10 * 1024 * 1024,
        timeout_s: float | None = None,
    ) -> list[Message]:
        """Wait for a message, then take what is there, up to both limits (at least one message).

        An empty list after `timeout_s` seconds without any. Raises what `receive` does otherwise.
        """
        if messages_max < 1 or bytes_max < 1:
            raise InvalidArgument("messages_max and bytes_max must be above 0")
        self._since_checkpoint = 0
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(math.inf if timeout_s is None else timeout_s):
            await self._wait_for_message()
        if not self._inbox.messages:
            self._check()
        return self._inbox.take_many(messages_max, bytes_max)

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        """The next message; the iteration ends when the consumer is closed."""
        if self._since_checkpoint < RECEIVES_BETWEEN_CHECKPOINTS:
            message = self._inbox.take()
            if message is not None:
                self._since_checkpoint += 1
                return message
        try:
            return await self.receive()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    def pause(self) -> None:
        """Ask the broker for no more messages; what was asked for may still come."""
        for part in self._parts:
            part.flow.pause()

    def resume(self) -> None:
        """Ask for messages again."""
        for part in self._parts:
            part.flow.resume()

    # ---- acknowledging ----

    async def acknowledge(self, message: MessageOrId) -> None:
        """The message is done. Sent in groups; waits for the broker's receipt only if
        `ack_receipt_enabled`, and raises then what it says.
        """
        part = self._part_of(message)
        if isinstance(message, Message):
            part.acknowledger.acknowledge(message._entry, message._index)
        else:
            part.acknowledger.acknowledge_id(message)
        if self._receipts:
            await part.acknowledger.wait_for_receipt()

    async def acknowledge_many(self, messages: Iterable[MessageOrId]) -> None:
        """The messages are done: `acknowledge` for each, with one wait for receipts."""
        parts: dict[PartitionConsumer, None] = {}
        for message in messages:
            part = self._part_of(message)
            parts[part] = None
            if isinstance(message, Message):
                part.acknowledger.acknowledge(message._entry, message._index)
            else:
                part.acknowledger.acknowledge_id(message)
        if self._receipts:
            for part in parts:
                await part.acknowledger.wait_for_receipt()

    async def acknowledge_cumulative(self, message: MessageOrId) -> None:
        """The message and everything before it in its partition is done.

        Raises InvalidArgument on a Shared or Key_Shared subscription.
        """
        if self._subscription.options.consumer_type.is_shared:
            raise InvalidArgument(
                "acknowledge_cumulative needs an Exclusive or Failover subscription"
            )
        part = self._part_of(message)
        part.acknowledger.acknowledge_cumulative(_id_of(message))
        if self._receipts:
            await part.acknowledger.wait_for_receipt()

    def negative_acknowledge(self, message: MessageOrId) -> None:
        """The message isn't done: have it redelivered after `negative_ack_redelivery_delay_s`, or
        as `negative_ack_backoff` says. Its whole batch comes again, but for what is acknowledged.
        """
        count = message.redelivery_count if isinstance(message, Message) else 0
        self._part_of(message).acknowledger.refuse(_id_of(message), count)

    async def reconsume_later(
        self, message: Message, delay_s: float, *, properties: Mapping[str, str] | None = None
    ) -> None:
        """Have the message again after that many seconds: it is sent to the retry-letter topic,
        with those properties besides its own, and acknowledged. After the policy's
        `max_redeliver_count` times it goes to the dead-letter topic instead.

        Needs `retry_enabled`. Raises InvalidArgument, and the GemingaError with which it couldn't
        be sent: it isn't acknowledged then.
        """
        if not isinstance(message, Message):
            raise InvalidArgument(f"message must be a Message, not {message!r}")
        if not isinstance(delay_s, int | float) or not 0 <= delay_s < math.inf:
            raise InvalidArgument(f"delay_s must be a number from 0 on, not {delay_s!r}")
        self._part_of(message)
        if self._letterbox is None:
            raise InvalidArgument("reconsume_later needs retry_enabled")
        await self._letterbox.send_again(message, delay_s, properties or {})
        await self.acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Have everything redelivered that was received and not acknowledged."""
        for part in self._parts:
            part.redeliver(None)

    def _part_of(self, message: MessageOrId) -> PartitionConsumer:
        if isinstance(message, Message):
            source = message._entry.source
            if isinstance(source, PartitionConsumer) and source.inbox is self._inbox:
                return source
            raise InvalidArgument("the message was received by another consumer")
        if not isinstance(message, MessageId):
            raise InvalidArgument(f"a Message or MessageId is needed, not {message!r}")
        if len(self._parts) == 1:
            return self._parts[0]
        found = [part for part in self._parts if part.partition == message.partition]
        if len(found) != 1:
            raise InvalidArgument(
                f"{message!r} doesn't tell which topic it is of: give the message itself"
            )
        return found[0]

    # ---- asking and moving ----

    async def seek(self, to: MessageId | int | Callable[[str], MessageId | int | None]) -> None:
        """Move the subscription, in all partitions: to a message id, `MessageId.earliest` or
        `latest`, or to the first message published at or after a time in ms since 1970. A function
        is asked for each topic or partition by its full name; None leaves that where it is.

        With an id the next message is the one after it, or itself if `start_message_id_inclusive`.
        Everything received and not taken is dropped. Raises GemingaError.
        """
        if callable(to):
            places = [(part, to(part.topic)) for part in self._parts]
            moves = [(part, _checked(place)) for part, place in places if place is not None]
            await together(partial(part.seek, place) for part, place in moves)
            return
        _checked(to)
        parts = self._parts
        if isinstance(to, MessageId) and to.entry_id >= 0 and to.entry_id < (1 << 63) - 1:
            parts = [self._part_of(to)]
        await together(partial(part.seek, to) for part in parts)

    async def last_message_ids(self) -> list[MessageId]:
        """Id of the last message of each partition; -1:-1 for one without messages."""
        return [(await part.last_message_id())[0] for part in self._parts]

    async def has_message_available(self) -> bool:
        """Whether there is a message after those that were received."""
        for part in self._parts:
            if await part.has_message_available():
                return True
        return False

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription in all partitions, with `force` while others use it too, and
        close the consumer. Raises GemingaError.
        """
        for part in self._parts:
            await part.unsubscribe(force)
        await self.aclose()

    async def aclose(self) -> None:
        """Send the acknowledgements that wait, and leave. Idempotent. What was received and not
        acknowledged goes to other consumers, or comes again.
        """
        self._core.open.pop(self, None)
        self._error = self._error or AlreadyClosed("the consumer is closed")
        if self._discovery is not None:
            await self._discovery.stop()
        await together(part.aclose for part in self._parts)
        if self._letterbox is not None:
            await self._letterbox.aclose()
        self._lot.unpark_all()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _checked(to: MessageId | int) -> MessageId | int:
    """A place to seek to. Raises InvalidArgument."""
    if isinstance(to, bool) or not isinstance(to, MessageId | int):
        raise InvalidArgument(f"seek needs a MessageId or ms since 1970, not {to!r}")
    if isinstance(to, int) and to < 0:
        raise InvalidArgument("seek needs a time from 0 on")
    return to


def _id_of(message: MessageOrId) -> MessageId:
    return message.message_id if isinstance(message, Message) else message
