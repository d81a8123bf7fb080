"""A WebSocket client over wsproto, and brokers with the WebSocket service."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from compat_tests.secured import BOTH, Secured, start_secured

WAIT_S = 60.0


class Refused(Exception):
    """The server didn't switch protocols."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:200]!r}")
        self.status = status
        self.body = body


class Closed(Exception):
    """The server has closed the WebSocket."""

    def __init__(self, code: int, reason: str | None) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


class WebSocketClient:
    """Connects at once. Raises Refused."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, ca: str | None = None
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        plain = socket.create_connection((parts.hostname, parts.port), WAIT_S)
        self._socket: socket.socket = plain
        if parts.scheme in ("https", "wss"):
            context = ssl.create_default_context(cafile=ca)
            self._socket = context.wrap_socket(plain, server_hostname=parts.hostname)
        self._wire = WSConnection(ConnectionType.CLIENT)
        self._events: list[Event] = []
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        given = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._send(Request(host=parts.netloc, target=target, extra_headers=given))
        try:
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def _shake_hands(self) -> None:
        first, body = self._next(WAIT_S), b""
        if isinstance(first, AcceptConnection):
            return
        assert isinstance(first, RejectConnection), first
        while True:
            part = self._next(WAIT_S)
            assert isinstance(part, RejectData)
            body += bytes(part.data)
            if part.body_finished:
                raise Refused(first.status_code, body)

    def _send(self, event: Event) -> None:
        self._socket.sendall(self._wire.send(event))

    def _next(self, wait_s: float) -> Event:
        self._socket.settimeout(wait_s)
        while not self._events:
            self._wire.receive_data(self._socket.recv(65536) or None)
            self._events += self._wire.events()
        return self._events.pop(0)

    def say(self, value: object) -> None:
        """As JSON, a text as it is."""
        self._send(TextMessage(data=value if isinstance(value, str) else json.dumps(value)))

    def hear(self, wait_s: float = WAIT_S) -> Any:
        """The next message's JSON. Raises Closed, TimeoutError."""
        text = ""
        while True:
            event = self._next(wait_s)
            if isinstance(event, TextMessage):
                text += event.data
                if event.message_finished:
                    return json.loads(text)
            elif isinstance(event, Ping):
                self._send(event.response())
            elif isinstance(event, CloseConnection):
                raise Closed(event.code, event.reason)

    def close(self) -> None:
        """Without farewell."""
        self._socket.close()

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


@pytest.fixture(scope="session", params=BOTH)
def gate(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Our proxy before a broker with the WebSocket service."""
    folder = tmp_path_factory.mktemp(f"gate-{request.param}")
    settings = {"webSocketServiceEnabled": "true"}
    running = start_secured(request.param, folder, broker_settings=settings)
    yield running
    running.stop()
