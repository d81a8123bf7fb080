"""The metadata store that every part of a cluster shares (spec CL-01).

Paths are absolute, `/`-separated, without a trailing slash. Every value has a version: 0 at
creation, one more with each put. Values are bytes and never shared mutably. Parents are created on
demand (as empty values), as in Apache's stores.
"""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

import trio

ANY_VERSION: None = None
MUST_NOT_EXIST = -1
NUMBER_DIGITS = 10
"""Of a sequential node's number, at the end of its path."""


class MetadataError(Exception):
    """Base of a metadata store's errors."""


class BadVersion(MetadataError):
    """The value has another version, or exists although `MUST_NOT_EXIST` was given."""

    def __init__(self, text: str = "", path: str = "") -> None:
        """`path` is told by `MetadataStore.put_numbered`, which has several."""
        super().__init__(text)
        self.path = path


class NoNode(MetadataError):
    """There is no node at that path."""


class NotEmpty(MetadataError):
    """A node with children can't be deleted."""


class ValueTooLarge(MetadataError):
    """The value is larger than the store takes; nothing was sent."""


class StoreUnavailable(MetadataError):
    """The store can't answer now; the same call may succeed later. A change may have taken
    effect.
    """


class SessionExpired(MetadataError):
    """The session ended, and its ephemeral nodes are deleted."""


@dataclass(frozen=True, slots=True)
class Stat:
    """Metadata of a node; times in milliseconds since the epoch."""

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


class Write(NamedTuple):
    """One of several changes that are made together; `version` is the node's, or MUST_NOT_EXIST."""

    path: str
    value: bytes
    version: int


Writes = Callable[[int], Sequence[Write]]
"""What is written under a number."""


class Change(Enum):
    """Kind of a notification. LOST means that notifications were dropped: read everything again."""

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


class SessionPhase(Enum):
    """State of a session. SUSPENDED: no connection; ephemeral nodes live until `lost_at`.
    LOST: the session of the epoch before has ended, and there is no new one yet.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Session:
    """A store's session. Each loss begins a new epoch.

    `lost_at` is a time of `trio.current_time`: an owner of ephemeral nodes must assume from then
    on that they are deleted, unless the store is heard of again. Infinite for embedded stores.
    """

    epoch: int
    phase: SessionPhase
    lost_at: float


class MetadataStore(Protocol):
    """All methods raise StoreUnavailable and SessionExpired, beside the errors that they name. A
    change takes effect in the session in which it was asked for, or not at all.
    """

    async def get(self, path: str) -> Node | None:
        """The node there, or None."""

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = ANY_VERSION,
        *,
        epoch: int | None = None,
        sequential: bool = False,
    ) -> tuple[str, Stat]:
        """Write the value; returns the path (with its ten-digit number if `sequential`) and the
        new stat. With `epoch` a new node is ephemeral: it is deleted with the session of that
        epoch.

        Durable when it returns. Raises BadVersion if the node's version is not `expected_version`,
        SessionExpired if `epoch` is not the session's.
        """

    async def put_numbered(self, at: str, writes: Writes) -> tuple[int, Sequence[int]]:
        """Take a number, that which a sequential node at `at` would get, and make all the writes
        that `writes` names for it, or none; returns the number and the new versions, in the order
        of the writes, which are of different nodes.

        `writes` is pure, and may be called in another thread. A number that was given out is never
        given out again, though nothing may be written under it. Durable when it returns. Raises
        BadVersion with its `path`.
        """

    async def delete(self, path: str, expected_version: int | None = ANY_VERSION) -> None:
        """Delete a node without children. Raises NoNode, NotEmpty, BadVersion."""

    async def exists(self, path: str) -> bool:
        """Whether there is a node."""

    async def children(self, path: str) -> Sequence[str]:
        """Names (not paths) of the direct children, sorted; empty if there is no node."""

    def watch(
        self, prefix: str, *, events_max: int = 1024
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Notification]]:
        """Changes at and beneath `prefix` while the context is open. A slow reader gets one
        LOST.
        """

    @property
    def session(self) -> Session:
        """The session now. A session that was not heard of for its time-out is lost by our own
        clock, whether or not the store can be asked.
        """

    async def wait_change(self, epoch: int) -> Session:
        """The session, once its epoch is not `epoch`. It may be LOST still: a put waits for no
        new session. Raises SessionExpired if the store was closed in that epoch.
        """

    async def aclose(self) -> None:
        """End the session: its ephemeral nodes are deleted. Idempotent."""
