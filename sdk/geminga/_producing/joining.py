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
    once, and in the client's memory; its numbers, the outbox's among them, are brought up to date
    when it closes, which everything does that changes or reads them.
    """

    __slots__ = (
        "_batch",
        "_end",
        "_first",
        "_granted_bytes",
        "_left_bytes",
        "_memory",
        "_payloads",
    )

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._batch = _NONE
        self._payloads: list[bytes] = []
        self._first = self._end = 0
        """Number of messages in the batch when it opened, and when no more may join."""
        self._granted_bytes = self._left_bytes = 0

    def open(self, batch: Outgoing, messages: int, size_bytes: int) -> None:
        """Let so many messages join, of less than `size_bytes` together. Only while it is closed,
        and for a batch of payloads alone.
        """
        self._batch = batch
        self._payloads = batch.payloads
        self._first = len(batch.payloads)
        self._end = self._first + messages
        self._granted_bytes = self._left_bytes = size_bytes

    @trio.lowlevel.enable_ki_protection
    def join(self, data: bytes) -> Receipt | None:
        """Add a message; None, without effect, if it is closed or the message doesn't fit."""
        payloads = self._payloads
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
        return Receipt(self._batch, index)

    @property
    def joined(self) -> tuple[int, int]:
        """Messages that joined since it opened, and their bytes. Any thread may ask."""
        # Each step may see a later state than the one before, from another thread.
        count = len(self._payloads) - self._first
        return max(0, count), max(0, self._granted_bytes - self._left_bytes)

    @property
    def cost_bytes(self) -> int:
        """Their bytes, each message counted as 1 KiB at least."""
        count, size_bytes = self.joined
        return max(size_bytes, count << 10)

    def close(self) -> tuple[int, int]:
        """`joined`; no more may join."""
        found = self.joined
        self._batch = _NONE
        self._payloads = []
        self._first = self._end = self._granted_bytes = self._left_bytes = 0
        return found
