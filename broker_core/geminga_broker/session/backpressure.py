"""Bounds of one connection, above which its socket is not read (spec PR-16, BR-22)."""

from __future__ import annotations

import trio

from geminga_broker.session.connections import Connections
from geminga_broker.session.gathering import Gathering
from geminga_broker.session.liveness import Liveness
from geminga_runtime.stream import FramedStream

PENDING_PUBLISH_BYTES_MAX = 16 << 20
"""Entries of one connection that wait for storage; above it the socket isn't read until half of it
is stored. (Apache bounds their number, `maxPendingPublishRequestsPerConnection`.)
"""

PENDING_ENTRY_BYTES = 512
"""Added to the size of each of these entries, to bound many small ones too.
"""

REQUESTS_MAX = 5000
"""Running commands of one connection; above it the socket isn't read until half have ended."""

REQUEST_BYTES_MAX = 4 << 20
"""Total size of these commands; above it the socket isn't read until half of it has ended."""

REQUEST_BYTES_SHARE = 64 * 1024
"""The part of this that each connection may have, whatever others use."""


class Backpressure:
    """Counts a connection's pending work, and pauses its reader."""

    def __init__(self, stream: FramedStream, shared: Connections, liveness: Liveness) -> None:
        self._stream = stream
        self._shared = shared
        self._liveness = liveness
        self._requests = 0
        self._request_bytes = 0
        self._pending_publish_bytes = 0
        self._paused_until_s = 0.0
        self._resume: trio.Event | None = None
        self._gathering = Gathering(shared.storage_time)

    def publish_pending(self, messages: int, size_bytes: int) -> None:
        """Entries were passed to storage, or (negative) are stored."""
        size_bytes += messages * PENDING_ENTRY_BYTES
        self._pending_publish_bytes += size_bytes
        self._shared.publish_pending(size_bytes)
        if self._pending_publish_bytes <= 0:
            self._gathering.all_stored()
        if self._resume is not None:
            self.check_resume()

    def throttle(self, pause_s: float) -> None:
        """A rate limit is reached (BR-22): stop reading for that time."""
        self._paused_until_s = max(self._paused_until_s, trio.current_time() + pause_s)

    def request_started(self, size_bytes: int) -> None:
        """A command of that size starts in a task."""
        self._count_request(1, size_bytes)

    def request_ended(self, size_bytes: int) -> None:
        """A command has ended."""
        self._count_request(-1, -size_bytes)
        if self._resume is not None:
            self.check_resume()

    def release(self) -> None:
        """The connection has ended: stop counting its commands."""
        self._count_request(-self._requests, -self._request_bytes)

    def _count_request(self, requests: int, size_bytes: int) -> None:
        self._requests += requests
        self._request_bytes += size_bytes
        self._shared.request_bytes += size_bytes

    @property
    def overloaded(self) -> bool:
        """Whether the client must not be read now."""
        return (
            self._pending_publish_bytes > PENDING_PUBLISH_BYTES_MAX
            or not self._stream.writable
            or self._requests > REQUESTS_MAX
            or self._request_bytes > REQUEST_BYTES_MAX
            or (self._request_bytes > REQUEST_BYTES_SHARE and self._shared.requests_full)
            or self._shared.publish_buffer_full
            or self._paused_until_s > trio.current_time()
        )

    @property
    def gathers(self) -> bool:
        """Whether little waits for storage: what comes meanwhile is to be one group."""
        return self._gathering.is_due(self._pending_publish_bytes)

    async def wait_stored(self) -> None:
        """Return when that is stored, or after a bounded time."""
        await self._gathering.wait()

    async def wait_ready(self) -> None:
        """Return when the client's work is down to half of the bounds."""
        self._liveness.pause(held_back=True)
        self._shared.held_back += 1
        try:
            while self.overloaded:
                if self._paused_until_s > trio.current_time():
                    await trio.sleep_until(self._paused_until_s)
                    continue
                self._resume = trio.Event()
                self._stream.on_writable(self.check_resume)
                self._shared.on_publish_buffer_drained(self.check_resume)
                await self._resume.wait()
        finally:
            self._shared.held_back -= 1
        self._resume = None
        self._liveness.resume()

    async def until_writable(self) -> None:
        """Return when the send buffer has room for a large response."""
        while not self._stream.writable:
            room = trio.Event()
            self._stream.on_writable(room.set)
            await room.wait()

    def check_resume(self) -> None:
        """Wake the waiting reader if all work is below half of the bounds."""
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
