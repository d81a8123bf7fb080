"""One WebSocket: texts in and out, and its end."""

from __future__ import annotations

import trio
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from geminga_broker.websocket.errors import CLOSE_GOING_AWAY
from geminga_broker.websocket.settings import WebSocketSettings


class Ended(Exception):
    """The client disconnected."""


class TextSocket:
    """Sends and receives whole texts; binary messages are ignored, as by Apache."""

    def __init__(self, websocket: WebSocket, settings: WebSocketSettings) -> None:
        self._websocket = websocket
        self._settings = settings
        self._heard_s = trio.current_time()
        # Two tasks send.
        self._sending = trio.Lock()

    async def receive(self) -> str:
        """Raises Ended."""
        while True:
            try:
                message = await self._websocket.receive()
            except (WebSocketDisconnect, RuntimeError):
                raise Ended from None
            self._heard_s = trio.current_time()
            if message["type"] == "websocket.disconnect":
                raise Ended
            text = message.get("text")
            if isinstance(text, str):
                return text

    async def send(self, text: str) -> None:
        """Send a text. Raises Ended."""
        async with self._sending:
            try:
                await self._websocket.send_text(text)
            except (WebSocketDisconnect, RuntimeError):
                raise Ended from None
            self._heard_s = trio.current_time()

    async def close(self, code: int, reason: str) -> None:
        """Close with a reason, if the client is still connected."""
        if self._websocket.application_state is WebSocketState.CONNECTED:
            try:
                await self._websocket.close(code, reason[:120])
            except (WebSocketDisconnect, RuntimeError):
                pass

    async def watch_idle(self) -> None:
        """Close the socket when idle for `webSocketSessionIdleTimeoutMillis`. PONGs are traffic."""
        timeout_s = self._settings.idle_timeout_ms / 1000
        if not timeout_s or self._settings.ping_interval_s > 0:
            await trio.sleep_forever()
        due_s = self._heard_s + timeout_s
        while trio.current_time() < due_s:
            await trio.sleep_until(due_s)
            due_s = self._heard_s + timeout_s
        await self.close(CLOSE_GOING_AWAY, "Idle Timeout")
