"""kazoo's client and its thread, bridged to the Trio loop.

kazoo has one thread that writes and reads the socket. Requests go to it by its own queue; what it
reads comes back in the order of the wire, in batches: answers, changes and states of the session
are appended to one outbox, and one call in the loop takes all that is there. kazoo's own threads
for callbacks would lose that order: a change must be known before the answer that shows it.

kazoo has no persistent watches, does not say when the server was last heard of, sends what is
queued on whatever connection comes next, blocks who wakes its thread too often, gives one
server the time of a whole session, and has a dear way to the socket. Those parts are overridden in
`zookeeper_wire`. They are private to kazoo, so `pyproject.toml` takes one minor version only.
"""

# kazoo is of an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

import logging
import math
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import trio
from kazoo.client import KazooClient
from kazoo.protocol.connection import _CONNECTION_DROP
from kazoo.protocol.serialization import write_string
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from geminga_runtime.logs import Seldom
from geminga_runtime.metadata.api import Stat
from geminga_runtime.metadata.zookeeper_wire import RETRY_MAX_S, Connection, Handler, Request

_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.INFO)  # its debug lines hold whole values
_kazoo_log.addFilter(Seldom(60.0, "Zookeeper connection established"))  # it tries once a second

CHANGES_BYTES_MAX = 4 * 1024 * 1024
"""Changes that the loop has not taken yet; further ones are dropped, and said to be."""

_CHANGE_BYTES = 300
"""What a change takes beside its path."""

RETRY_S = 0.05
_PERSISTENT_RECURSIVE = 1
_ANY_WATCHER = 3


class AddWatch(NamedTuple):
    """Request of a persistent recursive watch (ZooKeeper 3.6; `ZooDefs.OpCode.addWatch`)."""

    path: str
    type: int = 106

    def serialize(self) -> bytes:
        """The body."""
        return bytes(write_string(self.path)) + struct.pack("!i", _PERSISTENT_RECURSIVE)

    @staticmethod
    def deserialize(_buffer: bytes, _offset: int) -> None:
        """The answer has no content."""


class RemoveWatches(NamedTuple):
    """Request to forget a path's watches (`ZooDefs.OpCode.removeWatches`)."""

    path: str
    type: int = 18

    def serialize(self) -> bytes:
        """The body."""
        return bytes(write_string(self.path)) + struct.pack("!i", _ANY_WATCHER)

    @staticmethod
    def deserialize(_buffer: bytes, _offset: int) -> None:
        """The answer has no content."""


class _Stat(NamedTuple):
    """The fields of ZooKeeper's stat, in its order."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    children: int
    pzxid: int


def stat_of(fields: tuple[int, ...], session_id: int | None) -> Stat:
    """A node's, as that session sees it."""
    stat = _Stat._make(fields)
    owner = stat.ephemeral_owner
    return Stat(stat.version, stat.ctime, stat.mtime, owner != 0, owner == session_id)


class Follower(Protocol):
    """Gets what the link brings, in the loop's thread and in the order of the wire."""

    def on_up(self, connection: int, session_id: int, /) -> None:
        """A connection was made."""

    def on_down(self, connection: int, /) -> None:
        """The connection is lost."""

    def on_gone(self, connection: int, session_id: int | None, /) -> None:
        """The server has ended the session."""

    def on_change(self, kind: int, path: str, /) -> None:
        """A watched node changed; `kind` is ZooKeeper's number."""

    def on_overflow(self) -> None:
        """Changes were dropped."""


class Link:
    """Owns kazoo's client. Methods are called in the loop's thread, except where they say."""

    def __init__(self, connect_string: str, session_timeout_s: float, follower: Follower) -> None:
        self.connection = 0
        """Number of the last connection."""
        self.contact_at = -math.inf
        """When the last request was sent that the server has answered, by `time.monotonic`."""
        self.session_id: int | None = None
        """The session of that contact. Set before it."""
        self.password = b""
        """What that session is resumed with, by anyone who has it."""
        self.timeout_s = session_timeout_s
        """The session's time-out, as the server grants it."""
        self.ended: int | None = None
        """A session that is lost by our own clock: it is closed as soon as the server is met."""
        self._follower = follower
        self._token = trio.lowlevel.current_trio_token()
        self._outbox: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._bytes_in = self._bytes_out = 0
        self._has_dropped = False
        retry = KazooRetry(max_tries=-1, delay=RETRY_S, max_delay=RETRY_MAX_S)
        self._client = KazooClient(
            connect_string,
            session_timeout_s,
            handler=Handler(),
            connection_retry=retry,
            logger=_kazoo_log,
        )
        self._client._connection = Connection(self, self._client, retry, _kazoo_log)
        self._client.add_listener(self._on_state)

    def start(self) -> None:
        """Begin to connect; it goes on until `stop`."""
        self._client.start_async()

    def stop(self) -> None:
        """Close the session and end the thread. Blocks: call it in another thread."""
        self._client.stop()
        self._client.close()

    def submit(self, content: object, request: Request) -> None:
        """Queue a request. Never blocks."""
        self._client._call(content, request)

    def end_session(self, session_id: int) -> None:
        """Close that session at the next connection, and drop the present one."""
        self.ended = session_id
        unheard = Request(self, self.connection, lambda _value, _error: None)
        self._client._call(_CONNECTION_DROP, unheard)

    def post(self, call: Callable[[], None]) -> None:
        """Have `call` called in the loop. In any thread."""
        self._outbox.append(call)
        if not self._is_scheduled:
            self._is_scheduled = True
            try:
                self._token.run_sync_soon(self._drain)
            except trio.RunFinishedError:  # no task is left that waits
                pass

    def _drain(self) -> None:
        self._is_scheduled = False
        while self._outbox:
            self._outbox.popleft()()
        if self._has_dropped:
            self._has_dropped = False
            self._follower.on_overflow()

    # What follows is called in kazoo's thread.

    def on_connected(self, session_id: int, timeout_s: float) -> None:
        """The server has accepted the session."""
        self.timeout_s = timeout_s
        self.password = self._client._session_passwd
        self.connection += 1
        self.post(partial(self._follower.on_up, self.connection, session_id))

    def on_change(self, kind: int, path: str) -> None:
        """An event of a watch."""
        size = len(path) + _CHANGE_BYTES
        if self._bytes_in - self._bytes_out + size > CHANGES_BYTES_MAX:
            if not self._has_dropped:
                self._has_dropped = True
                self.post(_nothing)  # the loop may have taken all others already
            return
        self._bytes_in += size
        self.post(partial(self._take_change, kind, path))

    def _take_change(self, kind: int, path: str) -> None:
        self._bytes_out += len(path) + _CHANGE_BYTES
        self._follower.on_change(kind, path)

    def _on_state(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self.post(partial(self._follower.on_down, self.connection))
        elif state == KazooState.LOST:
            gone = self._client._session_id
            self.post(partial(self._follower.on_gone, self.connection, gone))


def _nothing() -> None:
    """For `post`: the loop is to look at what else is there."""
