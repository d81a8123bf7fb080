"""Waiting for messages and taking them (spec SDK-20).

Cancellation loses no message: messages are taken out of the inbox only after the last checkpoint,
and returned at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import trio

from geminga._acknowledging.ack_runs import MessageOrId, Run
from geminga._consuming.inbox import Inbox
from geminga._consuming.partition_consumer import PartitionConsumer
from geminga._consuming.parts import ConsumerParts
from geminga._consuming.subscribe import Subscription
from geminga._entries.entry import Entry
from geminga._options.arguments import duration, positive_count
from geminga.entry_batch import EntryBatch
from geminga.errors import AlreadyClosedError, InvalidArgumentError, OperationTimeoutError
from geminga.message import Message

RECEIVES_BETWEEN_CHECKPOINTS = 200
"""`receive` yields to the event loop after this number of available messages."""
MESSAGES_MAX = 1000
"""Default bound of the messages of a `receive_batch`."""
BYTES_MAX = 10 * 1024 * 1024
"""Default bound of its bytes."""


class BatchLimits(NamedTuple):
    """Limits of one `receive_batch`."""

    messages_max: int
    bytes_max: float
    wait_s: float
    fills: bool
    """Whether to wait until one of the limits is reached."""


class Receiving:
    """Callers that wait for messages of an inbox. `parts` are set before the first wait."""

    parts: ConsumerParts

    def __init__(self, inbox: Inbox, subscription: Subscription) -> None:
        self.inbox = inbox
        self.subscription = subscription
        self.is_listened = False
        """Whether only a listener's workers receive."""
        self.is_closed = False
        self._lot = trio.lowlevel.ParkingLot()
        self._batch_lot = trio.lowlevel.ParkingLot()
        self._is_waited_for = False
        self._since_checkpoint = 0

    def notify(self, messages: int) -> None:
        """Messages were added; with 0, a part ended or must be requested again."""
        if not messages:
            self.parts.settle()
            self.wake_all()
        elif self._is_waited_for:
            self._lot.unpark(count=messages)
            self._batch_lot.unpark_all()
            self._is_waited_for = bool(self._lot)

    def wake_all(self) -> None:
        """Wake all waiters."""
        self._lot.unpark_all()
        self._batch_lot.unpark_all()

    async def next(self) -> Message:
        """A message for a listener's worker; suspends as `Consumer.receive` does."""
        if self._since_checkpoint < RECEIVES_BETWEEN_CHECKPOINTS:
            message = self.inbox.take()
            if message is not None:
                self._since_checkpoint += 1
                return message
        self._since_checkpoint = 0
        return await self.wait_and_take(None)

    async def wait_and_take(self, timeout_s: float | None) -> Message:
        """The next message. Raises OperationTimeoutError, and the error that ended the consumer."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(math.inf if timeout_s is None else timeout_s):
            await self._wait_for_message()
        message = self.inbox.take()
        if message is None:
            self.parts.check()
            raise OperationTimeoutError(f"no message within {timeout_s} s")
        return message

    async def _wait_for_message(self) -> None:
        while not self.inbox.messages:
            self.parts.check()
            self.parts.demand()
            self._is_waited_for = True
            await self._lot.park()

    async def receive_some(
        self, messages_max: int, bytes_max: float, timeout_s: float
    ) -> list[Message]:
        """Wait for a message, and take all available ones."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(timeout_s):
            await self._wait_for_message()
        if not self.inbox.messages:
            self.parts.check()
        return self.inbox.take_many(messages_max, bytes_max)

    async def receive_entries(self, bytes_max: float, timeout_s: float | None) -> list[EntryBatch]:
        """Wait for an entry, and take all available ones; empty after the timeout."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(math.inf if timeout_s is None else timeout_s):
            await self._wait_for_message()
        if not self.inbox.messages:
            self.parts.check()
        return self.inbox.take_entries(bytes_max)

    async def receive_batch(
        self, messages_max: int, bytes_max: float, timeout_s: float
    ) -> list[Message]:
        """Wait until there are enough messages or the time is over, and take them."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(timeout_s):
            while self.parts.error is None and not self.inbox.has(messages_max, bytes_max):
                self.parts.top_up()
                self._is_waited_for = True
                await self._batch_lot.park()
        if not self.inbox.messages:
            self.parts.check()
        return self.inbox.take_many(messages_max, bytes_max)

    def refuse_beside_listener(self) -> None:
        """Raises InvalidArgumentError if there is a listener."""
        if self.is_listened:
            raise InvalidArgumentError("all messages go to message_listener")

    def batch_limits(
        self, max_messages: int | None, max_bytes: int | None, wait_s: float | None
    ) -> BatchLimits:
        """The arguments of a `receive_batch`; for None the subscription's policy. Raises
        InvalidArgumentError.
        """
        for value, name in ((max_messages, "max_messages"), (max_bytes, "max_bytes")):
            if value is not None:
                positive_count(value, name)
        if wait_s is not None:
            duration(wait_s, "wait_s")
        messages_max: int
        bytes_max, most_s = float(BYTES_MAX), math.inf
        policy, queue_size = (
            self.subscription.options.batch_receive_policy,
            self.subscription.queue_size,
        )
        if policy is None:
            messages_max = max_messages or MESSAGES_MAX
        elif not queue_size:
            raise InvalidArgumentError("batch_receive_policy needs a receiver_queue_size above 0")
        else:
            messages_max, bytes_max, most_s = policy.limits(queue_size)
            messages_max = min(max_messages or messages_max, queue_size)
        self.refuse_beside_listener()
        return BatchLimits(
            messages_max,
            bytes_max if max_bytes is None else max_bytes,
            most_s if wait_s is None else wait_s,
            policy is not None,
        )

    # ---- messages' partitions ----

    def source_of(self, message: MessageOrId) -> PartitionConsumer:
        """The partition of a message. Raises InvalidArgumentError for another consumer's."""
        if isinstance(message, Message):
            source = message._entry.source
            if isinstance(source, PartitionConsumer) and source.inbox is self.inbox:
                return source
            raise InvalidArgumentError("message: it was received by another consumer")
        return self.parts.of_id(message)

    def part_of(self, message: MessageOrId) -> PartitionConsumer:
        """`source_of` for an acknowledgement; also raises AlreadyClosedError."""
        part = self.source_of(message)
        if self.is_closed:
            raise AlreadyClosedError(
                "the consumer is closed: the message will be redelivered", topic=part.topic
            )
        return part

    def runs(self, messages: Iterable[MessageOrId]) -> list[Run]:
        """Consecutive messages of an entry, grouped. Raises errors of `part_of`; any thread may
        call this.
        """
        runs: list[Run] = []
        entry: Entry | None = None
        indexes: list[int] = []
        for message in messages:
            if isinstance(message, Message):
                if message._entry is entry:
                    indexes.append(message._index)
                    continue
                entry = message._entry
                indexes = [message._index]
            else:
                entry = None
                indexes = []
            runs.append((self.part_of(message), message, indexes))
        return runs
