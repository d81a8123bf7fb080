"""Errors of the runtime; exceptions of sockets and Trio are mapped to these at the boundary.

ConnectionError
  ConnectionLost      an open connection is lost
  ConnectFailed       no connection could be opened
    TlsRefused        connected, but TLS fails
  TlsFailed           TLS failed; mapped to one of the others at the boundary
OSError
  BindFailed          the server's address can't be taken
RequestTimeout        (TimeoutError) no answer in time
TooManyRequests       a bounded table is full
"""

from __future__ import annotations


class ConnectionLost(ConnectionError):
    """The connection broke, or was closed on our side, while it was in use."""


class ConnectFailed(ConnectionError):
    """No connection could be opened: refused, unknown host, or the deadline passed."""


class TlsRefused(ConnectFailed):
    """The peer speaks no TLS, or one side doesn't trust the other's certificate."""


class TlsFailed(ConnectionError):
    """The handshake failed, or a later record is invalid; the text says why."""


class BindFailed(OSError):
    """The address to listen on is in use, not local, or not allowed; the message names it."""


class RequestTimeout(TimeoutError):
    """The peer did not answer a request in time; the request may have taken effect."""


class TooManyRequests(Exception):
    """A table of pending requests is at its bound."""
