"""Answers that clients have not taken yet, of all connections of a bookie (spec BK-09; Apache's
waitTimeoutOnResponseBackpressureMs).

A request whose answer has entries reserves room before it is served, so that the bytes in memory
have a bound. While there is no room, it waits its turn, the first request of a connection that
holds nothing before others, and connections that don't take what waits for them are closed: one
client must not keep the others waiting.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

import trio

from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Wakeup

_log = logging.getLogger(__name__)

STALL_S = 2.0
"""While others wait for room, a connection must take a quarter of its answers in this time."""

SMALL_BYTES = 16 * 1024
"""Answers that a connection may have beside the bound: those without entries don't wait."""


class WaitingAnswers:
    """Counts the bytes of all connections; the owner runs `run` in a task."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        """Answers that no kernel has taken, and room that is reserved."""
        self.dropped = 0
        """Answers that were not sent."""
        self.closed = 0
        """Connections that were closed to make room."""
        self._bytes_max = bytes_max
        self._first: deque[tuple[int, trio.Event]] = deque()
        self._second: deque[tuple[int, trio.Event]] = deque()
        self._has_waiting = Wakeup()
        self._waits = 0
        self._holders: dict[Answers, None] = {}

    def __len__(self) -> int:
        """Requests that wait for room."""
        return len(self._first) + len(self._second)

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be reserved."""
        return self.bytes >= self._bytes_max

    def enter(self, holder: Answers) -> None:
        """One more connection."""
        self._holders[holder] = None

    def leave(self, holder: Answers) -> None:
        """It is gone; its bytes are given back before."""
        del self._holders[holder]

    def change(self, size: int) -> None:
        """So many bytes more, or less; never waits."""
        self.bytes += size
        while (waiting := self._first or self._second) and self._fits(waiting[0][0]):
            reserved, event = waiting.popleft()
            self.bytes += reserved
            event.set()

    async def reserve(self, size: int, held_bytes: int) -> int:
        """Wait until there is room; returns what is to be given back. `held_bytes` are those that
        the connection has already, or waits for.
        """
        size = min(size, self._bytes_max // 2)
        waiting = self._second if held_bytes > SMALL_BYTES else self._first
        if not self._first and not waiting and self._fits(size):
            self.bytes += size
            return size
        turn = size, trio.Event()
        waiting.append(turn)
        self._waits += 1
        self._has_waiting.set()
        try:
            await turn[1].wait()
        except trio.Cancelled:
            if turn[1].is_set():
                self.change(-size)
            else:
                waiting.remove(turn)
                self.change(0)
            raise
        return size

    def _fits(self, size: int) -> bool:
        return self.bytes + size <= self._bytes_max

    async def run(self) -> None:
        """Close connections that keep others waiting, for ever."""
        while True:
            await self._has_waiting.wait()
            waits = 0
            # Also where those that had to wait gave up soon.
            while len(self) or waits != self._waits:
                waits = self._waits
                before = [each.mark() for each in self._holders if each.stream.pending_bytes]
                await trio.sleep(STALL_S)
                self._close_stalled(before)

    def _close_stalled(self, before: list[Mark]) -> None:
        for mark in before:
            if mark.is_stalled():
                self.closed += 1
                mark.holder.close()


class Mark(NamedTuple):
    """What a connection had not taken at some time."""

    holder: Answers
    pending_bytes: int
    sent_bytes: int

    def is_stalled(self) -> bool:
        """Whether it has not taken a quarter of that since."""
        stream = self.holder.stream
        return not stream.lost and stream.sent_bytes - self.sent_bytes < self.pending_bytes // 4


class Answers:
    """Those of one connection. Leave when it ends."""

    def __init__(
        self,
        stream: FramedStream,
        waiting: WaitingAnswers,
        *,
        write_timeout_s: float,
        drop_after_s: float | None,
    ) -> None:
        self.stream = stream
        self.bytes = 0
        """As those of all connections."""
        self.drops = False
        """Whether answers were dropped since the client last took some."""
        self._waiting = waiting
        self._counted = 0
        self._asked = 0
        self._write_timeout_s = write_timeout_s
        self._drop_after_s = drop_after_s
        waiting.enter(self)
        stream.on_pending = self._settle

    def leave(self) -> None:
        """The connection ends: nothing of it counts any more."""
        self.stream.on_pending = None
        self._change(-self._counted)
        self._counted = 0
        self._waiting.leave(self)

    def mark(self) -> Mark:
        """What it has not taken now."""
        return Mark(self, self.stream.pending_bytes, self.stream.sent_bytes)

    def close(self) -> None:
        """Others need the room."""
        _log.warning("%s: closed: %d bytes of answers not taken", self.stream.name, self.bytes)
        self.stream.abort("the client takes no answers")

    def _settle(self) -> None:
        """The stream has more or less that the kernel has not taken."""
        pending = self.stream.pending_bytes
        change, self._counted = pending - self._counted, pending
        self._change(change)

    def _change(self, size: int) -> None:
        self.bytes += size
        self._waiting.change(size)

    async def writable(self) -> None:
        """Wait until the client takes answers, and they are few if those of all connections are
        many. Raises ConnectionLost.
        """
        stream = self.stream
        if not stream.writable:
            taken = trio.Event()
            stream.on_writable(taken.set)
            with trio.move_on_after(self._write_timeout_s) as waiting:
                await taken.wait()
            if waiting.cancelled_caught:
                stream.abort("the client takes no answers")
                raise ConnectionLost(f"{stream.name}: the client takes no answers")
        if self._waiting.is_full and stream.pending_bytes > SMALL_BYTES:
            self._waiting.change(-await self._waiting.reserve(SMALL_BYTES, self.bytes))

    async def may_answer(self, answers: int) -> bool:
        """Wait until the client takes answers; False if these are dropped instead. Raises
        ConnectionLost.
        """
        if self._drop_after_s is None:
            await self.writable()
        elif not self.stream.writable and not self.drops:
            taken = trio.Event()
            self.stream.on_writable(taken.set)
            with trio.move_on_after(self._drop_after_s):
                await taken.wait()
        return not self.is_dropped(answers)

    def is_dropped(self, answers: int) -> bool:
        """Whether answers are dropped now. Once some were, others don't wait again before the
        client takes answers.
        """
        if self.stream.writable or self._drop_after_s is None:
            self.drops = False
            return False
        self._drop(answers)
        return True

    def _drop(self, answers: int) -> None:
        self.drops = True
        self._waiting.dropped += answers

    async def reserve(self, size: int, answers: int) -> int:
        """Wait for room for answers to be read; returns what is to be given back, 0 if these are
        dropped instead.
        """
        reserved = 0
        wait_s = float("inf") if self._drop_after_s is None else self._drop_after_s
        held = self.bytes + self._asked
        self._asked += size
        try:
            with trio.move_on_after(wait_s):
                reserved = await self._waiting.reserve(size, held)
        finally:
            self._asked -= size
        if not reserved:
            self._drop(answers)
        self.bytes += reserved
        return reserved

    def give_back(self, reserved: int) -> None:
        """The answers are written, or there are none."""
        self._change(-reserved)
