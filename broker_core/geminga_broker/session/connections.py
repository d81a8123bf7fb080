"""All clients' sessions, and the bounds that they share (spec PR-16, BR-22, PX-22)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

REQUEST_BYTES_MAX = 256 << 20
"""What commands of all connections that run at once may take; above it, connections that have more
than their share are not read.
"""


class ClientSession(Protocol):
    """A session, as the broker sees it."""

    def stop(self) -> None:
        """End the connection; what was written is still sent."""

    def require_recheck(self) -> None:
        """Grants were revoked: check again what the client is opening at this moment."""

    async def recheck(self, tenant: str, namespace: str | None) -> None:
        """Close what the client has no right to any more."""


class Connections:
    """The sessions of one broker. Everything but `recheck` is synchronous."""

    def __init__(self, publish_bytes_max: int) -> None:
        self.sessions: dict[ClientSession, None] = {}
        self.turn = trio.Lock()
        """Held for a step of a command that takes long: one in a turn of the loop."""
        self.request_bytes = 0
        """Of all commands that run now."""
        self.publish_buffer_full = False
        self.publish_bytes = 0
        """Of all entries that wait for storage."""
        self._publish_bytes_max = publish_bytes_max
        self._drained: list[Callable[[], None]] = []

    @property
    def requests_full(self) -> bool:
        """Whether the commands that run now take more memory than they may."""
        return self.request_bytes > REQUEST_BYTES_MAX

    def publish_pending(self, size_bytes: int) -> None:
        """Count entries that wait for storage (BR-22), with the memory of their objects: this
        bounds the queue of a journal whose disk hangs.
        """
        pending = self.publish_bytes = self.publish_bytes + size_bytes
        if pending > self._publish_bytes_max > 0:
            self.publish_buffer_full = True
        elif self.publish_buffer_full and pending <= self._publish_bytes_max // 2:
            self.publish_buffer_full = False
            drained, self._drained = self._drained, []
            for callback in drained:
                callback()

    def on_publish_buffer_drained(self, callback: Callable[[], None]) -> None:
        """Call back once when the publish buffer is down to half; at once if it isn't full."""
        if self.publish_buffer_full:
            self._drained.append(callback)
        else:
            callback()

    async def recheck(self, tenant: str, namespace: str | None) -> None:
        """Grants of a tenant (or of one of its namespaces) were revoked: close producers and
        consumers whose clients have no right to them any more.
        """
        sessions = list(self.sessions)
        for session in sessions:
            session.require_recheck()
        for session in sessions:
            await session.recheck(tenant, namespace)

    def stop(self) -> None:
        """End all sessions."""
        for session in list(self.sessions):
            session.stop()
