"""The tree of protocol errors.

ProtocolError
  LocalProtocolError     our own side asked for something that can't be encoded
  RemoteProtocolError    the peer's bytes are invalid; holds the ServerError for the response
    InvalidMessageId     (ValueError) bytes that are no message id

Any other exception from this package is a defect.
"""

from __future__ import annotations

from geminga_protocol.pb.pulsar_api_pb2 import ServerError


class ProtocolError(Exception):
    """Base of both; never raised directly."""

    def __init__(self, message: str, code: ServerError = ServerError.UnknownError) -> None:
        if type(self) is ProtocolError:
            raise TypeError("raise LocalProtocolError or RemoteProtocolError")
        super().__init__(message)
        self.code = code


class LocalProtocolError(ProtocolError):
    """Our own side asked for something that can't be encoded."""


class RemoteProtocolError(ProtocolError):
    """The peer's bytes are invalid.

    `fatal`: the rest of the stream is unusable, and the connection must be closed.
    """

    def __init__(
        self, message: str, code: ServerError = ServerError.UnknownError, *, fatal: bool = False
    ) -> None:
        super().__init__(message, code)
        self.fatal = fatal


class InvalidMessageId(RemoteProtocolError, ValueError):
    """Bytes from a program or a client are no message id."""


_HTTP_BEGINNINGS = frozenset(
    (b"HTTP", b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")
) | {b"PRI "}


def other_protocol(first: bytes) -> str | None:
    """The other protocol that sent these first four bytes, or None."""
    if first in _HTTP_BEGINNINGS:
        return "HTTP (is this the web service's port?)"
    if first[:2] in (b"\x16\x03", b"\x15\x03"):
        return "TLS (is this the port for TLS, or its URL without pulsar+ssl?)"
    return None
