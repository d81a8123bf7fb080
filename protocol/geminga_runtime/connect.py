"""Opening connections."""

from __future__ import annotations

import math
import os
import re
import weakref
from collections.abc import Awaitable, Callable

import trio

from geminga_runtime.errors import ConnectFailed, TlsFailed, TlsRefused, TlsUnanswered
from geminga_runtime.host_port import host_port
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
    start_tls: Callable[[trio.abc.Stream], Awaitable[object]] | None = None,
    introduce: Callable[[trio.abc.Stream], Awaitable[object]] | None = None,
) -> FramedStream:
    """`open_stream`, with queued writes. The caller starts `run_writer` and closes."""
    stream = await open_stream(
        host,
        port,
        deadline=deadline,
        tls=tls,
        server_name=server_name,
        preface=preface,
        start_tls=start_tls,
        introduce=introduce,
    )
    return FramedStream(stream, name=host_port(host, port), write_high_bytes=write_high_bytes)


async def open_stream(
    host: str,
    port: int,
    *,
    deadline: float = math.inf,
    tls: TlsContexts | None = None,
    server_name: str = "",
    preface: Callable[[str, int], bytes] | None = None,
    start_tls: Callable[[trio.abc.Stream], Awaitable[object]] | None = None,
    introduce: Callable[[trio.abc.Stream], Awaitable[object]] | None = None,
) -> trio.abc.Stream:
    """A stream to `host:port`, by TLS if `tls` is given; of several addresses the first to answer
    wins (RFC 8305). The certificate must be valid for `server_name`, by default the host. The bytes
    that `preface` returns for the connected address are sent first, inside TLS. `start_tls` asks
    the peer for TLS on the plain stream, and reads no byte behind its answer; it raises TlsFailed
    if the peer has none. `introduce` speaks to the peer before the stream is returned, inside TLS.

    `deadline` is a time of Trio's clock. Raises ConnectFailed, or its subclass TlsRefused when a
    retry is useless, or TlsUnanswered when it may be.
    """
    name = host_port(host, port)
    try:
        with trio.fail_at(deadline):
            opened = await trio.open_tcp_stream(host, port)
            close_in_children(opened.socket)
            stream: trio.abc.Stream = opened
            if tls is not None:
                if start_tls is not None:
                    await _closing_if_failed(opened, start_tls(opened))
                stream = await _secured(opened, server_name or host, tls)
            if preface is not None:
                first = preface(*opened.socket.getpeername()[:2])
                await _closing_if_failed(stream, stream.send_all(first))
            if introduce is not None:
                await _closing_if_failed(stream, introduce(stream))
    except TlsFailed as error:
        raise TlsRefused(f"{name}: {error}") from error
    except TlsUnanswered as error:
        raise TlsUnanswered(f"{name}: {_reason(error)}") from error
    except trio.TooSlowError as error:
        raise ConnectFailed(f"{name}: not connected before the deadline") from error
    except OSError as error:
        raise ConnectFailed(f"{name}: {_plain(_reason(error), host)}") from error
    return stream


_TRIOS = re.compile(r"Error connecting to \('([^']*)', [^)]*\): (.*)")


def _plain(reason: str, host: str) -> str:
    """Without Trio's repetition of the address, which is kept if it isn't the one asked for."""
    found = _TRIOS.fullmatch(reason)
    if found is None:
        return reason
    return found[2] if found[1] == host else f"{found[2]} ({found[1]})"


async def _closing_if_failed(stream: trio.abc.Stream, talk: Awaitable[object]) -> None:
    try:
        await talk
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
    except ConnectionResetError as error:
        secured.close()
        if secured.has_heard:
            raise
        raise TlsUnanswered(str(error)) from error
    except BaseException:
        secured.close()
        raise
    return secured


def _reason(error: BaseException) -> str:
    """The first real cause: Trio raises one error, whose cause is a group if it tried several
    addresses.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = error.strerror if isinstance(error, OSError) else str(error)
    return text or str(error) or type(error).__name__


def close_in_children(socket: trio.socket.SocketType) -> None:
    """Close the copy of an open socket in each child that is forked from now on.

    The peer doesn't see a close while any process still holds the socket.
    """
    _sockets.add(socket)


def _after_fork() -> None:
    for each in list(_sockets):
        # Not closed by Trio: the child's loop shares its epoll object with the parent, and Trio
        # would remove the parent's registration. Closing a copy sends nothing, even with TLS.
        fd = each.detach()
        if fd >= 0:
            os.close(fd)
    _sockets.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
