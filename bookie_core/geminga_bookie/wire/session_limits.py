"""Bounds of a bookie's connections (spec BK-09)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import trio

from geminga_bookie.metrics.server import ServerMetrics
from geminga_bookie.port import BookiePort
from geminga_bookie.wire.answers import WaitingAnswers
from geminga_bookie.wire.unfinished import UnfinishedFrames
from geminga_bookie.wire.waiting import EntryWaits
from geminga_protocol.bookkeeper.framing import FRAME_BYTES_MAX_DEFAULT
from geminga_runtime.waiters import Wakeup

MiB = 1024 * 1024

REQUESTS_AT_ONCE = 256
"""Requests, but adds, that begin in one turn of the scheduler, of all connections."""

WAIT_BYTES = 10 * 1024
"""What a read that waits for an entry is reckoned with, of ledgers with one such read each."""


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
    queued_requests_max: int = 256
    """Requests, but adds, that have not begun; above it nothing is read."""
    waiting_reads_max: int = 1_000
    """Reads that wait for an entry; above it they are answered ETOOMANYREQUESTS."""
    wait_max_s: float = 60.0
    """The longest time that such a read waits, whatever it asks for."""
    read_bytes_max: int = MiB
    """Bytes of entries that are read before their answers are sent."""
    write_timeout_s: float = 60.0
    """A client that takes no answer for so long loses its connection."""
    drop_after_s: float | None = None
    """Answers to a client that takes none for so long are dropped (Apache's
    waitTimeoutOnResponseBackpressureMs).
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


class Pace:
    """So many requests begin in one turn of the scheduler. The owner runs `run` in a task."""

    def __init__(self, at_once: int) -> None:
        self._at_once = self._left = at_once
        self._waiting: deque[trio.Event] = deque()
        self._used = Wakeup()

    async def begin(self) -> None:
        """Return when one more may begin."""
        self._used.set()
        if self._left > 0 and not self._waiting:
            self._left -= 1
            await trio.lowlevel.checkpoint()
            return
        event = trio.Event()
        self._waiting.append(event)
        await event.wait()

    async def run(self) -> None:
        """Let others begin in each turn, for ever."""
        while True:
            await self._used.wait()
            self._left = self._at_once
            while self._waiting and self._left:
                self._left -= 1
                self._waiting.popleft().set()
            if self._waiting:
                self._used.set()


class Shared:
    """What the connections of one bookie share; the owner runs `run` in a task."""

    def __init__(
        self,
        bookie: BookiePort,
        *,
        unanswered_bytes_max: int = 256 * MiB,
        unfinished_bytes_max: int = 256 * MiB,
        waiting_bytes_max: int = 40 * MiB,
        answers_bytes_max: int = 256 * MiB,
    ) -> None:
        self.budget = SharedBudget(unanswered_bytes_max)
        self.frames = UnfinishedFrames(unfinished_bytes_max)
        self.waits = EntryWaits(bookie, max(waiting_bytes_max // WAIT_BYTES, 1))
        self.answers = WaitingAnswers(answers_bytes_max)
        self.turns = trio.Lock()
        """Held by the one connection that has much to parse, for a turn of the scheduler."""
        self.pace = Pace(REQUESTS_AT_ONCE)
        self.metrics = ServerMetrics()

    async def run(self) -> None:
        """What goes on beside the connections, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.waits.run)
            nursery.start_soon(self.answers.run)
            nursery.start_soon(self.pace.run)
