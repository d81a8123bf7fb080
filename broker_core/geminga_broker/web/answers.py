"""The bytes of answers (RFC 9112)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

Headers = Iterable[tuple[bytes, bytes]]

_LINES = {
    each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode("ascii") for each in HTTPStatus
}
_ENDS_HEADER = (b"\r", b"\n", b"\0")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSES = b"connection: close\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class BadHeader(ValueError):
    """A header of an answer that would not be one header."""


class _Date:
    """The header with the time, made once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """Of now."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = b"date: %s\r\n" % formatdate(second, usegmt=True).encode("ascii")
        return self._line


_date = _Date()


def head(status: int, headers: Headers, more: bytes = b"") -> bytes:
    """An answer's head; `more` are whole lines. Raises BadHeader."""
    line = _LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    parts = [line]
    for name, value in headers:
        for end in _ENDS_HEADER:
            if end in value or end in name:
                raise BadHeader(f"the header {name!r} has a line's end in its value")
        parts.append(b"%b: %b\r\n" % (name, value))
    parts += (_date.line(), more, b"\r\n")
    return b"".join(parts)


def chunk(data: bytes) -> bytes:
    """A piece of a body whose length isn't known yet."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(status: int, text: str, *, is_last: bool, more: Headers = ()) -> bytes:
    """A short answer that no application makes."""
    body = text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        *more,
    ]
    return head(status, headers, CLOSES if is_last else b"") + body
