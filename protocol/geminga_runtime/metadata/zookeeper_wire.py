"""kazoo's connection: its thread writes and reads the socket here.

kazoo makes eleven system calls for each request, and each of them gives the interpreter's lock
away: while the loop is busy, as in a broker that takes over many topics, its thread waits for the
lock after each. Here what is queued is sent at once, and what has come is read at once, so that
many requests under way cost little more than one.

Other parts of kazoo that are overridden here, and why, are told in `zookeeper_link`.
"""

# kazoo is of an extra.
# pyright: reportMissingImports=false

from __future__ import annotations

import logging
import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kazoo.exceptions import ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import (
    _CONNECTION_DROP,
    CLOSE_RESPONSE,
    PING_XID,
    ConnectionHandler,
)
from kazoo.protocol.serialization import CloseInstance, ReplyHeader, Watch

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from kazoo.client import KazooClient
    from kazoo.retry import KazooRetry
_log = logging.getLogger(__name__)

RETRY_MAX_S = 1.0

SENT_AT_ONCE_BYTES = 256 * 1024
"""With so much in a write, further requests go with the next one, after a look at what came."""

READ_AT_ONCE_BYTES = 64 * 1024

_WAKES = 4096
"""Bytes that are read at once of the pair that wakes kazoo's thread."""
_XID_MAX = 2**31 - 1
_LENGTH_BYTES = 4
"""Before each answer."""


class NotSent(Exception):
    """The connection that a request was meant for has ended before it was sent."""


class Bridge(Protocol):
    """What kazoo's thread tells of its connection: `zookeeper_link.Link`."""

    connection: int
    contact_at: float
    session_id: int | None
    timeout_s: float
    ended: int | None

    def post(self, call: Callable[[], None]) -> None:
        """Have `call` called in the loop."""

    def on_connected(self, session_id: int, timeout_s: float) -> None:
        """The server has accepted the session."""

    def on_change(self, kind: int, path: str) -> None:
        """An event of a watch."""


class Request:
    """A request under way, bound to one connection. kazoo takes it for a result of its own: its
    thread calls `set` or `set_exception`.
    """

    __slots__ = ("_link", "connection", "finish", "is_sent")

    def __init__(
        self, link: Bridge, connection: int, finish: Callable[[object, Exception | None], None]
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


class Waker(socket.socket):
    """The end of the socket pair that wakes kazoo's thread. It never blocks the loop, and is quiet
    while the thread is to wake up anyway.
    """

    _is_waking = False

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Called after something was queued. Returns 0 if a byte is on its way already."""
        if self._is_waking:
            return 0
        self._is_waking = True
        try:
            return super().send(data, flags)
        except BlockingIOError:
            return 0

    def woken(self, reading: socket.socket) -> None:
        """The thread is awake: take the byte. What is queued before this returns it must look at
        afterwards; what is queued later wakes it again.
        """
        reading.recv(_WAKES)
        self._is_waking = False


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads and sockets."""

    addresses = 1
    """Of all servers. Each may take its part of a session's time to answer."""

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The ends to read and to write."""
        reading, writing = super().create_socket_pair()
        waker = Waker(fileno=writing.detach())
        waker.setblocking(False)
        return reading, waker

    def create_connection(self, *, timeout: float, **options: object) -> socket.socket:
        """Connect to a server; `timeout` is that of the session, in seconds."""
        made: socket.socket = super().create_connection(timeout=timeout / self.addresses, **options)
        return made

    def select(
        self,
        reading: Sequence[socket.socket],
        writing: Sequence[socket.socket],
        _failing: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """As `select.select`, for any file number. kazoo's makes a selector for each call."""
        poll = select.poll()
        for each in reading:
            poll.register(each, select.POLLIN)
        for each in writing:
            poll.register(each, select.POLLOUT)
        ready = dict(poll.poll(None if timeout is None else math.ceil(timeout * 1000)))
        return (
            [each for each in reading if each.fileno() in ready],
            [each for each in writing if each.fileno() in ready],
            [],
        )


class Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """All of it is called in kazoo's thread."""

    def __init__(
        self, link: Bridge, client: KazooClient, retry: KazooRetry, logger: logging.Logger
    ) -> None:
        super().__init__(client, retry.copy(), logger=logger)
        self._link = link
        self._xid: int = 0
        self._is_open = False
        """Whether there is a session: while one is made, nothing is read ahead."""
        self._ahead = bytearray()
        """What was read, and not looked at yet."""
        self._packets: list[bytes] | None = None
        """While requests are gathered, those that go with the next write."""
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
        self._is_open = False
        self._ahead.clear()
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
        self._is_open = True
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
        """Send all that is queued for this connection, in one write."""
        client = self.client
        reading, waker = self._read_sock, self._write_sock
        assert reading is not None
        assert waker is not None
        waker.woken(reading)
        packets: list[bytes] = []
        self._packets = packets
        size_bytes = 0
        try:
            while client._queue and size_bytes < SENT_AT_ONCE_BYTES:
                content, request = client._queue[0]
                if isinstance(request, Request):
                    if request.connection != self._link.connection:
                        client._queue.popleft()
                        request.set_exception(NotSent())
                        continue
                    # Should the write fail before it, too, its outcome counts as unknown.
                    request.is_sent = True
                if content is _CONNECTION_DROP:
                    raise ConnectionDropped("the session was lost by our own clock")
                self._xid = self._xid % _XID_MAX + 1
                self._submit(content, connect_timeout, self._xid)
                client._queue.popleft()
                client._pending.append((content, request, self._xid))
                size_bytes += len(packets[-1])
        finally:
            self._packets = None
        if packets:
            self._write(b"".join(packets), connect_timeout)
        if client._queue:
            waker.send(b"\0")

    def _write(self, msg: bytes, timeout: float) -> None:
        if self._packets is None:
            super()._write(msg, timeout)
        else:
            self._packets.append(msg)

    def _read_socket(self, read_timeout: float) -> int | None:
        """Take all answers and changes that have come."""
        response: int | None = super()._read_socket(read_timeout)
        while response != CLOSE_RESPONSE and self._has_more:
            response = super()._read_socket(read_timeout)
        return response

    @property
    def _has_more(self) -> bool:
        """Whether a whole answer was read ahead."""
        ahead = self._ahead
        needed = _LENGTH_BYTES + int.from_bytes(ahead[:_LENGTH_BYTES], "big")
        return len(ahead) >= _LENGTH_BYTES and len(ahead) >= needed

    def _read(self, length: int, timeout: float) -> bytes:
        if not self._is_open:
            exact: bytes = super()._read(length, timeout)
            return exact
        ahead = self._ahead
        assert self._socket is not None, "it is open"
        while len(ahead) < length:
            with self._socket_error_handling():
                try:
                    read = self._socket.recv(READ_AT_ONCE_BYTES)
                except BlockingIOError:
                    if not self.handler.select([self._socket], [], [], timeout)[0]:
                        raise self.handler.timeout_exception("no whole answer in time") from None
                    continue
            if not read:
                raise ConnectionDropped("the server has closed the connection")
            ahead += read
        part = bytes(ahead[:length])
        del ahead[:length]
        return part

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
