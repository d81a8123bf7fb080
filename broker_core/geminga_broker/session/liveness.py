"""Whether a connection's peer is alive (spec PR-12)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from geminga_protocol.commands import connection
from geminga_runtime.logs import FewLines
from geminga_runtime.stream import FramedStream

_log = logging.getLogger(__name__)
_few = FewLines(_log)
_SILENT = "address=%s dropped: silent for %g s, or no CONNECT"

PONGS_PER_INTERVAL = 3
"""PONGs in a keep-alive interval for a client that isn't read: its PINGs aren't answered, and
without PONGs it would close the connection.
"""


class Liveness:
    """When the peer last sent something. A peer that isn't read, because it is at its bounds,
    counts as alive while it takes some of the bytes that are queued for it.
    """

    def __init__(self, stream: FramedStream) -> None:
        self.reading = True
        self.heard_s = trio.current_time()
        self._stream = stream
        self._held_back = False
        self._listening: trio.Event | None = None
        self._taken_bytes = 0
        self._took_s = self.heard_s
        """When `keep_alive` last saw that the peer takes queued bytes, or that none are queued."""

    def heard(self) -> None:
        """The peer sent something."""
        self.heard_s = trio.current_time()
        if self._listening is not None:
            self._listening.set()
            self._listening = None

    def pause(self, *, held_back: bool = False) -> None:
        """Reading stops; with `held_back`, the peer gets unsolicited PONGs."""
        self.reading = False
        self._held_back = self._held_back or held_back

    def resume(self) -> None:
        """Reading continues."""
        self.reading = True
        self.heard()

    async def keep_alive(self, interval_s: float, connected: Callable[[], bool]) -> None:
        """Ping every interval; return when the peer was silent for two intervals, or did not send
        CONNECT within the first (PulsarHandler.handleKeepAliveTimeout). A peer that isn't read
        counts as silent only if it also took no queued bytes.
        """
        limit_s = 2 * interval_s
        stream = self._stream
        while True:
            for _ in range(PONGS_PER_INTERVAL):
                due_s = trio.current_time() + interval_s / PONGS_PER_INTERVAL
                await trio.sleep_until(due_s)
                self._forgive(due_s)
                self._look_at_writes()
                if self._held_back and stream.writable:
                    self._held_back = not self.reading
                    stream.write(connection.PONG)
            now_s = trio.current_time()
            silent = now_s - self.heard_s >= limit_s
            if not connected() or (silent and (self.reading or now_s - self._took_s >= limit_s)):
                break
            stream.write(connection.PING)

    def tell_silent(self, interval_s: float) -> None:
        """Log that the connection is dropped after `keep_alive`, but for many in few lines."""
        _few.info(_SILENT, self._stream.name, 2 * interval_s)

    def _forgive(self, due_s: float) -> None:
        """Don't count time in which this process was stopped (SIGSTOP, a paused machine) as
        silence: frames of that time may not be read yet.
        """
        now_s = trio.current_time()
        self.heard_s = min(now_s, self.heard_s + now_s - due_s)
        self._took_s = min(now_s, self._took_s + now_s - due_s)

    def _look_at_writes(self) -> None:
        stream = self._stream
        if not stream.pending_bytes or stream.sent_bytes != self._taken_bytes:
            self._taken_bytes = stream.sent_bytes
            self._took_s = trio.current_time()

    async def is_alive(self, timeout_s: float) -> bool:
        """Ping the peer; drop a connection that stays silent for the timeout
        (ServerCnx.checkConnectionLiveness).
        """
        stream = self._stream
        if not stream.lost and self.reading and timeout_s > 0:
            if self._listening is None:
                self._listening = trio.Event()
            stream.write(connection.PING)
            with trio.move_on_after(timeout_s) as scope:
                await self._listening.wait()
            if scope.cancelled_caught and self.reading:
                _log.info("address=%s dropped: no answer to PING", stream.name)
                stream.abort("the peer does not answer")
        return not stream.lost
