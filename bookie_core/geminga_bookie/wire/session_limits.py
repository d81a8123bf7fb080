"""Bounds of a bookie's connections (spec BK-09)."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from geminga_protocol.bookkeeper.framing import FRAME_BYTES_MAX_DEFAULT

MiB = 1024 * 1024


@dataclass(frozen=True)
class SessionLimits:
    """Bounds of one connection."""

    frame_bytes_max: int = FRAME_BYTES_MAX_DEFAULT
    """Apache's nettyMaxFrameSizeBytes."""
    unanswered_bytes_max: int = 32 * MiB
    """Bytes of adds that are not answered; above it nothing is read."""
    unanswered_requests_max: int = 20_000
    """Requests that are not answered, without those below; above it nothing is read (Apache's
    maxAddsInProgressLimit and maxReadsInProgressLimit).
    """
    waiting_reads_max: int = 1_000
    """Reads that wait for an entry; above it they are answered ETOOMANYREQUESTS."""
    wait_max_s: float = 60.0
    """The longest time that such a read waits, whatever it asks for."""
    read_bytes_max: int = MiB
    """Bytes of entries that are read before their answers are sent."""
    write_timeout_s: float = 60.0
    """A client that takes no answer for so long loses its connection (Apache's
    waitTimeoutOnResponseBackpressureMs drops the answers).
    """


class SharedBudget:
    """Counts bytes of adds of all connections that are not answered."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._released = trio.Event()

    def take(self, size: int) -> None:
        """More bytes; also above the bound, by what one read brings."""
        self.bytes += size

    def release(self, size: int) -> None:
        """As many less."""
        was_full = self.bytes >= self.bytes_max
        self.bytes -= size
        if was_full and self.bytes < self.bytes_max:
            released, self._released = self._released, trio.Event()
            released.set()

    async def room(self) -> None:
        """Wait until the count is below the bound."""
        while self.bytes >= self.bytes_max:
            await self._released.wait()
