"""HTTP/1.1 requests over connections that are kept: for the admin client, and between brokers.

A request is one write and the reading of its answer in the caller's own task; there are no tasks
in the background. Redirects, credentials and deadlines are the caller's.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import trio

from geminga_runtime.connect import open_stream
from geminga_runtime.errors import ConnectionLost, TlsFailed
from geminga_runtime.host_port import host_port
from geminga_runtime.http.answers import (
    BODY_BYTES_MAX,
    METHODS_WITH_BODY,
    REPEATABLE,
    AnswerReader,
    BadHttpAnswer,
    HttpAnswer,
    request_head,
)
from geminga_runtime.tls import TlsContexts
from geminga_runtime.tls_stream import TlsStream

RECEIVE_BYTES = 64 * 1024
IDLE_MAX_S = 15.0
"""A connection that was idle for longer is closed instead of used. Servers close theirs after 30 s
(Jetty): a request must not meet that.
"""
IDLE_CONNECTIONS_MAX = 16
CONNECTIONS_MAX = 32
"""Requests at a time; further ones wait."""

_FOREIGN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, TlsFailed)


class Origin(NamedTuple):
    """A server: host, port, and whether it is spoken to by TLS."""

    host: str
    port: int
    tls: bool = False

    @property
    def authority(self) -> str:
        """Host and port, as in URLs."""
        return host_port(self.host, self.port)

    @property
    def url(self) -> str:
        """As a URL."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"


class Opener(Protocol):
    """Opens connections."""

    async def __call__(self, origin: Origin) -> trio.abc.Stream:
        """Raises ConnectFailed."""
        ...


def tcp_opener(tls: TlsContexts | None, timeout_s: float) -> Opener:
    """Connections over real networks; without `tls`, plain ones only."""

    async def opened(origin: Origin) -> trio.abc.Stream:
        assert tls is not None or not origin.tls, "an https origin, but no TLS options"
        deadline = trio.current_time() + timeout_s
        contexts = tls if origin.tls else None
        return await open_stream(origin.host, origin.port, deadline=deadline, tls=contexts)

    return opened


class HttpRequest(NamedTuple):
    """`target` is path and query; the type of the body is one of the headers."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None


class _Idle(NamedTuple):
    origin: Origin
    stream: trio.abc.Stream
    since_s: float


class HttpClient:
    """Requests to any number of servers. Close it at the end."""

    def __init__(
        self,
        opener: Opener,
        *,
        body_bytes_max: int = BODY_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        """`body_bytes_max` bounds the bodies of answers."""
        self._opener = opener
        self._body_bytes_max = body_bytes_max
        self._limiter = trio.Semaphore(connections_max)
        self._idle: deque[_Idle] = deque()
        self._is_closed = False

    async def ask(self, origin: Origin, request: HttpRequest) -> HttpAnswer:
        """The server's answer. A request that can be repeated is sent again, on a new connection,
        if a kept one ended before its answer began.

        Raises ConnectFailed if nothing was sent, ConnectionLost, and BadHttpAnswer. If it is
        cancelled, the server may have carried it out.
        """
        async with self._limiter:
            kept = await self._take_idle(origin)
            if kept is not None:
                try:
                    return await self._exchange(origin, kept, request)
                except _NotAnswered as error:
                    if request.method not in REPEATABLE:
                        raise ConnectionLost(f"{origin.authority}: {error}") from error
            stream = await self._opener(origin)
            try:
                return await self._exchange(origin, stream, request)
            except _NotAnswered as error:
                if error.is_end:
                    # Perhaps another protocol's port: BadHttpAnswer says so.
                    raise BadHttpAnswer(str(error)) from error
                raise ConnectionLost(f"{origin.authority}: {error}") from error

    async def aclose(self) -> None:
        """Close idle connections; those in use are closed after their answer. Idempotent."""
        self._is_closed = True
        while self._idle:
            await trio.aclose_forcefully(self._idle.popleft().stream)
        await trio.lowlevel.checkpoint()

    async def _take_idle(self, origin: Origin) -> trio.abc.Stream | None:
        """A kept connection that seems alive."""
        oldest_s = trio.current_time() - IDLE_MAX_S
        while self._idle and self._idle[0].since_s < oldest_s:
            await trio.aclose_forcefully(self._idle.popleft().stream)
        for each in reversed(self._idle):
            if each.origin != origin:
                continue
            self._idle.remove(each)
            if not _has_news(each.stream):
                return each.stream
            await trio.aclose_forcefully(each.stream)
            return await self._take_idle(origin)
        return None

    async def _exchange(
        self, origin: Origin, stream: trio.abc.Stream, request: HttpRequest
    ) -> HttpAnswer:
        reader = AnswerReader(self._body_bytes_max, has_body=request.method != "HEAD")
        is_kept = False
        try:
            failure = await _send(stream, _written(origin, request))
            while not reader.is_whole:
                try:
                    data = await stream.receive_some(RECEIVE_BYTES)
                except _FOREIGN as error:
                    # An answer may have come before the request was refused.
                    if not reader.has_begun:
                        raise _NotAnswered(str(failure or error) or type(error).__name__) from error
                    raise ConnectionLost(f"{origin.authority}: {error}") from error
                if data:
                    reader.feed(bytes(data))
                    continue
                try:
                    reader.end()
                except BadHttpAnswer as error:
                    if not reader.has_begun:
                        raise _NotAnswered(str(failure or error), is_end=not failure) from error
                    raise
            is_kept = reader.is_reusable and failure is None and not self._is_closed
        finally:
            if not is_kept:
                await trio.aclose_forcefully(stream)
        if is_kept:
            await self._keep(_Idle(origin, stream, trio.current_time()))
        return reader.answer

    async def _keep(self, idle: _Idle) -> None:
        self._idle.append(idle)
        if len(self._idle) > IDLE_CONNECTIONS_MAX:
            await trio.aclose_forcefully(self._idle.popleft().stream)


class _NotAnswered(Exception):
    """The connection ended before the answer's first byte; `is_end`: by the peer's orderly end."""

    def __init__(self, text: str, *, is_end: bool = False) -> None:
        super().__init__(text)
        self.is_end = is_end


def _written(origin: Origin, request: HttpRequest) -> bytes:
    headers = dict(request.headers)
    if request.body is not None or request.method in METHODS_WITH_BODY:
        headers["Content-Length"] = str(len(request.body or b""))
    head = request_head(request.method, origin.authority, request.target, headers, stays_open=True)
    return head + (request.body or b"")


async def _send(stream: trio.abc.Stream, data: bytes) -> Exception | None:
    """Send a request; its failure is returned, as the answer may still be readable."""
    try:
        await stream.send_all(data)
    except _FOREIGN as error:
        return error
    return None


def _has_news(stream: trio.abc.Stream) -> bool:
    """Whether an idle connection has something to read: its end, as nothing was asked for."""
    if isinstance(stream, TlsStream):
        if stream.has_unread:
            return True
        stream = stream.transport_stream
    if not isinstance(stream, trio.SocketStream):
        return False
    fd = stream.socket.fileno()
    if fd < 0:
        return True
    if not hasattr(select, "poll"):
        return bool(select.select([fd], [], [], 0)[0])
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
