"""HTTP/1.1 as bytes: a request's head, and a response out of what the peer sends. No I/O.

A body ends by its length, its last chunk, or the end of the connection (RFC 9112). All that the
peer sends is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

HEAD_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 4 * 1024 * 1024
"""The largest body is a namespace's list of topics."""
CHUNK_LINE_BYTES_MAX = 1024


class BadHttpAnswer(Exception):
    """The peer doesn't speak HTTP/1.1, or its response is incomplete or too large."""


class HttpAnswer(NamedTuple):
    """A response; header names are in lower case, in `header_list` as the peer wrote them."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    header_list: Sequence[tuple[str, str]] = ()


class AnswerReader:
    """Bytes in, a response out. Pure."""

    def __init__(self, body_bytes_max: int = BODY_BYTES_MAX, *, has_body: bool = True) -> None:
        """An answer to HEAD has no body, whatever its headers say."""
        self._body_bytes_max = body_bytes_max
        self._has_body = has_body
        self._buffer = bytearray()
        self._body = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._header_list: list[tuple[str, str]] = []
        self._left: int | None = None
        """Bytes to come, of the body or of a chunk; None for a body without length."""
        self._is_chunked = False
        self._has_head = False
        self._in_trailers = False
        self._trailers_bytes = 0
        self._stays_open = False
        self.is_whole = False

    @property
    def answer(self) -> HttpAnswer:
        """The response, once `is_whole`."""
        return HttpAnswer(self._status, self._headers, bytes(self._body), self._header_list)

    @property
    def has_begun(self) -> bool:
        """Whether anything of the response is there."""
        return self._has_head or bool(self._buffer)

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow on the connection: the response is whole, the peer
        keeps the connection open, and has sent nothing more.
        """
        return self.is_whole and self._stays_open and not self._buffer

    def feed(self, data: bytes) -> None:
        """Take bytes in. Raises BadHttpAnswer."""
        self._buffer += data
        while not self._has_head:
            end = self._buffer.find(b"\r\n\r\n")
            if end > HEAD_BYTES_MAX or (end < 0 and len(self._buffer) > HEAD_BYTES_MAX):
                raise BadHttpAnswer("the headers are too long")
            if end < 0:
                return
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            self._read_head(head)
        if self._is_chunked:
            while not self.is_whole and self._read_chunk():
                pass
        else:
            self._take(len(self._buffer) if self._left is None else self._left)
            self.is_whole = self._left == 0

    def end(self) -> None:
        """The peer ended its side. Raises BadHttpAnswer if something is missing."""
        self._stays_open = False
        if not self.has_begun:
            raise BadHttpAnswer("closed without an HTTP answer (is this the web service's port?)")
        has_all = self._in_trailers or not (self._is_chunked or self._left is not None)
        if not self._has_head or not has_all:
            raise BadHttpAnswer("the response is cut short")
        self.is_whole = True

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        status = rest[:3]
        if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit()):
            raise BadHttpAnswer("no HTTP/1.1 answer")
        if status.startswith("1"):
            return  # an interim response: the final one follows
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadHttpAnswer("a header without colon")
            self._headers[name.strip().lower()] = value.strip()
            self._header_list.append((name.strip(), value.strip()))
        self._has_head = True
        self._status = int(status)
        length = self._headers.get("content-length")
        closes = "close" in self._headers.get("connection", "").lower()
        self._stays_open = version == "HTTP/1.1" and not closes
        if not self._has_body:
            self._left = 0
        elif self._headers.get("transfer-encoding", "").lower() == "chunked":
            self._is_chunked = True
        elif self._status in (204, 304):
            self._left = 0
        elif length is not None:
            if not (length.isascii() and length.isdigit() and len(length) < 16):
                raise BadHttpAnswer("Content-Length is not a number")
            self._left = int(length)
            if self._left > self._body_bytes_max:
                raise BadHttpAnswer("the response body is too long")

    def _read_chunk(self) -> bool:
        """Whether there may be more to read."""
        if self._in_trailers:
            return self._read_trailer()
        if self._left:
            self._take(self._left)
            if self._left:
                return False
        if self._left == 0:
            if len(self._buffer) < 2:
                return False
            if self._buffer[:2] != b"\r\n":
                raise BadHttpAnswer("a chunk has no line break at its end")
            del self._buffer[:2]
            self._left = None
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > CHUNK_LINE_BYTES_MAX:
                raise BadHttpAnswer("a chunk's length is too long")
            return False
        digits = bytes(self._buffer[:end]).partition(b";")[0].strip()
        del self._buffer[: end + 2]
        try:
            self._left = int(digits, 16) if len(digits) < 16 else -1
        except ValueError as error:
            raise BadHttpAnswer("a chunk's length is not a number") from error
        if not 0 <= self._left <= self._body_bytes_max - len(self._body):
            raise BadHttpAnswer("the response body is too long")
        self._in_trailers = self._left == 0
        return True

    def _read_trailer(self) -> bool:
        """As `_read_chunk`: trailers are passed over, up to the empty line."""
        end = self._buffer.find(b"\r\n")
        line_bytes = len(self._buffer) if end < 0 else end
        if self._trailers_bytes + line_bytes > HEAD_BYTES_MAX:
            raise BadHttpAnswer("the trailers are too long")
        if end >= 0:
            self._trailers_bytes += line_bytes
            del self._buffer[: end + 2]
            self.is_whole = end == 0
        return end >= 0

    def _take(self, size_bytes: int) -> None:
        part = self._buffer[:size_bytes]
        if len(self._body) + len(part) > self._body_bytes_max:
            raise BadHttpAnswer("the response body is too long")
        self._body += part
        del self._buffer[: len(part)]
        if self._left is not None:
            self._left -= len(part)


REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods whose request may be sent again if it is unknown whether it arrived (RFC 9110, 9.2.2)."""

METHODS_WITH_BODY = ("POST", "PUT")
"""Methods whose requests have a length even without a body."""


def request_head(
    method: str, host: str, target: str, headers: Mapping[str, str], *, stays_open: bool = False
) -> bytes:
    """The lines before a request's body. Raises BadHttpAnswer for a line break in one of them."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Accept: */*"]
    if not stays_open:
        lines.append("Connection: close")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise BadHttpAnswer("line break in the request")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
