"""Connections to brokers, one or a few for each (spec SDK-40; ConnectionPool of the Java
client).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from geminga._connection import Connection
from geminga._service_url import Address
from geminga.errors import AlreadyClosed, ConnectionFailed, GemingaError, InvalidServiceUrl
from geminga.options import ClientOptions
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Promise


class Endpoint(NamedTuple):
    """A broker, and where to connect for it: another place if a proxy stands between."""

    address: Address
    proxy_to_broker_url: str | None = None


Connector = Callable[[str, int, float], Awaitable[FramedStream]]
"""(host, port, deadline of Trio's clock) -> a stream. Raises geminga_runtime's ConnectFailed."""


async def connect_tcp(host: str, port: int, deadline: float) -> FramedStream:
    """The connector for real networks."""
    return await connect(host, port, deadline=deadline)


class ConnectionPool:
    """Opens a connection when one is first wanted, and again after it was lost."""

    def __init__(self, options: ClientOptions, nursery: trio.Nursery, connector: Connector) -> None:
        self._options = options
        self._connector = connector
        self._nursery = nursery
        self._connections: dict[tuple[Endpoint, int], Connection] = {}
        self._opening: dict[tuple[Endpoint, int], Promise[Connection]] = {}
        self._turn = 0
        self._closed = False

    @property
    def connections(self) -> list[Connection]:
        """Those that are open."""
        return [each for each in self._connections.values() if not each.is_lost]

    async def get(self, endpoint: Endpoint) -> Connection:
        """A ready connection. Raises ConnectionFailed, Timeout, AlreadyClosed, or what the broker
        answers to CONNECT.
        """
        self._turn += 1
        key = endpoint, self._turn % self._options.connections_per_broker
        known = self._connections.get(key)
        if known is not None and not known.is_lost:
            return known
        promise = self._opening.get(key)
        if promise is None:
            if self._closed:
                raise AlreadyClosed("the client is closed")
            # Opened in a task of its own: whoever asked first may be cancelled, others wait too.
            promise = self._opening[key] = Promise()
            self._nursery.start_soon(self._open, key, promise)
        try:
            return await promise.wait()
        except GemingaError as error:
            raise type(error)(str(error), code=error.code) from error

    async def _open(self, key: tuple[Endpoint, int], promise: Promise[Connection]) -> None:
        try:
            connection = await self._connect(key[0])
        except GemingaError as error:
            promise.reject(error)
        else:
            self._connections[key] = connection
            promise.resolve(connection)
        finally:
            self._opening.pop(key, None)
            promise.reject(AlreadyClosed("the client is closed"))

    async def _connect(self, endpoint: Endpoint) -> Connection:
        deadline = trio.current_time() + self._options.connection_timeout_s
        stream = await self.open_stream(endpoint.address, deadline)
        connection = Connection(
            stream, self._options.keep_alive_interval_s, self._options.authentication
        )
        self._nursery.start_soon(connection.run)
        await connection.handshake(
            max(0.0, deadline - trio.current_time()), endpoint.proxy_to_broker_url
        )
        return connection

    async def open_stream(self, address: Address, deadline: float) -> FramedStream:
        """A stream that isn't kept here; `deadline` is of Trio's clock. Raises ConnectionFailed."""
        if address.tls:
            raise InvalidServiceUrl(f"{address.url}: TLS is not available in this version")
        try:
            return await self._connector(address.host, address.port, deadline)
        except ConnectFailed as error:
            raise ConnectionFailed(str(error)) from error

    def close(self) -> None:
        """Close all connections; none is opened any more."""
        self._closed = True
        self.drop_all("the client was closed")

    def drop_all(self, reason: str) -> None:
        """Close all connections; they are opened anew when they are wanted."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close(reason)
