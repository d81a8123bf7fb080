"""A client of this broker, in its process, with the identity of the WebSocket's client.

Its connections are pairs of sockets whose other end is served as any client's, but for the hand-
shake: the session begins as the caller. So all that holds for clients (authorization, revoked
grants, limits, statistics) holds for WebSockets, and no role of the broker's own is needed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

import geminga
from geminga._connection.service_url import parse
from geminga.client import open_client
from geminga.options import ClientOptions
from geminga_broker.authz.authorizer import Caller
from geminga_broker.service import BrokerService
from geminga_broker.session.serving import handle_connection
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts

_log = logging.getLogger(__name__)

URL = "pulsar://in-process:6650"
OPERATION_TIMEOUT_S = 30.0


@asynccontextmanager
async def client_as(
    service: BrokerService, caller: Caller, address: str
) -> AsyncIterator[geminga.Client]:
    """A client that is closed at the block's end; `address` is what statistics show."""
    async with trio.open_nursery() as nursery:

        async def connector(
            host: str, port: int, deadline: float, tls: TlsContexts | None = None
        ) -> FramedStream:
            # There is one broker, this one, whatever its address; another's isn't named yet.
            ours, theirs = trio.socket.socketpair()
            served = FramedStream(trio.SocketStream(theirs), name=address)
            nursery.start_soon(_serve, served, service, caller)
            return FramedStream(trio.SocketStream(ours), name=address)

        options = ClientOptions(operation_timeout_s=OPERATION_TIMEOUT_S)
        async with open_client(parse(URL), options, connector) as client:
            yield client
        nursery.cancel_scope.cancel()


async def _serve(stream: FramedStream, service: BrokerService, caller: Caller) -> None:
    try:
        await handle_connection(stream, service, caller)
    except* ConnectionLost as lost:
        _log.debug("%s", lost.exceptions[0])
    finally:
        await stream.aclose()
