"""Requests cut out of a connection's bytes (spec OP-03, PX-24; RFC 9112)."""

from __future__ import annotations

import re
from collections import deque
from http import HTTPStatus

import httptools

HEAD_BYTES_MAX = 64 * 1024
"""Bytes of a request's head; also of what comes at the end of a body, or between its parts."""
TARGET_BYTES_MAX = 16 * 1024
"""Escaped; the longest names fit. Each route's pattern looks at all of it."""
_VERSIONS = ("1.0", "1.1")
_HTTP_2 = b"PRI * HTTP/2"
_TLS_HELLO = b"\x16\x03"
_HEAD_AGAIN = b"POST / HTTP/1.1\r\nHost: again\r\n"
_METHOD = re.compile(rb"\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+ /")


class BadRequest(Exception):
    """The bytes are no request that can be answered. The connection's framing is lost."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Request:
    """A head, and what has come of its body."""

    __slots__ = (
        *("body", "framing", "headers", "is_complete", "is_last", "method", "target", "upgrade"),
        *("version", "waits_to_send"),
    )

    def __init__(self) -> None:
        self.method = ""
        self.target = b""
        self.version = ""
        self.headers: list[tuple[bytes, bytes]] = []
        """Names in lower case, in the order in which they came."""
        self.body: list[bytes] = []
        """Pieces that nobody has taken yet."""
        self.framing = b""
        """The header that says how long the body is; empty if there is none."""
        self.is_complete = False
        self.is_last = False
        """Whether the client sends nothing more on this connection (RFC 9112, 9.6)."""
        self.upgrade = b""
        """The protocol that the client wants to speak from here on, in lower case."""
        self.waits_to_send = False
        """Whether the body comes only after 100 Continue (RFC 9110, 10.1.1)."""

    def header(self, name: bytes) -> bytes | None:
        """The first of this name, which is given in lower case."""
        for each, value in self.headers:
            if each == name:
                return value
        return None

    def taken(self) -> bytes:
        """What has come of the body since the last call."""
        body = self.body
        if not body:
            return b""
        self.body = []
        return body[0] if len(body) == 1 else b"".join(body)


class RequestReader:
    """Fed with a connection's bytes; `ready` has the requests whose heads are whole.

    What it holds is bounded by a read and `HEAD_BYTES_MAX`, if bodies are taken and requests
    answered before more is fed. Nothing is read behind the last request.
    """

    def __init__(self) -> None:
        self.ready: deque[Request] = deque()
        self.failed: BadRequest | None = None
        """Why nothing more can be read; requests before it are whole."""
        self.upgraded: bytes | None = None
        """What came behind the head of a request for a WebSocket, which is the last."""
        self._parser = httptools.HttpRequestParser(self)
        self._coming = Request()
        self._current: Request | None = None
        """Whose body comes."""
        self._stalled_bytes = 0
        """Fed since a head or a piece of a body was whole."""
        self._is_over = False
        self._is_again = False
        """Whether the parser reads a head of ours, for the body behind it.

        It takes no body behind a head that asks for another protocol: what follows would be read as
        the next request, which a client's body must never be.
        """

    @property
    def is_over(self) -> bool:
        """Whether nothing more is read."""
        return self._is_over or self.failed is not None

    def feed(self, data: bytes) -> None:
        """Read on. Never raises: see `failed`."""
        if self.is_over:
            return
        self._stalled_bytes += len(data)
        try:
            self._parse(data)
        except BadRequest as error:
            self.failed = error
        except httptools.HttpParserError as error:
            if not self.is_over:
                self.failed = self._malformed(data, error)
        if self._stalled_bytes > HEAD_BYTES_MAX and not self.is_over:
            self.failed = BadRequest(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"A request's head must have {HEAD_BYTES_MAX} bytes at most",
            )

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
            except httptools.HttpParserCallbackError as error:
                cause = error.__context__
                raise cause if isinstance(cause, BadRequest) else error from None
            else:
                return
            if self.ready and self.ready[-1].upgrade == b"websocket":
                self._is_over = True
                self.upgraded = data
                return
            # Any other protocol is not spoken here: the connection goes on (RFC 9110, 7.8).
            self._parser = httptools.HttpRequestParser(self)
            if self._current is not None:
                data = _HEAD_AGAIN + self._current.framing + b"\r\n\r\n" + data
                self._is_again = True

    def _malformed(self, data: bytes, error: Exception) -> BadRequest:
        if data.startswith(_HTTP_2):
            return _only_http_1()
        if isinstance(error, httptools.HttpParserInvalidMethodError):
            if data.startswith(_TLS_HELLO):
                return BadRequest(HTTPStatus.BAD_REQUEST, "This port is without TLS: use http://")
            if _METHOD.match(data):
                return BadRequest(HTTPStatus.NOT_IMPLEMENTED, "HTTP has no such method")
        return BadRequest(HTTPStatus.BAD_REQUEST, f"This is no HTTP/1.1 request: {error}")

    # Called by the parser.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._coming = Request()

    def on_url(self, piece: bytes) -> None:
        """A piece of the target."""
        self._coming.target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or one behind a body, which says nothing here."""
        if self._current is None:
            self._coming.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """A head is whole. Raises BadRequest."""
        if self._is_again:
            self._is_again = False
            return
        request = self._coming
        parser = self._parser
        request.method = parser.get_method().decode("ascii")
        request.version = parser.get_http_version()
        _check(request)
        self._stalled_bytes = 0
        self._current = request
        self.ready.append(request)

    def on_body(self, piece: bytes) -> None:
        """A piece of a body."""
        self._stalled_bytes = 0
        if self._current is not None:
            self._current.body.append(piece)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._stalled_bytes = 0
        request = self._current
        if request is not None and request.framing and self._parser.should_upgrade():
            return  # only its head is: see `_is_again`
        self._current = None
        if request is not None:
            request.is_complete = True
            self._is_over = request.is_last


def _check(request: Request) -> None:
    """What the parser leaves open. Sets what follows from the headers. Raises BadRequest."""
    if request.version not in _VERSIONS:
        raise _only_http_1()
    hosts = 0
    connection = b""
    for name, value in request.headers:
        if name == b"host":
            hosts += 1
        elif name == b"connection":
            connection += b"," + value.lower()
        elif name == b"proxy-connection" and value.lower() == b"close":
            connection += b",close"  # the parser heeds it, and reads no further
        elif name == b"upgrade":
            request.upgrade = value.strip().lower()
        elif name == b"expect":
            request.waits_to_send = value.strip().lower() == b"100-continue"
        elif name == b"transfer-encoding":
            if request.version == "1.0":
                # Whoever stands between may read it otherwise (RFC 9112, 6.1).
                text = "Transfer-Encoding is not of HTTP/1.0"
                raise BadRequest(HTTPStatus.BAD_REQUEST, text)
            if value.strip().lower() != b"chunked":
                raise BadRequest(
                    HTTPStatus.NOT_IMPLEMENTED, "Transfer-Encoding may be chunked, nothing else"
                )
            request.framing = b"transfer-encoding: chunked"
        elif name == b"content-length" and value.strip(b"0"):
            request.framing = b"content-length: " + value
    if hosts > 1 or (not hosts and request.version == "1.1"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "A request must have one Host header")
    if not request.target.isascii():
        raise BadRequest(HTTPStatus.BAD_REQUEST, "A request's target must be ASCII")
    options = {each.strip() for each in connection.split(b",")} if connection else ()
    if request.version == "1.0":
        request.is_last = b"keep-alive" not in options
        request.waits_to_send = False
    else:
        request.is_last = b"close" in options
    request.is_last |= request.method == "CONNECT"
    is_plain = bool(request.framing) or request.method != "GET" or request.version == "1.0"
    if is_plain or b"upgrade" not in options:
        request.upgrade = b""


def _only_http_1() -> BadRequest:
    return BadRequest(
        HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "Only versions 1.0 and 1.1 of HTTP are spoken here"
    )
