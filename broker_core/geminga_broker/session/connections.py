"""All sessions, and their shared bounds (spec PR-16, BR-22, PX-22)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from geminga_broker.authz.needs import Place
from geminga_broker.session.gathering import StorageTime

REQUEST_BYTES_MAX = 256 << 20
"""Total size of running commands of all connections; above it, connections with more than their
share are not read.
"""


class ClientSession(Protocol):
    """A session, as the broker sees it."""

    def stop(self) -> None:
        """End the connection after sending written frames."""

    def require_recheck(self) -> None:
        """Grants were revoked: check the client's right again for what it is opening now."""

    async def recheck(self, concerned: Callable[[Place], bool]) -> None:
        """Close producers and consumers for which the client lost the right."""


class Connections:
    """The sessions of one broker. All but `recheck` is synchronous."""

    def __init__(self, publish_bytes_max: int) -> None:
        self.sessions: dict[ClientSession, None] = {}
        self.created = self.closed = 0
        """Connections of the binary protocol since the start."""
        self.accepted = self.refused = 0
        """Of these, those that were told CONNECTED, and those that ended without."""
        self.held_back = 0
        """Connections from which nothing is read now, because of too much work or a limit."""
        self.turn = trio.Lock()
        """Held during a step of a long command: only one step in a turn of the loop."""
        self.request_bytes = 0
        """Total size of running commands."""
        self.publish_buffer_full = False
        self.publish_bytes = 0
        """Total size of entries that wait for storage."""
        self.publish_bytes_max = publish_bytes_max
        """Bound of `publish_bytes`; may be changed."""
        self.storage_time = StorageTime()
        self._drained: list[Callable[[], None]] = []

    def opened(self, session: ClientSession) -> None:
        """A connection has begun."""
        self.sessions[session] = None
        self.created += 1

    def ended(self, session: ClientSession, *, accepted: bool) -> None:
        """A connection has ended, `accepted` or not."""
        del self.sessions[session]
        self.closed += 1
        self.refused += not accepted

    @property
    def requests_full(self) -> bool:
        """Whether the running commands are above their bound."""
        return self.request_bytes > REQUEST_BYTES_MAX

    def publish_pending(self, size_bytes: int) -> None:
        """Count entries that wait for storage (BR-22), with the memory of their objects: bounds the
        queue of a journal with a hanging disk.
        """
        pending = self.publish_bytes = self.publish_bytes + size_bytes
        if pending > self.publish_bytes_max > 0:
            self.publish_buffer_full = True
        elif self.publish_buffer_full and pending <= self.publish_bytes_max // 2:
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

    async def recheck(self, concerned: Callable[[Place], bool]) -> None:
        """Grants may have been revoked: close producers and consumers whose clients lost the right
        to a place that `concerned` selects. Raises MetadataError.
        """
        sessions = list(self.sessions)
        for session in sessions:
            session.require_recheck()
        for session in sessions:
            await session.recheck(concerned)

    def stop(self) -> None:
        """End all sessions."""
        for session in list(self.sessions):
            session.stop()
