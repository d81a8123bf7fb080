"""Bounds of one partition's pending messages (spec SDK-01; ProducerImpl.canEnqueueRequest)."""

from __future__ import annotations

import trio

from geminga._connection.core import Core
from geminga._entries.encode import Encoder
from geminga._producing.outbox import Outbox
from geminga.errors import (
    GemingaError,
    MemoryLimitError,
    MessageTooBigError,
    ProducerQueueFullError,
)
from geminga.options import ProducerOptions


class SendingRoom:
    """The bounds of pending messages: their number in this producer, their bytes in the client."""

    def __init__(
        self, core: Core, topic: str, options: ProducerOptions, encoder: Encoder, outbox: Outbox
    ) -> None:
        self.topic = topic
        self.outbox = outbox
        self.joining = outbox.joining
        self.error: GemingaError | None = None
        """The error that ended the producer."""
        self._core = core
        self._options = options
        self._encoder = encoder
        self._pending_max = options.max_pending_messages
        self._memory = core.memory
        self._room = trio.lowlevel.ParkingLot()
        self._is_waited_for = False

    def check_room(self, size_bytes: int) -> None:
        """Raises ProducerQueueFullError, MemoryLimitError, or the error that ended the producer."""
        self._check(size_bytes)
        if self.outbox.pending_messages >= self._pending_max:
            raise ProducerQueueFullError(
                f"{self._pending_max} messages wait for their receipts", topic=self.topic
            )
        if not self._core.memory.has_room:
            raise MemoryLimitError(
                f"{self._core.memory.used_bytes} bytes of messages are pending", topic=self.topic
            )

    async def wait_for_room(self, size_bytes: int) -> None:
        """Wait until a message may be added. Raises the error that ended the producer."""
        memory = self._core.memory
        try:
            while True:
                self._check(size_bytes)
                if self.outbox.pending_messages >= self._pending_max:
                    self._is_waited_for = True
                    await self._room.park()
                elif not memory.has_room:
                    await memory.wait_for_room()
                else:
                    return
        except BaseException:
            # It may not use the room that it was woken for: wake the next waiter.
            self._room.unpark()
            raise

    def has_room(self) -> bool:
        """Whether a message may be added without waiting."""
        memory = self._memory
        return (
            self.outbox.pending_messages < self._pending_max
            and memory.used_bytes < memory.limit_bytes
            and self.error is None
        )

    @trio.lowlevel.enable_ki_protection
    def let_join(self, size_bytes: int) -> None:
        """Let messages with a payload only join the open batch, while all bounds hold: at most so
        many bytes, each message counted as 1 KiB at least.
        """
        outbox = self.outbox
        if outbox.open_batch is not None and self.error is None:
            messages = min(size_bytes >> 10, self._pending_max - outbox.pending_messages)
            outbox.let_join(messages, min(size_bytes, self._encoder.max_message_size_bytes))

    @trio.lowlevel.enable_ki_protection
    def stop_joining(self) -> int:
        """Let no more messages join; returns the bytes of those that did since the last call, each
        message counted as 1 KiB at least.
        """
        self.outbox.note_joined()
        cost_bytes, self.joining.cost_bytes = self.joining.cost_bytes, 0
        return cost_bytes

    def _check(self, size_bytes: int) -> None:
        self._core.check_fork(self.topic)
        if self.error is not None:
            error = self.error
            raise type(error)(str(error), code=error.code, topic=self.topic)
        self.check_size(size_bytes)

    def check_size(self, size_bytes: int) -> None:
        """Raises MessageTooBigError."""
        limit = self._encoder.max_message_size_bytes
        shrinks = self._options.compression_type or self._encoder.chunking
        if size_bytes > limit and not shrinks:
            raise MessageTooBigError(
                f"message of {size_bytes} bytes is above the broker's limit of {limit} bytes",
                topic=self.topic,
            )
