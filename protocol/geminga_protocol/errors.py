"""The tree of protocol errors.

ProtocolError
  LocalProtocolError     we asked for something that can't be put on the wire
  RemoteProtocolError    the peer sent something that can't be understood; carries the ServerError
  to answer with
    InvalidMessageId     (ValueError) bytes that are no message id

Any other exception out of this package is a defect.
"""

from __future__ import annotations

from geminga_protocol.pb.pulsar_api_pb2 import ServerError


class ProtocolError(Exception):
    """Base of both; never raised itself."""

    def __init__(self, message: str, code: ServerError = ServerError.UnknownError) -> None:
        if type(self) is ProtocolError:
            raise TypeError("raise LocalProtocolError or RemoteProtocolError")
        super().__init__(message)
        self.code = code


class LocalProtocolError(ProtocolError):
    """What our own side asked for is not possible on the wire."""


class RemoteProtocolError(ProtocolError):
    """The peer's bytes are wrong.

    `fatal` says that the stream can't be trusted any more, so the connection must be closed.
    """

    def __init__(
        self, message: str, code: ServerError = ServerError.UnknownError, *, fatal: bool = False
    ) -> None:
        super().__init__(message, code)
        self.fatal = fatal


class InvalidMessageId(RemoteProtocolError, ValueError):
    """Bytes that a program kept, or that a client sent, are no message id."""


_HTTP_BEGINNINGS = frozenset(
    (b"HTTP", b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")
) | {b"PRI "}


def other_protocol(first: bytes) -> str | None:
    """The protocol whose first four bytes were taken for a frame's length; None if unknown."""
    if first in _HTTP_BEGINNINGS:
        return "HTTP (is this the web service's port?)"
    if first[:2] in (b"\x16\x03", b"\x15\x03"):
        return "TLS (is this the port for TLS, or its URL without pulsar+ssl?)"
    return None
