"""Frames that aren't whole yet, of all connections of a bookie (spec BK-09).

Each connection has a fair share of a quarter of the bound. It reads no more than that at a time,
and while all of them hold less than a quarter, as often as it likes. When they hold more, a
connection above its share waits its turn, which is given for all that its frame lacks, out of
another quarter. So frames become whole one after the other, and whoever sends small ones feels
nothing. A frame that doesn't become whole in its turn loses its connection; so does one that would
wait for a turn and whose client isn't authenticated.
"""

from __future__ import annotations

import logging
from collections import deque

import trio

from geminga_protocol.bookkeeper.framing import FrameCutter
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import RECEIVE_BYTES, FramedStream

_log = logging.getLogger(__name__)

SHARE_BYTES_MIN = 4096
FRAME_PATIENCE_S = 10.0
"""Time of a turn: a frame that isn't whole then loses its connection."""


class UnfinishedFrames:
    """Counts the bytes of all connections."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.connections = 0
        self._quarter = bytes_max // 4
        self._turns_bytes = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether connections must keep to their shares."""
        return self.bytes >= self._quarter

    @property
    def share(self) -> int:
        """Bytes that a connection may hold without a turn, and read at a time."""
        return max(self._quarter // max(self.connections, 1), SHARE_BYTES_MIN)

    async def take_turn(self, size: int) -> None:
        """Wait until a frame that lacks `size` bytes may become whole. Give the turn back."""
        if not self._waiting and self._fits(size):
            self._turns_bytes += size
            return
        turn = size, trio.Event()
        self._waiting.append(turn)
        try:
            await turn[1].wait()
        except trio.Cancelled:
            if turn[1].is_set():
                self.give_back(size)
            else:
                self._waiting.remove(turn)
            raise

    def give_back(self, size: int) -> None:
        """The turn is over."""
        self._turns_bytes -= size
        while self._waiting and self._fits(self._waiting[0][0]):
            size, event = self._waiting.popleft()
            self._turns_bytes += size
            event.set()

    def _fits(self, size: int) -> bool:
        return not self._turns_bytes or self._turns_bytes + size <= self._quarter


class FrameReceiver:
    """Cuts one connection's bytes into frames. Close it."""

    def __init__(
        self,
        stream: FramedStream,
        frame_bytes_max: int,
        frames: UnfinishedFrames,
        *,
        may_wait: bool = True,
    ) -> None:
        """A client that may not wait loses its connection where others wait for a turn."""
        self._may_wait = may_wait
        self._stream = stream
        self._frames = frames
        frames.connections += 1
        self._cutter = FrameCutter(frame_bytes_max)
        self._held = 0
        self._turn_bytes = 0
        self._turn_left_s = 0.0

    def allow(self, frame_bytes_max: int) -> None:
        """Set the bound of the next frames, which may wait for a turn."""
        self._may_wait = True
        self._cutter.frame_bytes_max = frame_bytes_max

    @property
    def held_bytes(self) -> int:
        """Bytes behind the frames that `receive` returned."""
        return self._held

    async def receive(self) -> tuple[bytes, list[int]] | None:
        """A buffer and the bounds of the frames in it, perhaps none; None at the end. Raises
        ConnectionLost, and WireError instead of frames behind one that is too long.
        """
        if self._cutter.failure is not None:
            raise self._cutter.failure
        data = await (self._read_more() if self._held else self._stream.receive(self._room()))
        if not data:
            return None
        found = self._cutter.feed(data)
        if len(found[1]) > 1:
            self._end_turn()
        before, self._held = self._held, self._cutter.buffered
        self._frames.bytes += self._held - before
        return found

    def close(self) -> None:
        """Give back what is held; once."""
        self._end_turn()
        self._frames.bytes -= self._held
        self._frames.connections -= 1

    def _room(self) -> int:
        """Bytes to read now."""
        if self._turn_bytes:
            return self._cutter.missing
        share = self._frames.share
        if self._frames.is_full:
            share = max(share - self._held, 1)
        return min(share, RECEIVE_BYTES)

    async def _read_more(self) -> bytes:
        """More of an unfinished frame."""
        frames = self._frames
        while True:
            if not self._turn_bytes and frames.is_full and self._held >= frames.share:
                if not self._may_wait:
                    raise self._lost(f"{self._held} bytes of a frame before authentication")
                missing = self._cutter.missing
                await frames.take_turn(missing)
                self._turn_bytes, self._turn_left_s = missing, FRAME_PATIENCE_S
            if self._turn_bytes and self._turn_left_s <= 0:
                raise self._lost(f"{self._held} bytes of a frame that does not become whole")
            began = trio.current_time()
            data: bytes | None = None
            with trio.move_on_after(self._turn_left_s if self._turn_bytes else FRAME_PATIENCE_S):
                data = await self._stream.receive(self._room())
            self._turn_left_s -= trio.current_time() - began
            if data is not None:
                return data

    def _lost(self, why: str) -> ConnectionLost:
        """The error of a connection that is closed."""
        _log.warning("%s: closed: %s", self._stream.name, why)
        self._stream.abort(why)
        return ConnectionLost(f"{self._stream.name}: {why}")

    def _end_turn(self) -> None:
        if self._turn_bytes:
            size, self._turn_bytes = self._turn_bytes, 0
            self._frames.give_back(size)
