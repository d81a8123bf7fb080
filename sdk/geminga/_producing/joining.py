"""Messages that join the open batch: what `submit` does for each of them (spec SDK-04)."""

from __future__ import annotations

from typing import Protocol

import trio

from geminga._producing.receipt import Outgoing, Receipt


class Memory(Protocol):
    """Bytes of pending messages, over all producers of a client."""

    used_bytes: int
    limit_bytes: int


_NONE = Outgoing(0.0)


class Joining:
    """The open batch, for as many messages with a payload only as may join it unseen.

    Bounds are turned into two numbers when it opens. What joined is in the batch's `payloads` at
    once, and in the client's memory; the outbox's other numbers are brought up to date when it
    closes, which everything does that changes the batch.
    """

    __slots__ = (
        "_batch",
        "_end",
        "_granted_bytes",
        "_left_bytes",
        "_memory",
        "_payloads",
        "cost_bytes",
        "first",
    )

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._batch = _NONE
        self._payloads: list[bytes] = []
        self.first = 0
        """Number of messages in the batch when it opened; 0 while it is closed."""
        self._end = 0
        """Number of messages at which no more may join."""
        self._granted_bytes = self._left_bytes = 0
        self.cost_bytes = 0
        """Bytes of what joined until it closed, each message counted as 1 KiB at least. Who has
        taken them into account makes it 0.
        """

    def open(self, batch: Outgoing, messages: int, size_bytes: int) -> None:
        """Let so many messages join, of less than `size_bytes` together. Only while it is closed,
        and for a batch of payloads alone, which has some.
        """
        self._batch = batch
        self._payloads = batch.payloads
        self.first = len(batch.payloads)
        self._end = self.first + messages
        self._granted_bytes = self._left_bytes = size_bytes

    @trio.lowlevel.enable_ki_protection
    def join(self, data: bytes) -> Receipt | None:
        """Add a message; None, without effect, if it is closed or the message doesn't fit."""
        payloads = self._payloads
        batch = self._batch
        index = len(payloads)
        size_bytes = len(data)
        left_bytes = self._left_bytes - size_bytes
        memory = self._memory
        used_bytes = memory.used_bytes
        if index >= self._end or left_bytes <= 0 or used_bytes >= memory.limit_bytes:
            return None
        self._left_bytes = left_bytes
        memory.used_bytes = used_bytes + size_bytes
        payloads.append(data)
        return Receipt(batch, index)

    @property
    def messages(self) -> int:
        """How many joined since it opened."""
        return len(self._payloads) - self.first

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return self._granted_bytes - self._left_bytes

    def close(self) -> None:
        """Let no more join, and forget what did."""
        self.cost_bytes += max(self.size_bytes, self.messages << 10)
        self._batch = _NONE
        self._payloads = []
        self.first = self._end = self._granted_bytes = self._left_bytes = 0
