"""How much one partition's producer may take in (spec SDK-01; ProducerImpl.canEnqueueRequest)."""

from __future__ import annotations

import trio

from geminga._connection.core import Core
from geminga._entries.encode import Encoder
from geminga._producing.outbox import Outbox
from geminga._producing.receipt import Receipt
from geminga.errors import (
    GemingaError,
    MemoryLimitError,
    MessageTooBigError,
    ProducerQueueFullError,
)
from geminga.options import ProducerOptions


class SendingRoom:
    """The bounds of what is pending: messages of this producer, bytes of the whole client."""

    def __init__(
        self, core: Core, topic: str, options: ProducerOptions, encoder: Encoder, outbox: Outbox
    ) -> None:
        self.topic = topic
        self.outbox = outbox
        self.error: GemingaError | None = None
        """Why nothing can be sent any more."""
        self._core = core
        self._options = options
        self._encoder = encoder
        self._pending_max = options.max_pending_messages
        self._memory = core.memory
        self._room = trio.lowlevel.ParkingLot()
        self._is_waited_for = False

    def check_room(self, size_bytes: int) -> None:
        """Raises ProducerQueueFullError, MemoryLimitError, or why nothing can be sent any more."""
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
        """Until a message may be added. Raises why nothing can be sent any more."""
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
            # It may have been woken for a place that it doesn't take: the next one looks.
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
    def join(self, data: bytes) -> Receipt | None:
        """Take in a message that has nothing but a payload, if there is room and a batch is open
        and stays so; else None, and nothing is done.
        """
        size_bytes = len(data)
        outbox = self.outbox
        memory = self._memory
        # As `has_room`, without a call: this stands on the hot path.
        if (
            size_bytes > self._encoder.max_message_size_bytes
            or outbox.pending_messages >= self._pending_max
            or memory.used_bytes >= memory.limit_bytes
            or self.error is not None
        ):
            return None
        receipt = outbox.join(data)
        if receipt is not None:
            memory.used_bytes += size_bytes
        return receipt

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
