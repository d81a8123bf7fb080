"""One request and its answer, as an ASGI application sees them (spec OP-03)."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from geminga_broker.web import answers
from geminga_broker.web.requests import Request
from geminga_broker.web.wire import BODY_READ_BYTES, Wire

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Message

_WITHOUT_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class WrongAnswer(RuntimeError):
    """The application's messages are not those of one answer."""


class ClientGone(OSError):
    """Nobody is left who would get the rest of the answer (ASGI, "Disconnected Client")."""


class Exchange:
    """Gives the application the request's body as it comes, and sends its answer.

    A head goes with the first of its body: one packet and one call less. An application without
    anything to send yet has not begun (ASGI, "Response Start").
    """

    def __init__(self, wire: Wire, request: Request, *, is_last: bool) -> None:
        self._wire = wire
        self._request = request
        self._has_ended = False
        """The request, for the application."""
        self._status = 0
        self._headers: Iterable[tuple[bytes, bytes]] = ()
        self._is_chunked = False
        self._left: int | None = None
        """Bytes of the body that were announced and not sent yet."""
        self.has_begun = False
        self.is_complete = False
        self.is_last = is_last
        """Whether the connection ends with it."""

    @property
    def is_started(self) -> bool:
        """Whether the application has said what it answers."""
        return bool(self._status)

    @property
    def has_all(self) -> bool:
        """Whether all of the request has come."""
        return self._request.is_complete

    async def receive(self) -> Message:
        """The next of the request: a part of its body, or that the client is gone."""
        request = self._request
        if self._has_ended:
            await self._wire.lost()
            return {"type": "http.disconnect"}
        if not request.body and not request.is_complete:
            if request.waits_to_send and not self.has_begun:
                self._wire.write(answers.CONTINUE)
            request.waits_to_send = False
            while not request.body and not request.is_complete:
                if not await self._wire.read_more(BODY_READ_BYTES):
                    return {"type": "http.disconnect"}
        self._has_ended = request.is_complete
        return {
            "type": "http.request",
            "body": request.taken(),
            "more_body": not request.is_complete,
        }

    def whole_body(self) -> bytes | None:
        """All of the request's body, as `receive` would give it, if it needn't be waited for."""
        if self._has_ended or not self._request.is_complete:
            return None
        self._has_ended = True
        return self._request.taken()

    async def send(self, message: Message) -> None:
        """Send a part of the answer. If the client is gone, nothing comes of it; for a part that
        isn't the last one raises ClientGone. Raises WrongAnswer, BadHeader.
        """
        kind = message["type"]
        if kind == "http.response.start" and not self._status:
            self._status = message["status"]
            self._headers = message.get("headers", ())
            return
        if kind != "http.response.body" or not self._status or self.is_complete:
            raise WrongAnswer(f"{kind} has no place here")
        body = message.get("body", b"")
        has_more = message.get("more_body", False)
        first = b"" if self.has_begun else self._head(None if has_more else len(body))
        if self._request.method == "HEAD" or self._status in _WITHOUT_BODY:
            body = b""
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0:
                raise WrongAnswer("the body is longer than its content-length")
        elif self._is_chunked:
            body = (answers.chunk(body) if body else b"") + (
                b"" if has_more else answers.LAST_CHUNK
            )
        self.has_begun = True
        self.is_complete = not has_more
        if self.is_complete and self._left:
            self.is_last = True  # the client waits for what is missing
        await self._wire.send(first, body)
        if has_more and self._wire.is_gone:
            raise ClientGone("the client is gone")

    async def end(self) -> None:
        """After the application: a head whose body never came goes alone, and the connection
        ends, as it does after half a body.
        """
        if self._status and not self.has_begun:
            self.has_begun = True
            await self._wire.send(self._head(None), b"")
        self.is_last |= not self.is_complete

    async def fail(self) -> None:
        """Answer for an application that didn't."""
        self.has_begun = True
        self.is_last = True
        await self._wire.send(
            answers.whole(HTTPStatus.INTERNAL_SERVER_ERROR, "HTTP 500", is_last=True), b""
        )

    def _head(self, body_bytes: int | None) -> bytes:
        """`body_bytes` are those of the whole body, if they are known."""
        has_length = False
        more = b""
        for name, value in self._headers:
            lower = name.lower()
            if lower == b"content-length":
                has_length = True
                self._left = int(value)
            elif lower == b"connection" and value.lower() == b"close":
                self.is_last = True
        if self._request.method == "HEAD" or self._status in _WITHOUT_BODY:
            self._left = None
        elif not has_length and body_bytes is not None:
            more = b"content-length: %d\r\n" % body_bytes
            self._left = body_bytes
        elif not has_length and self._request.version == "1.1":
            more = b"transfer-encoding: chunked\r\n"
            self._is_chunked = True
        elif not has_length:
            self.is_last = True  # the end of the body is that of the connection
        was_not_asked = self._request.waits_to_send and not self._request.is_complete
        if self._status == HTTPStatus.REQUEST_TIMEOUT or was_not_asked:
            self.is_last = True  # who was never told to go on may leave the body out
        if self.is_last:
            more += answers.CLOSES
        elif self._request.version == "1.0":
            more += b"connection: keep-alive\r\n"
        headers = self._headers
        if self.is_last:
            headers = [each for each in headers if each[0].lower() != b"connection"]
        return answers.head(self._status, headers, more)
