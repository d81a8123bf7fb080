"""The server of BookKeeper's wire protocol, before any bookie (spec BK-08, BK-09; Apache's
BookieNettyServer).
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial

import trio

from geminga_bookie.port import BookiePort
from geminga_bookie.wire.session import BookieSession
from geminga_bookie.wire.session_limits import SessionLimits, SharedBudget
from geminga_runtime.server import CONNECTIONS_MAX, Bound, serve
from geminga_runtime.stream import FramedStream

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


def serve_bookie(
    bookie: BookiePort,
    options: BookieServerOptions,
    *,
    task_status: trio.TaskStatus[list[Bound]] = trio.TASK_STATUS_IGNORED,
) -> Awaitable[None]:
    """Serve v2 and v3 on one port until cancelled. Raises BindFailed."""
    handler = partial(_run, bookie, options.limits, SharedBudget(options.unanswered_bytes_max))
    return serve(
        handler,
        host=options.host,
        port=options.port,
        connections_max=options.connections_max,
        drain_s=options.drain_s,
        task_status=task_status,
    )


async def _run(
    bookie: BookiePort, limits: SessionLimits, budget: SharedBudget, stream: FramedStream
) -> None:
    await BookieSession(bookie, stream, limits, budget).run()
