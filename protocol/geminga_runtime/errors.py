"""Errors of the runtime; exceptions of sockets and Trio are mapped to these at the boundary.

ConnectionError
  ConnectionLost      an open connection is lost
  ConnectFailed       no connection could be opened
    TlsRefused        connected, but TLS fails
    TlsUnanswered     closed during the handshake, before the peer sent anything
  TlsFailed           TLS failed; mapped to one of the others at the boundary
OSError
  BindFailed          the server's address can't be taken
RequestTimeout        (TimeoutError) no answer in time
TooManyRequests       a bounded table is full
"""

from __future__ import annotations

import errno
import socket


class ConnectionLost(ConnectionError):
    """The connection broke, or was closed on our side, while it was in use."""


class ConnectFailed(ConnectionError):
    """No connection could be opened: refused, unknown host, or the deadline passed."""


class TlsRefused(ConnectFailed):
    """The peer speaks no TLS, or one side doesn't trust the other's certificate."""


class TlsUnanswered(ConnectFailed):
    """The peer closed during the TLS handshake and sent nothing: it has no TLS, or is stopping."""


class TlsFailed(ConnectionError):
    """The handshake failed, or a later record is invalid; the text says why."""


class BindFailed(OSError):
    """The address to listen on is in use, not local, or not allowed; the message names it."""

    @classmethod
    def of(cls, key: str, host: str, port: int, error: OSError) -> BindFailed:
        """The error of binding `host:port`; `key` is the configuration's for the port, or empty."""
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = "; stop the program that has the port, or set another one"
        elif error.errno == errno.EACCES:
            hint = "; ports below 1024 need rights that this process hasn't"
        elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            hint = "; the address must be one of this machine's"
        prefix = f"{key}: " if key else ""
        return cls(f"{prefix}can't listen on {host}:{port}: {error.strerror or error}{hint}")


class RequestTimeout(TimeoutError):
    """The peer did not answer a request in time; the request may have taken effect."""


class TooManyRequests(Exception):
    """A table of pending requests is at its bound."""
