"""A client's side of HTTP/1.1: bytes in, events out; responses in, bytes out (spec PX-06; RFC 9110,
9112). Pure, over h11.

A request that servers read in different ways is refused, so that no request can hide in another:
h11 accepts a bare line feed, joins folded lines, and prefers Transfer-Encoding over Content-Length.
So heads are checked here before h11 gets them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import h11

from geminga_proxy.http.errors import BadRequest

Headers = list[tuple[bytes, bytes]]

LENGTH_DIGITS_MAX = 18
UNREADABLE = "Bad request: this is not HTTP/1.1"
"""Used instead of h11's text, which quotes the line: it may contain a token."""

ONCE = (b"host", b"authorization", b"x-pulsar-auth-method-name")
"""Headers that must be unique: of two, servers differ in which one they use."""

_END = b"\r\n\r\n"
_BARE = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_FOLDED = re.compile(rb"\r\n[ \t]")
_TARGET = re.compile(rb"(?:/|\*\Z|https?://)[!\x22$-~]*")
"""Without "#": to Jetty it ends the path, to others it is a part of it."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body. Header names are in lower case, in the client's order."""

    method: bytes
    target: bytes
    """Path and query."""
    headers: tuple[tuple[bytes, bytes], ...]
    version: bytes
    has_body: bool
    length: int | None
    """Bytes of the body, None if it comes in chunks."""

    def value(self, name: bytes) -> bytes:
        """All values of a header, joined by commas; empty without it."""
        return b", ".join(value for key, value in self.headers if key == name)


@dataclass(frozen=True, slots=True)
class BodyPart:
    """Some bytes of a body."""

    data: bytes


@dataclass(frozen=True, slots=True)
class BodyEnd:
    """The body is complete."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The client closed its side between two requests."""


Event = RequestHead | BodyPart | BodyEnd | Gone


class ClientSide:
    """One connection. Each request gets a new h11 connection, so that h11 gets no unchecked byte of
    the next one.
    """

    def __init__(self, head_bytes_max: int) -> None:
        self._head_bytes_max = head_bytes_max
        self._http = h11.Connection(h11.SERVER)
        self._buffer = bytearray()
        self._looked_at = 0
        self._in_head = True
        self._ended = False
        self._method = b""
        self._in_chunks = False
        self._recent = b""
        self._body_left: int | None = None
        """Bytes of the body that were not read yet, None if it comes in chunks."""
        self.answered = False
        """Whether the response has begun."""

    def has_begun(self) -> bool:
        """Whether a part of a request's head was received."""
        return self._in_head and bool(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take bytes from the client, b"" at the end."""
        if not data:
            self._ended = True
        if self._in_head:
            self._buffer += data
        elif self._http.their_state is h11.SEND_BODY:
            self._receive(data)
        else:
            self._buffer += data

    def _receive(self, data: bytes) -> None:
        self._recent = self._recent[-len(_END) :] + data
        try:
            self._http.receive_data(data)
        except h11.RemoteProtocolError:
            raise BadRequest(UNREADABLE) from None

    @property
    def stashed_bytes(self) -> int:
        """Bytes of later requests that came during this one."""
        return 0 if self._in_head else len(self._buffer)

    def next_event(self) -> Event | None:
        """None if more bytes are needed. Raises BadRequest."""
        if self._in_head:
            return self._read_head()
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError:
            raise BadRequest(UNREADABLE) from None
        if isinstance(event, h11.Data):
            if self._body_left is not None:
                self._body_left -= len(event.data)
            return BodyPart(bytes(event.data))
        if isinstance(event, h11.EndOfMessage):
            rest, _ = self._http.trailing_data
            chunks_end = self._recent[: len(self._recent) - len(rest)]
            if self._in_chunks and (event.headers or not chunks_end.endswith(_END)):
                raise BadRequest("Trailers, or a body that does not end with CR LF")
            self._buffer[:0] = rest
            return BodyEnd()
        return None

    def _read_head(self) -> Event | None:
        buffer = self._buffer
        if buffer[:2] == b"\r\n":
            del buffer[:2]  # after a request, by old clients (RFC 9112, 2.2)
        end = buffer.find(_END, max(0, self._looked_at - 3))
        self._refuse_bare(len(buffer) if end < 0 else end + 4)
        if end > self._head_bytes_max or (end < 0 and len(buffer) > self._head_bytes_max):
            raise BadRequest("Request header fields are too large", 431)
        if end < 0:
            self._looked_at = len(buffer)
            if not self._ended:
                return None
            if buffer:
                raise BadRequest("The request is cut short")
            return Gone()
        head = bytes(buffer[: end + 4])
        rest = bytes(buffer[end + 4 :])
        buffer.clear()
        self._looked_at = 0
        request = self._parse(head)
        self._in_head = False
        self._method = request.method
        self._in_chunks = request.has_body and request.length is None
        self._body_left = request.length
        if request.has_body:
            if rest:  # h11 takes b"" for the end of the stream
                self._receive(rest)
            if self._ended:
                self._receive(b"")
        else:
            self._http.next_event()  # h11's EndOfMessage
            buffer += rest
        return request

    def _refuse_bare(self, end: int) -> None:
        # A carriage return at the very end may still get its line feed.
        found = _BARE.search(self._buffer, max(0, self._looked_at - 1), end)
        if found and not (found.group() == b"\r" and found.end() == len(self._buffer)):
            raise BadRequest("A line that does not end with CR LF")

    def _parse(self, head: bytes) -> RequestHead:
        if _FOLDED.search(head):
            raise BadRequest("A folded header line")
        self._receive(head)
        try:
            request = self._http.next_event()
        except h11.RemoteProtocolError:
            raise BadRequest(UNREADABLE) from None
        if not isinstance(request, h11.Request):
            raise BadRequest("No request")
        headers = tuple((bytes(name), bytes(value)) for name, value in request.headers)
        return _checked(bytes(request.method), bytes(request.target), headers, request.http_version)

    # ---- responses ----

    def interim(self, status: int, headers: Headers) -> bytes:
        """An interim response; empty for HTTP/1.0, which has none."""
        if self._http.their_http_version == b"1.0":
            return b""
        return (
            self._http.send(h11.InformationalResponse(status_code=status, headers=headers)) or b""
        )

    def answer(self, status: int, headers: Headers, reason: bytes = b"") -> bytes:
        """The head of a response. Without Content-Length the body is chunked or ends the stream.
        One that comes before the request's body is whole says that the connection ends.
        """
        self.answered = True
        if self.is_body_open:
            headers = [*headers, (b"connection", b"close")]
        response = h11.Response(status_code=status, headers=headers, reason=reason)
        return self._http.send(response) or b""

    def part(self, data: bytes) -> bytes:
        """A part of a response's body; empty for HEAD."""
        if self._method == b"HEAD":
            return b""
        return self._http.send(h11.Data(data=data)) or b""

    def end(self) -> bytes:
        """The end of a response."""
        return self._http.send(h11.EndOfMessage()) or b""

    def switch(self, headers: Headers) -> bytes:
        """A 101: the connection becomes a tunnel."""
        self.answered = True
        return self._http.send(h11.InformationalResponse(status_code=101, headers=headers)) or b""

    def take_rest(self) -> bytes:
        """Bytes that the client sent after a request that became a tunnel."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    @property
    def waits_for_continue(self) -> bool:
        """Whether the client sends its body only after a 100."""
        return self._http.they_are_waiting_for_100_continue

    @property
    def is_body_open(self) -> bool:
        """Whether a part of the request's body is still to come, or to be read. The end of one
        whose length was known needs no more bytes.
        """
        return self._http.their_state is h11.SEND_BODY and self._body_left != 0

    def finish_body(self) -> bool:
        """After the response: take the end of a body of which nothing else is left; returns
        `is_body_open`.
        """
        is_open = self.is_body_open
        if self._http.their_state is h11.SEND_BODY and not is_open:
            self.next_event()
        return is_open

    @property
    def can_go_on(self) -> bool:
        """Whether the connection can take another request."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def go_on(self) -> None:
        """Prepare for the next request. Only if `can_go_on`."""
        assert self.can_go_on
        self._http = h11.Connection(h11.SERVER)
        self._in_head = True
        self._looked_at = 0
        self.answered = False


def _checked(
    method: bytes, target: bytes, headers: tuple[tuple[bytes, bytes], ...], version: bytes
) -> RequestHead:
    """Raises BadRequest."""
    if version not in (b"1.0", b"1.1"):
        raise BadRequest("This version of HTTP is not spoken here", 505)
    names = [name for name, _ in headers]
    in_chunks = b"transfer-encoding" in names
    lengths = {value for name, value in headers if name == b"content-length"}
    if in_chunks and (lengths or version == b"1.0"):
        raise BadRequest("Transfer-Encoding beside Content-Length, or in HTTP/1.0")
    if len(lengths) > 1 or any(len(value) > LENGTH_DIGITS_MAX for value in lengths):
        raise BadRequest("More than one length, or none that can be")
    for name in ONCE:
        if names.count(name) > 1:
            raise BadRequest(f"More than one header {name.decode()}")
    length = int(lengths.pop()) if lengths else None
    if not _TARGET.fullmatch(target):
        raise BadRequest("The request target is neither a path nor a URL")
    return RequestHead(method, _path(target), headers, version, in_chunks or bool(length), length)


def _path(target: bytes) -> bytes:
    """Path and query, also of an absolute URL, as forward proxies get it."""
    if target.startswith((b"/", b"*")):
        return target
    rest = target.partition(b"://")[2]
    slash = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    path = rest[slash:]
    return path if path.startswith(b"/") else b"/" + path
