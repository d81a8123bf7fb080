"""The server of BookKeeper's wire protocol, before any bookie (spec BK-08, BK-09; Apache's
BookieNettyServer).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial

import trio

from geminga_bookie.port import BookiePort
from geminga_bookie.wire.session import BookieSession
from geminga_bookie.wire.session_limits import SessionLimits, SharedBudget
from geminga_runtime.server import CONNECTIONS_MAX, HANDSHAKE_TIMEOUT_S, Bound, serve
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts
from geminga_runtime.tls_stream import TlsStream

_log = logging.getLogger(__name__)

MiB = 1024 * 1024


@dataclass(frozen=True)
class BookieServerOptions:
    """Where to listen, and the bounds of all connections."""

    host: str
    port: int
    """0 takes a free one."""
    limits: SessionLimits = SessionLimits()
    unanswered_bytes_max: int = 256 * MiB
    """Bytes of adds of all connections that are not answered; above it nothing is read."""
    connections_max: int = CONNECTIONS_MAX
    drain_s: float = 0.0
    """Time for connections to end when the server is stopped."""
    tls: TlsContexts | None = None
    """For clients that ask for TLS on their connection (start-TLS); others go on without."""


def serve_bookie(
    bookie: BookiePort,
    options: BookieServerOptions,
    *,
    task_status: trio.TaskStatus[list[Bound]] = trio.TASK_STATUS_IGNORED,
) -> Awaitable[None]:
    """Serve v2 and v3 on one port until cancelled. Raises BindFailed."""
    handler = partial(_run, bookie, options, SharedBudget(options.unanswered_bytes_max))
    return serve(
        handler,
        host=options.host,
        port=options.port,
        connections_max=options.connections_max,
        drain_s=options.drain_s,
        task_status=task_status,
    )


async def _run(
    bookie: BookiePort, options: BookieServerOptions, budget: SharedBudget, stream: FramedStream
) -> None:
    session = BookieSession(
        bookie, stream, options.limits, budget, offers_tls=options.tls is not None
    )
    await session.run()
    plain = session.plain
    if plain is None or options.tls is None:
        return
    assert isinstance(plain, trio.SocketStream)
    secured = TlsStream(plain, options.tls.current(), server_side=True)
    try:
        with trio.fail_after(HANDSHAKE_TIMEOUT_S):
            await secured.do_handshake()
    except (OSError, trio.TooSlowError) as error:
        _log.warning("TLS handshake with %s failed: %s", stream.name, error or "too slow")
        return
    framed = FramedStream(secured, name=stream.name)
    try:
        await BookieSession(bookie, framed, options.limits, budget).run()
    finally:
        await framed.aclose()
