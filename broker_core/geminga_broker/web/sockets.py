"""WebSockets, as an ASGI application sees them (spec PX-09; RFC 6455)."""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import trio
from starlette.types import Message
from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import (
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError, generate_accept_token

from geminga_broker.web import answers
from geminga_broker.web.exchange import Exchange, WrongAnswer
from geminga_broker.web.requests import Request
from geminga_broker.web.settings import WebSettings
from geminga_broker.web.wire import Wire
from geminga_runtime.errors import ConnectionLost

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

_log = logging.getLogger(__name__)

TURN_BYTES = 4 * 1024
"""Bytes that are handled in one turn, after one with `TURN_FRAMES_FEW` frames or less."""
SMALL_TURN_BYTES = 512
"""The same at first, and after a turn with more than `TURN_FRAMES_MAX`: a frame of a few bytes
takes as long as one of a thousand, and many clients may send such.
"""
TURN_FRAMES_FEW, TURN_FRAMES_MAX = 4, 64
READ_BYTES = 64 * 1024
CLOSE_S = 1.0
"""Time for a client to answer our end."""
QUEUE_MAX = 2
"""Messages that wait for the application."""

_VERSION = b"13"
_GOES_AWAY, _NO_CODE, _ABNORMAL, _TOO_LARGE, _OUR_FAULT = 1001, 1005, 1006, 1009, 1011
_DENIAL = "websocket.http.response."


async def serve_socket(
    app: ASGIApp,
    scope: Scope,
    wire: Wire,
    request: Request,
    settings: WebSettings,
    *,
    stopping: trio.Event,
) -> None:
    """Hand a request for a WebSocket to the application, until one of the three ends it. When
    `stopping` is set, the client is told to go.
    """
    key = request.header(b"sec-websocket-key")
    if key is None or request.header(b"sec-websocket-version") != _VERSION:
        wanted = [(b"sec-websocket-version", _VERSION), (b"upgrade", b"websocket")]
        text = "A WebSocket needs Sec-WebSocket-Key, and Sec-WebSocket-Version: 13"
        refusal = answers.whole(HTTPStatus.UPGRADE_REQUIRED, text, is_last=True, more=wanted)
        await wire.send(refusal, b"")
        return
    offered = request.header(b"sec-websocket-protocol") or b""
    scope["subprotocols"] = [each.strip() for each in offered.decode("latin-1").split(",") if each]
    socket = _Socket(wire, request, key, settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(socket.read_all)
        nursery.start_soon(socket.go_away, stopping)
        if settings.ping_interval_s < math.inf:
            nursery.start_soon(socket.ping_now_and_then)
        try:
            await app(scope, socket.receive, socket.send)
        except Exception:
            if not socket.is_closed:
                _log.exception("a WebSocket failed")
            await socket.close(_OUR_FAULT, "")
        await socket.end()
        nursery.cancel_scope.cancel()


class _Socket:
    """One WebSocket. Compression is refused: few bytes may become a thousand times as many, all at
    once.
    """

    def __init__(self, wire: Wire, request: Request, key: bytes, settings: WebSettings) -> None:
        self._wire = wire
        self._key = key
        self._settings = settings
        self._frames = Frames(ConnectionType.SERVER, [])
        self._denial = Exchange(wire, request, is_last=True)
        self._into, self._out = trio.open_memory_channel[Message](QUEUE_MAX)
        self._accepted = trio.Event()
        self._all_read = trio.Event()
        self._has_connected = False
        self._pieces: list[Any] = []
        """Of the message that comes: texts or bytes."""
        self._size = 0
        self._turn_bytes = SMALL_TURN_BYTES
        self._code = _ABNORMAL
        """With which the client has ended it."""
        self.is_closed = False
        """Whether nothing more is sent."""

    # The application's side.

    async def receive(self) -> Message:
        """The next event for the application."""
        if not self._has_connected:
            self._has_connected = True
            await trio.lowlevel.checkpoint()
            return {"type": "websocket.connect"}
        try:
            return await self._out.receive()
        except trio.EndOfChannel:
            return {"type": "websocket.disconnect", "code": self._code}

    async def send(self, message: Message) -> None:
        """Send what the application says; nothing if the client is gone. Raises WrongAnswer."""
        kind = message["type"]
        if self.is_closed or self._wire.is_gone:
            await trio.lowlevel.checkpoint()
        elif kind.startswith(_DENIAL) and not self._accepted.is_set():
            await self._denial.send(dict(message, type=kind.removeprefix("websocket.")))
            self.is_closed = self._denial.is_complete
        elif kind == "websocket.accept" and not self._accepted.is_set():
            await self._accept(message)
        elif kind == "websocket.send" and self._accepted.is_set():
            text, data = message.get("text"), message.get("bytes")
            event: Event = BytesMessage(data or b"") if text is None else TextMessage(text)
            await self._send_event(event)
        elif kind == "websocket.close":
            await self.close(message.get("code", 1000), message.get("reason") or "")
        else:
            raise WrongAnswer(f"{kind} has no place here")

    async def _accept(self, message: Message) -> None:
        lines = [
            (b"upgrade", b"websocket"),
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", generate_accept_token(self._key)),
        ]
        if protocol := message.get("subprotocol"):
            lines.append((b"sec-websocket-protocol", protocol.encode("latin-1")))
        lines += message.get("headers", ())
        await self._wire.send(answers.head(HTTPStatus.SWITCHING_PROTOCOLS, lines), b"")
        self._accepted.set()

    async def _send_event(self, event: Event) -> None:
        try:
            data = self._frames.send(event)
        except LocalProtocolError:  # the client has ended it
            await trio.lowlevel.checkpoint()
            return
        await self._wire.send(data, b"", self._settings.socket_send_s)

    async def close(self, code: int, reason: str) -> None:
        """End it from our side. Before it is accepted: refuse the request."""
        if self.is_closed:
            return
        if not self._accepted.is_set():
            self.is_closed = True
            refusal = answers.whole(HTTPStatus.FORBIDDEN, "", is_last=True)
            await self._wire.send(refusal, b"")
            return
        await self._send_event(CloseConnection(code, reason))
        self.is_closed = True

    async def end(self) -> None:
        """After the application: end what it didn't, and let the client end its side."""
        if not self._accepted.is_set():
            if self._denial.is_started:
                await self._denial.end()
            await self.close(_OUR_FAULT, "")
            return
        await self.close(1000, "")
        self._out.close()
        with trio.move_on_after(CLOSE_S):
            await self._all_read.wait()
            if self._frames.state is ConnectionState.CLOSED:
                # Both have said so: a client waits for us to close (RFC 6455, 7.1.1).
                if self._wire.stream.is_secure:
                    return
                self._wire.stream.end_sending()
            await self._wire.ended()

    async def go_away(self, stopping: trio.Event) -> None:
        """End it when the server stops; the client's answer ends the application."""
        await stopping.wait()
        await self._accepted.wait()
        await self.close(_GOES_AWAY, "")

    async def ping_now_and_then(self) -> None:
        """So that whoever stands between keeps it open."""
        await self._accepted.wait()
        while not self.is_closed:
            await trio.sleep(self._settings.ping_interval_s)
            await self._send_event(Ping())

    # The client's side.

    async def read_all(self) -> None:
        """Read until one side ends it."""
        with self._into:
            await self._accepted.wait()
            data = self._wire.reader.upgraded or b""
            while await self._taken(data):
                try:
                    data = await self._wire.stream.receive(READ_BYTES)
                except ConnectionLost:
                    data = b""
                if not data:
                    self._wire.has_ended = True
                    break
        self._all_read.set()

    async def _taken(self, data: bytes) -> bool:
        """Whether there may be more after this."""
        at = 0
        while at < len(data):
            piece = data[at : at + self._turn_bytes]
            at += len(piece)
            frames = 0
            try:
                self._frames.receive_data(piece)
                for event in self._frames.events():
                    frames += 1
                    if not await self._take(event):
                        return False
            except RemoteProtocolError:  # behind the client's end
                return False
            if frames > TURN_FRAMES_MAX:
                self._turn_bytes = SMALL_TURN_BYTES
            elif frames <= TURN_FRAMES_FEW:
                self._turn_bytes = TURN_BYTES
            await trio.lowlevel.checkpoint()
        return True

    async def _take(self, event: Event) -> bool:
        if isinstance(event, Ping):
            await self._send_event(event.response())
        elif isinstance(event, CloseConnection):
            # The client's own, or why its frames are none.
            self._code = event.code or _NO_CODE
            await self._send_event(event.response())
            self.is_closed = True
            return False
        elif isinstance(event, TextMessage | BytesMessage):
            return await self._take_piece(event)
        return True

    async def _take_piece(self, event: TextMessage | BytesMessage) -> bool:
        self._size += _size_of(event.data)
        if self._size > self._settings.text_bytes_max:
            self._code = _TOO_LARGE
            self._pieces.clear()
            await self.close(_TOO_LARGE, "")
            return False
        if event.data:
            self._pieces.append(event.data)
        if not event.message_finished:
            return True
        pieces, self._pieces, self._size = self._pieces, [], 0
        message: Message = {"type": "websocket.receive"}
        if isinstance(event, TextMessage):
            message["text"] = "".join(pieces)
        else:
            message["bytes"] = b"".join(pieces)
        try:
            await self._into.send(message)
        except trio.BrokenResourceError:  # the application has ended; the client's end may come
            pass
        return True


def _size_of(data: str | bytes | bytearray) -> int:
    if isinstance(data, str) and not data.isascii():
        return len(data.encode())
    return len(data)
