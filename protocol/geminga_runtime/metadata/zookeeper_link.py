"""kazoo's client and its thread, bridged to the Trio loop.

kazoo has one thread that writes and reads the socket. Requests go to it by its own queue; what it
reads comes back in the order of the wire, in batches: answers, changes and states of the session
are appended to one outbox, and one call in the loop takes all that is there. kazoo's own threads
for callbacks would lose that order: a change must be known before the answer that shows it.

kazoo has no persistent watches, does not say when the server was last heard of, sends what is
queued on whatever connection comes next, blocks who wakes its thread too often, and gives one
server the time of a whole session. Those parts are overridden here. They are private to kazoo, so
`pyproject.toml` takes one minor version only.
"""

# kazoo is of an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

import logging
import math
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio
from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import _CONNECTION_DROP, PING_XID, ConnectionHandler
from kazoo.protocol.serialization import CloseInstance, ReplyHeader, Watch, write_string
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from geminga_runtime.logs import Seldom

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.INFO)  # its debug lines hold whole values
_kazoo_log.addFilter(Seldom(60.0, "Zookeeper connection established"))  # it tries once a second

CHANGES_BYTES_MAX = 4 * 1024 * 1024
"""Changes that the loop has not taken yet; further ones are dropped, and said to be."""

_CHANGE_BYTES = 300
"""What a change takes beside its path."""

RETRY_S = 0.05
RETRY_MAX_S = 1.0
_WAKES = 4096
"""Bytes that are read at once of the pair that wakes kazoo's thread."""

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


class NotSent(Exception):
    """The connection that a request was meant for has ended before it was sent."""


class Request:
    """A request under way, bound to one connection. kazoo takes it for a result of its own: its
    thread calls `set` or `set_exception`.
    """

    __slots__ = ("_link", "connection", "finish", "is_sent")

    def __init__(
        self, link: Link, connection: int, finish: Callable[[object, Exception | None], None]
    ) -> None:
        self._link = link
        self.connection = connection
        self.finish = finish
        self.is_sent = False

    def set(self, value: object = None) -> None:
        """The answer."""
        self._link.post(partial(self.finish, value, None))

    def set_exception(self, error: Exception) -> None:
        """The answer is an error, or there will be none."""
        self._link.post(partial(self.finish, None, error))


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
            handler=_Handler(),
            connection_retry=retry,
            logger=_kazoo_log,
        )
        self._client._connection = _Connection(self, self._client, retry)
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


class _Waker(socket.socket):
    """The end of the socket pair that wakes kazoo's thread: a full pair doesn't block the loop."""

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Returns 0 if the thread has much to wake up for."""
        try:
            return super().send(data, flags)
        except BlockingIOError:
            return 0


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads and sockets."""

    addresses = 1
    """Of all servers. Each may take its part of a session's time to answer."""

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The ends to read and to write."""
        reading, writing = super().create_socket_pair()
        waker = _Waker(fileno=writing.detach())
        waker.setblocking(False)
        return reading, waker

    def create_connection(self, *, timeout: float, **options: object) -> socket.socket:
        """Connect to a server; `timeout` is that of the session, in seconds."""
        made: socket.socket = super().create_connection(timeout=timeout / self.addresses, **options)
        return made


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """All of it is called in kazoo's thread."""

    def __init__(self, link: Link, client: KazooClient, retry: KazooRetry) -> None:
        super().__init__(client, retry.copy(), logger=_kazoo_log)
        self._link = link
        self._sent_at: deque[float] = deque()
        self._pings_sent_at: deque[float] = deque()

    def zk_loop(self) -> None:
        """As kazoo's, but it goes on after an error that kazoo does not expect."""
        while True:
            try:
                super().zk_loop()
            except Exception:  # kazoo has logged it, and told that the session is lost
                _log.warning("connecting to ZooKeeper again after an unexpected error")
            if self.client._stopped.wait(RETRY_MAX_S):
                return

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        began = time.monotonic()
        read_ms, connect_ms = super()._connect(host, hostip, port)
        session_id = self.client._session_id
        if session_id == self._link.ended:
            # The answer to the close; then kazoo begins a new session.
            self._invoke(connect_ms / 1000, CloseInstance, xid=1)
            raise SessionExpiredError("closed: it was lost by our own clock")
        self._sent_at.clear()
        self._pings_sent_at.clear()
        self._link.session_id = session_id
        self._link.contact_at = began
        self._link.on_connected(session_id, read_ms * 1.5 / 1000)  # kazoo waits for 2/3 of it
        return read_ms, connect_ms

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        found: list[tuple[str, str, int]] = super()._expand_client_hosts()
        self.handler.addresses = len(found) or 1
        return found

    def _invoke(self, timeout: float, request: object, xid: int | None = None) -> object:
        attempt_s = self.client._session_timeout / 1000 / self.handler.addresses
        return super()._invoke(min(timeout, attempt_s), request, xid)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        queue = self.client._queue
        request = queue[0][1] if queue else None
        reading, waker = self._read_sock, self._write_sock
        assert reading is not None
        assert waker is not None
        if not queue:
            reading.recv(_WAKES)
        elif isinstance(request, Request) and request.connection != self._link.connection:
            queue.popleft()
            reading.recv(1)
            request.set_exception(NotSent())
        else:
            if isinstance(request, Request):
                request.is_sent = True
            super()._send_request(read_timeout, connect_timeout)
        if self.client._queue:  # there may be fewer bytes than requests
            waker.send(b"\0")

    def _submit(self, request: object, timeout: float, xid: int | None = None) -> None:
        self._sent_at.append(time.monotonic())
        super()._submit(request, timeout, xid)

    def _send_ping(self, connect_timeout: float) -> None:
        self._pings_sent_at.append(time.monotonic())
        super()._send_ping(connect_timeout)
        self._sent_at.pop()

    def _read_header(self, timeout: float) -> tuple[ReplyHeader, bytes, int]:
        header, buffer, offset = super()._read_header(timeout)
        if header.xid == PING_XID:
            self._link.contact_at = max(self._link.contact_at, self._pings_sent_at.popleft())
        return header, buffer, offset

    def _read_response(self, header: object, buffer: bytes, offset: int) -> int | None:
        self._link.contact_at = max(self._link.contact_at, self._sent_at.popleft())
        response: int | None = super()._read_response(header, buffer, offset)
        return response

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = Watch.deserialize(buffer, offset)
        self._link.on_change(watch.type, watch.path)
