"""The client of one WebSocket: at this broker as who opened the WebSocket, at others as this broker
(spec PX-09; Apache's WebSocketService has a client with the broker's credentials).

Other brokers know this broker only. So the right of who opened the WebSocket is checked here,
before a connection to another broker is made, and once more whenever grants were revoked.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

import geminga
from geminga._connection.pool import connect_tcp
from geminga_broker.authz.authorizer import Caller, place_of
from geminga_broker.authz.commands import COMMANDS
from geminga_broker.authz.grants import SubscriptionRefused
from geminga_broker.authz.needs import Place
from geminga_broker.inner_client import client_of
from geminga_broker.service import BrokerService
from geminga_broker.websocket.errors import refusal
from geminga_broker.websocket.parameters import Endpoint
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand
from geminga_protocol.topic_name import TopicName
from geminga_runtime.logs import shown
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts

_log = logging.getLogger(__name__)


class Right:
    """What the WebSocket's client does, for `session.connections.Connections`: `scope` is cancelled
    once it may no longer do that.
    """

    def __init__(
        self,
        service: BrokerService,
        caller: Caller,
        endpoint: Endpoint,
        dead_letters: TopicName | None = None,
    ) -> None:
        """`dead_letters`: where a consumer's client publishes what is delivered too often."""
        self._service = service
        self._caller = caller
        self._topic = endpoint.topic
        publish, subscribe = (
            COMMANDS[kind] for kind in (BaseCommand.Type.PRODUCER, BaseCommand.Type.SUBSCRIBE)
        )
        need = publish if endpoint.kind == "producer" else subscribe
        self._asked = [(need, place_of(endpoint.topic, endpoint.subscription))]
        if dead_letters is not None:
            self._asked.append((publish, place_of(dead_letters)))
        self.scope = trio.CancelScope()

    async def is_there(self) -> bool:
        """Whether the client has the right now."""
        return await self.missing() is None

    async def missing(self) -> Place | None:
        """The first place for which the client lacks the right."""
        for need, place in self._asked:
            try:
                if not await self._service.authorizer.allows(self._caller, need, place):
                    return place
            except SubscriptionRefused:
                return place
        return None

    def stop(self) -> None:
        """See `ClientSession.stop`: the client's own connections end."""

    def require_recheck(self) -> None:
        """See `ClientSession.require_recheck`: `recheck` follows."""

    async def recheck(self, concerned: Callable[[Place], bool]) -> None:
        """See `ClientSession.recheck`."""
        if not any(concerned(place) for _, place in self._asked):
            return
        place = await self.missing()
        if place is not None:
            _log.warning("%s may no longer use %s", self._caller, shown(place.topic))
            self.scope.cancel()


@asynccontextmanager
async def client_as(
    service: BrokerService,
    caller: Caller,
    endpoint: Endpoint,
    address: str,
    dead_letters: TopicName | None = None,
) -> AsyncIterator[geminga.Client]:
    """A client that is closed at the block's end; statistics show `address`. The block is cancelled
    once who opened the WebSocket loses the right to what another broker serves.

    Raises Refused if it has no right to publish `dead_letters`, wherever those go.
    """
    right = Right(service, caller, endpoint, dead_letters)
    if dead_letters is not None and await right.missing() == place_of(dead_letters):
        error = geminga.AuthorizationError(f"not authorized to publish to {dead_letters}")
        raise refusal(error, "producer/consumer")

    async def elsewhere(
        host: str, port: int, deadline: float, tls: TlsContexts | None
    ) -> FramedStream:
        if not await right.is_there():
            raise geminga.AuthorizationError(f"not authorized to use {endpoint.topic}")
        service.connections.sessions[right] = None
        return await connect_tcp(host, port, deadline, tls)

    with right.scope:
        try:
            async with client_of(service, caller, address, elsewhere) as client:
                yield client
        finally:
            service.connections.sessions.pop(right, None)
