"""The metadata store that every part of a cluster shares (spec CL-01).

Paths are absolute, `/`-separated, without a trailing slash. Every value has a version: 0 when
made, one more with each
put. Values are bytes and never shared mutably. Parents are made on demand (as empty values), as
Apache's stores do.
"""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import trio

ANY_VERSION: None = None
MUST_NOT_EXIST = -1


class MetadataError(Exception):
    """Base of what a metadata store raises."""


class BadVersion(MetadataError):
    """The value changed meanwhile, or exists where `MUST_NOT_EXIST` was asked for."""


class NoNode(MetadataError):
    """Nothing at that path."""


class NotEmpty(MetadataError):
    """A node with children can't be deleted."""


class StoreUnavailable(MetadataError):
    """The store can't answer now; the same call may succeed later. Nothing is known of its
    effect.
    """


class SessionExpired(MetadataError):
    """The session is gone, and its ephemeral nodes with it."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store knows about a node beside its value; times in milliseconds since the epoch."""

    version: int
    ctime_ms: int
    mtime_ms: int
    ephemeral: bool = False
    created_by_self: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its stat."""

    value: bytes
    stat: Stat


class Change(Enum):
    """What a watch tells. LOST means that events were dropped: read again what you keep."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    CHILDREN = "children"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Notification:
    """One change at one path. CHILDREN names the parent whose list of children changed."""

    kind: Change
    path: str


class SessionEvent(Enum):
    """Life of the session: connection lost and back (ephemerals live), session lost and renewed
    (they died).
    """

    CONNECTION_LOST = "connection lost"
    RECONNECTED = "reconnected"
    SESSION_LOST = "session lost"
    SESSION_RENEWED = "session renewed"


class MetadataStore(Protocol):
    """All of it raises StoreUnavailable and SessionExpired beside what the methods name."""

    async def get(self, path: str) -> Node | None:
        """The node there, or None."""

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """Write the value; returns the path (with its ten-digit number if `sequential`) and the
        new stat.

        Durable when it returns. Raises BadVersion if `expected_version` is another one than the
        node's.
        """

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """Remove a node without children. Raises NoNode, NotEmpty, BadVersion."""

    async def exists(self, path: str) -> bool:
        """Whether there is a node."""

    async def children(self, path: str) -> Sequence[str]:
        """Names (not paths) of the direct children, sorted; empty if there is no node."""

    def watch(
        self, prefix: str, *, events_max: int = 1024
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Notification]]:
        """Changes at and beneath `prefix` while the context is open. A reader that lags gets one
        LOST.
        """

    def session_events(
        self,
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[SessionEvent]]:
        """Session events while the context is open."""

    async def aclose(self) -> None:
        """End the session: ephemeral nodes vanish. Idempotent."""
