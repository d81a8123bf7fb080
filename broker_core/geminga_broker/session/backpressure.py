"""The bounds of one connection: above them its socket is not read (spec PR-16, BR-22)."""

from __future__ import annotations

import trio

from geminga_broker.session.connections import Connections
from geminga_broker.session.liveness import Liveness
from geminga_runtime.stream import FramedStream

PENDING_PUBLISH_BYTES_MAX = 16 << 20
"""Entries of one connection that wait for storage; above it the socket isn't read until half is
stored. (Apache bounds their number, `maxPendingPublishRequestsPerConnection`.)
"""

PENDING_ENTRY_BYTES = 512
"""What each of these entries counts beside its own bytes, so that many small ones are bounded too.
"""

REQUESTS_MAX = 5000
"""Commands of one connection that run at once; above it the socket isn't read until half ended."""

REQUEST_BYTES_MAX = 4 << 20
"""What these may take together before the socket isn't read until half of it ended."""

REQUEST_BYTES_SHARE = 64 * 1024
"""What a connection may have of them whatever the others have."""


class Backpressure:
    """Counts a connection's pending work, and tells its reader when to pause."""

    def __init__(self, stream: FramedStream, shared: Connections, liveness: Liveness) -> None:
        self._stream = stream
        self._shared = shared
        self._liveness = liveness
        self._requests = 0
        self._request_bytes = 0
        self._pending_publish_bytes = 0
        self._paused_until_s = 0.0
        self._resume: trio.Event | None = None

    def publish_pending(self, messages: int, size_bytes: int) -> None:
        """Entries were handed to storage, or (negative) came back."""
        size_bytes += messages * PENDING_ENTRY_BYTES
        self._pending_publish_bytes += size_bytes
        self._shared.publish_pending(size_bytes)
        if self._resume is not None:
            self.check_resume()

    def throttle(self, pause_s: float) -> None:
        """A rate limit is reached (BR-22): read nothing for so long."""
        self._paused_until_s = max(self._paused_until_s, trio.current_time() + pause_s)

    def request_started(self, size_bytes: int) -> None:
        """A command of that size runs in a task now."""
        self._count_request(1, size_bytes)

    def request_ended(self, size_bytes: int) -> None:
        """A command has ended."""
        self._count_request(-1, -size_bytes)
        if self._resume is not None:
            self.check_resume()

    def release(self) -> None:
        """The connection has ended: its commands count no more."""
        self._count_request(-self._requests, -self._request_bytes)

    def _count_request(self, requests: int, size_bytes: int) -> None:
        self._requests += requests
        self._request_bytes += size_bytes
        self._shared.request_bytes += size_bytes

    @property
    def overloaded(self) -> bool:
        """Whether nothing more may be read from the client for now."""
        return (
            self._pending_publish_bytes > PENDING_PUBLISH_BYTES_MAX
            or not self._stream.writable
            or self._requests > REQUESTS_MAX
            or self._request_bytes > REQUEST_BYTES_MAX
            or (self._request_bytes > REQUEST_BYTES_SHARE and self._shared.requests_full)
            or self._shared.publish_buffer_full
            or self._paused_until_s > trio.current_time()
        )

    async def wait_ready(self) -> None:
        """Return when the client's work has gone down to half of the bounds."""
        self._liveness.pause(held_back=True)
        while self.overloaded:
            if self._paused_until_s > trio.current_time():
                await trio.sleep_until(self._paused_until_s)
                continue
            self._resume = trio.Event()
            self._stream.on_writable(self.check_resume)
            self._shared.on_publish_buffer_drained(self.check_resume)
            await self._resume.wait()
        self._resume = None
        self._liveness.resume()

    async def until_writable(self) -> None:
        """Return when the client has read enough for a large answer to be written."""
        while not self._stream.writable:
            room = trio.Event()
            self._stream.on_writable(room.set)
            await room.wait()

    def check_resume(self) -> None:
        """Wake the reader if it waits and all is below half of the bounds."""
        if (
            self._resume is not None
            and self._pending_publish_bytes <= PENDING_PUBLISH_BYTES_MAX // 2
            and self._requests <= REQUESTS_MAX // 2
            and self._request_bytes <= REQUEST_BYTES_MAX // 2
            and (self._request_bytes <= REQUEST_BYTES_SHARE or not self._shared.requests_full)
            and self._stream.writable
            and not self._shared.publish_buffer_full
        ):
            self._resume.set()
