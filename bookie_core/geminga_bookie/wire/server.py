"""The server of BookKeeper's wire protocol, before any bookie (spec BK-08, BK-09; Apache's
BookieNettyServer).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import trio

from geminga_bookie.port import BookiePort
from geminga_bookie.wire.auth import BookieAuth
from geminga_bookie.wire.session import BookieSession
from geminga_bookie.wire.session_limits import SessionLimits, Shared
from geminga_runtime.lasting import open_lasting_nursery
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
    unfinished_bytes_max: int = 256 * MiB
    """Bytes of frames that aren't whole yet, of all connections."""
    waiting_bytes_max: int = 40 * MiB
    """For the reads of all connections that wait for an entry, 10 KiB each; above it those of the
    connections that have most are answered ETOOMANYREQUESTS.
    """
    answers_bytes_max: int = 256 * MiB
    """Bytes of answers of all connections that clients have not taken. Above it requests wait, and
    connections that take nothing for two seconds are closed.
    """
    connections_max: int = CONNECTIONS_MAX
    drain_s: float = 0.0
    """Time for connections to end when the server is stopped."""
    tls: TlsContexts | None = None
    """For clients that ask for TLS on their connection (start-TLS); others go on without."""
    auth: BookieAuth | None = None
    """None lets everybody in."""


def shared_by(bookie: BookiePort, options: BookieServerOptions) -> Shared:
    """What the connections of a server share."""
    return Shared(
        bookie,
        unanswered_bytes_max=options.unanswered_bytes_max,
        unfinished_bytes_max=options.unfinished_bytes_max,
        waiting_bytes_max=options.waiting_bytes_max,
        answers_bytes_max=options.answers_bytes_max,
    )


async def serve_bookie(
    bookie: BookiePort,
    options: BookieServerOptions,
    *,
    shared: Shared | None = None,
    task_status: trio.TaskStatus[list[Bound]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve v2 and v3 on one port until cancelled. `shared` is what `shared_by` returned, if
    somebody else looks at it too. Raises BindFailed.
    """
    shared = shared or shared_by(bookie, options)
    serving = partial(
        serve,
        partial(_run, bookie, options, shared),
        host=options.host,
        port=options.port,
        key="bookiePort",
        connections_max=options.connections_max,
        drain_s=options.drain_s,
    )
    async with open_lasting_nursery() as beside, trio.open_nursery() as nursery:
        beside.start_soon(shared.run)
        bound: list[Bound] = await nursery.start(serving)
        task_status.started(bound)


async def _run(
    bookie: BookiePort, options: BookieServerOptions, shared: Shared, stream: FramedStream
) -> None:
    session = BookieSession(
        bookie, stream, options.limits, shared,
        offers_tls=options.tls is not None, auth=options.auth,
    )  # fmt: skip
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
        await BookieSession(bookie, framed, options.limits, shared, auth=options.auth).run()
    finally:
        await framed.aclose()
