"""Opening connections."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable

import trio

from geminga_runtime.errors import ConnectFailed, TlsFailed, TlsRefused
from geminga_runtime.stream import WRITE_HIGH_BYTES, FramedStream
from geminga_runtime.tls import TlsContexts
from geminga_runtime.tls_stream import TlsStream

_sockets: weakref.WeakSet[trio.socket.SocketType] = weakref.WeakSet()


async def connect(
    host: str,
    port: int,
    *,
    deadline: float = math.inf,
    write_high_bytes: int = WRITE_HIGH_BYTES,
    tls: TlsContexts | None = None,
    server_name: str = "",
    preface: Callable[[str, int], bytes] | None = None,
) -> FramedStream:
    """A stream to `host:port`, by TLS if contexts for it are given; of several addresses the first
    to answer wins (RFC 8305). The certificate must be of `server_name`, or else of the host. What
    `preface` makes of the address that is connected to is sent first, by TLS if there is.

    `deadline` is a time of Trio's clock. Raises ConnectFailed, and TlsRefused, which is one, for
    what waiting doesn't heal. The caller starts `run_writer` and closes.
    """
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        with trio.fail_at(deadline):
            opened = await trio.open_tcp_stream(host, port)
            close_in_children(opened.socket)
            stream: trio.abc.Stream = opened
            if tls is not None:
                stream = await _secured(opened, server_name or host, tls)
            if preface is not None:
                await _send_first(stream, preface(*opened.socket.getpeername()[:2]))
    except TlsFailed as error:
        raise TlsRefused(f"{name}: {error}") from error
    except trio.TooSlowError as error:
        raise ConnectFailed(f"{name}: not connected before the deadline") from error
    except OSError as error:
        raise ConnectFailed(f"{name}: {_reason(error)}") from error
    return FramedStream(stream, name=name, write_high_bytes=write_high_bytes)


async def _send_first(stream: trio.abc.Stream, data: bytes) -> None:
    try:
        await stream.send_all(data)
    except trio.BrokenResourceError as error:
        await trio.aclose_forcefully(stream)
        raise ConnectionResetError(str(error)) from None
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


async def _secured(stream: trio.SocketStream, host: str, tls: TlsContexts) -> TlsStream:
    secured = TlsStream(stream, tls.current(), server_hostname=host)
    try:
        await secured.do_handshake()
    except BaseException:
        secured.close()
        raise
    return secured


def _reason(error: BaseException) -> str:
    """The first real cause: Trio raises one error, or a group beneath it when several were
    tried.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = error.strerror if isinstance(error, OSError) else str(error)
    return text or str(error) or type(error).__name__


def close_in_children(socket: trio.socket.SocketType) -> None:
    """Have each child that is forked from now on close its copy, if it is still open then.

    While any process holds a socket, the peer doesn't see that the others have closed it.
    """
    _sockets.add(socket)


def _after_fork() -> None:
    for each in list(_sockets):
        # Detached, not closed by Trio: the child's copy of its loop shares the kernel's events with
        # the parent, and would take the parent's registration away. Closing a copy sends nothing,
        # by TLS neither.
        fd = each.detach()
        if fd >= 0:
            os.close(fd)
    _sockets.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
