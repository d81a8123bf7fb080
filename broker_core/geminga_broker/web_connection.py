"""A connection of the web port: hypercorn's, with bounds (spec OP-03, PX-24)."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import h11
import hypercorn.protocol
import hypercorn.protocol.h11
import hypercorn.trio.run
import hypercorn.trio.tcp_server
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, Data, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.task_group import TaskGroup, _handle
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import AppWrapper, H11SendableEvent, Scope

from geminga_runtime.server import ConnectionCount

_log = logging.getLogger(__name__)

SEND_S = 30.0
"""Time to send a part of a response; `BoundedConfig` has that of WebSockets."""
SEND_BYTES = 64 * 1024
"""Bytes of such a part."""
WEBSOCKET_BYTES = 4 * 1024
"""Bytes of a WebSocket that are handled in one turn: some hundred small frames."""
CLOSE_S = 1.0
"""Time for a client to learn that its message was too large."""
REST_BYTES_MAX = 1 << 20
"""Bytes of a request that are read after its response; the connection closes when more come."""
QUEUE_MAX = 2
"""Reads of a body, or messages of a WebSocket, that wait for the application."""

_EXTENSIONS = b"sec-websocket-extensions"

Message = MutableMapping[str, Any]


class BoundedConfig(Config):
    """Hypercorn's settings, with the connections' shared bounds."""

    connections = ConnectionCount(1)
    """Set for each server."""
    websocket_send_s = math.inf
    """Time to send a part of a message; then the client is gone, as far as one can tell."""


class Connection(TCPServer):
    """Keeps one connection's errors from the others: in hypercorn they end the whole server. One
    client could cause that by ending a body early while its response is being closed.
    """

    _has_ended = False
    _idle: trio.CancelScope | None = None
    """Its deadline is that of the idle connection; none while a request is answered."""

    async def _read_data(self) -> None:
        await super()._read_data()
        # Hypercorn lets an ended connection wait for its idle time too, and it counts so long.
        self._has_ended = True
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        """Handle an event of the protocol."""
        try:
            if isinstance(event, RawData):
                await self._send(memoryview(event.data))
            elif isinstance(event, Updated) and self._has_ended:
                await trio.lowlevel.checkpoint()
            elif (
                isinstance(event, Updated)
                and self._idle is not None
                and not self.context.terminated.is_set()
            ):
                timeout_s = self.config.keep_alive_timeout if event.idle else math.inf
                self._idle.deadline = trio.current_time() + timeout_s
            else:
                await super().protocol_send(event)
        except trio.BusyResourceError:
            # Another task is closing it.
            await self.protocol.handle(Closed())

    async def _send(self, data: memoryview) -> None:
        """Send with a deadline. Hypercorn has none, and is shielded: a client that doesn't read
        would block its response, and the server's stop, for ever.
        """
        async with self.send_lock:
            try:
                for at in range(0, len(data), SEND_BYTES):
                    with trio.fail_after(self._send_s()):
                        await self.stream.send_all(data[at : at + SEND_BYTES])
                return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            except trio.TooSlowError:
                _log.info("a web client does not read its responses: connection closed")
                await trio.aclose_forcefully(self.stream)
        await self.protocol.handle(Closed())

    async def _idle_timeout(self) -> None:
        """Close the connection when it was idle too long, or is idle when the server stops. One
        task for all requests: hypercorn starts and ends one for each.
        """
        with trio.CancelScope(
            deadline=trio.current_time() + self.config.keep_alive_timeout
        ) as self._idle:
            await self.context.terminated.wait()
            if self._idle.deadline == math.inf:
                return  # its response closes it
        with trio.CancelScope(shield=True):
            await self._initiate_server_close()

    def _send_s(self) -> float:
        stream = getattr(self.protocol.protocol, "stream", None)
        if not isinstance(stream, WSStream):
            return SEND_S
        assert isinstance(self.config, BoundedConfig)
        return self.config.websocket_send_s

    async def run(self) -> None:
        """Serve the connection until it ends, if there is room for it."""
        try:
            assert isinstance(self.config, BoundedConfig)
            count = self.config.connections
            with count.one_more() as has_room, count.one_more_of(self._peer()) as may_come:
                if has_room and may_come:
                    await super().run()
                else:
                    await trio.aclose_forcefully(self.stream)
        except* Exception as group:
            _log.error("a connection on the web port failed", exc_info=group)

    def _peer(self) -> str:
        inner = getattr(self.stream, "transport_stream", self.stream)
        try:
            host, port = inner.socket.getpeername()[:2]
        except OSError:  # reset before it was accepted
            return "unknown peer"
        return f"{host}:{port}"


class _Exchange(h11.Connection):
    """Reads nothing behind a connection's last request (RFC 9112, 9.6). h11 refuses that, and its
    refusal would take the place of the answer that is being made.
    """

    @property
    def is_over(self) -> bool:
        """Whether the client may send nothing more."""
        return self.their_state in (h11.MUST_CLOSE, h11.CLOSED)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """What has come; nothing once it is over."""
        return h11.NEED_DATA if self.is_over else super().next_event()


class _Http1(H11Protocol):
    """Refuses HTTP/2, whose streams have no bounds here. Ignores upgrades (RFC 9110, 7.8). Keeps a
    connection whose request was answered before its end: in hypercorn it closes without a word,
    and the client's next request is lost.
    """

    _is_refused = False
    _head = b""
    """Of a response whose body has not begun."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.connection = _Exchange(
            h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size
        )

    async def handle(self, event: Event) -> None:
        """Handle an event of the connection."""
        is_late = isinstance(self.connection, _Exchange) and self.connection.is_over
        if is_late and isinstance(event, RawData):
            await trio.lowlevel.checkpoint()
            return
        await super().handle(event)

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        """Send a response's head with the first of its body: one packet and one call less. An
        application without anything to send yet has not begun (ASGI, "Response Start").
        """
        if not isinstance(self.connection, h11.Connection):
            await super()._send_h11_event(event)
            return
        try:
            data = self.connection.send(event) or b""
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            self._head = data
            return
        if len(data) < SEND_BYTES:
            data = self._head + data
        else:
            await self._send_head()
        self._head = b""
        if data:
            await self.send(RawData(data=data))

    async def _send_head(self) -> None:
        head, self._head = self._head, b""
        if head:
            await self.send(RawData(data=head))

    async def stream_send(self, event: StreamEvent) -> None:
        """Send an event of the response."""
        if isinstance(event, Response) and event.status_code == HTTPStatus.REQUEST_TIMEOUT:
            headers = [*event.headers, (b"connection", b"close")]
            event = replace(event, headers=headers)
        await super().stream_send(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        if event.http_version not in (b"1.0", b"1.1"):
            self._is_refused = True
            await self._send_error_response(505)
            await self.send(Closed())

    async def _create_stream(self, request: h11.Request) -> None:
        if not self._is_refused:
            await super()._create_stream(request)

    async def _maybe_recycle(self) -> None:
        await self._send_head()  # of a response that broke off
        is_early = (
            self.connection.our_state is h11.DONE and self.connection.their_state is h11.SEND_BODY
        )
        if not is_early or self.context.terminated.is_set():
            await super()._maybe_recycle()
            return
        await self._close_stream()
        rest = _RestOfBody(super()._maybe_recycle, partial(self.send, Closed()))
        self.stream = cast(HTTPStream, rest)
        # Its time is that of an idle connection.
        await self.send(Updated(idle=True))


class _RestOfBody:
    """In place of a stream: reads what comes of a request after its response."""

    def __init__(
        self, recycle: Callable[[], Awaitable[None]], close: Callable[[], Awaitable[None]]
    ) -> None:
        self._left = REST_BYTES_MAX
        self._recycle = recycle
        self._close = close

    async def handle(self, event: StreamEvent) -> None:
        """Handle an event of the request."""
        if isinstance(event, Body):
            self._left -= len(event.data)
            if self._left < 0:
                await self._close()
        elif isinstance(event, EndBody):
            await self._recycle()


class _WebSocket(WSStream):
    """Serves others between frames, and ends after a message that is too large: hypercorn goes on
    collecting it. Refuses compression: few bytes may become a thousand times as many, all at once.
    """

    _is_over = False

    async def handle(self, event: StreamEvent) -> None:
        """Handle an event of the connection."""
        if isinstance(event, Request):
            kept = [header for header in event.headers if header[0].lower() != _EXTENSIONS]
            await super().handle(replace(event, headers=kept))
        elif isinstance(event, (Body, Data)) and self.handshake.accepted:
            for at in range(0, len(event.data), WEBSOCKET_BYTES):
                if self.closed or self._is_over:
                    return
                await super().handle(replace(event, data=event.data[at : at + WEBSOCKET_BYTES]))
                if self.buffer.length > self.buffer.max_length:
                    self._is_over = True
                    self.buffer.clear()
                    self.task_group.spawn(self._close_soon)
                await trio.lowlevel.checkpoint()
        else:
            await super().handle(event)

    async def _close_soon(self) -> None:
        await trio.sleep(CLOSE_S)
        if not self.closed:
            await self.send(StreamClosed(stream_id=self.stream_id))


class _Tasks(TaskGroup):
    """Applications whose queues don't block after their end: hypercorn waits for ever to put the
    rest of a body, and its end, into the queue of an application that doesn't read.
    """

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[Any], Awaitable[None]],
    ) -> Callable[[Any], Awaitable[None]]:
        into, out = trio.open_memory_channel[Message](QUEUE_MAX)
        kind = str(scope["type"])

        async def put(message: Message) -> None:
            try:
                if str(message["type"]).endswith(".disconnect"):
                    with into:
                        into.send_nowait(message)
                else:
                    await into.send(message)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.WouldBlock):
                await trio.lowlevel.checkpoint_if_cancelled()

        async def receive() -> Message:
            try:
                return await out.receive()
            except trio.EndOfChannel:
                await trio.lowlevel.checkpoint()
                return {"type": f"{kind}.disconnect", "code": 1006}

        async def run() -> None:
            with out:
                await _handle(
                    app,
                    config,
                    scope,
                    receive,  # type: ignore[arg-type]
                    send,
                    trio.to_thread.run_sync,
                    trio.from_thread.run,
                )

        self.spawn(run)
        return put


# Hypercorn has no setting for these classes: it takes them from its modules.
vars(hypercorn.trio.run)["TCPServer"] = Connection
vars(hypercorn.trio.tcp_server)["TaskGroup"] = _Tasks
vars(hypercorn.protocol)["H11Protocol"] = _Http1
vars(hypercorn.protocol.h11)["WSStream"] = _WebSocket
