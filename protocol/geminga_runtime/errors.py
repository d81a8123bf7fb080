"""Errors of the runtime; foreign exceptions of sockets and Trio become these at the boundary.

ConnectionError
  ConnectionLost      a connection that stood is gone
  ConnectFailed       none could be made
    TlsRefused        the peer answers, but TLS with it can't be had
  TlsFailed           TLS broke; becomes one of the others at the boundary
OSError
  BindFailed          the server's address can't be taken
RequestTimeout        (TimeoutError) no answer in time
TooManyRequests       a bounded table is full
"""

from __future__ import annotations


class ConnectionLost(ConnectionError):
    """The connection broke, or was closed on our side, while it was in use."""


class ConnectFailed(ConnectionError):
    """No connection could be made: refused, unknown host, or the deadline passed."""


class TlsRefused(ConnectFailed):
    """The peer answers, but it speaks no TLS, its certificate isn't trusted, or ours isn't."""


class TlsFailed(ConnectionError):
    """The handshake failed, or what came later is no TLS; the text says why."""


class BindFailed(OSError):
    """The address to serve at is taken, not ours, or not allowed; the message names it."""


class RequestTimeout(TimeoutError):
    """The peer did not answer a request in time; nothing is known of its effect."""


class TooManyRequests(Exception):
    """A table of pending requests is at its bound."""
