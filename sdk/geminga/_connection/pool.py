"""Connections to brokers, one or a few per broker (spec SDK-40; Java's ConnectionPool)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import trio

from geminga._connection.access import Access
from geminga._connection.background import Background
from geminga._connection.connection import Connection
from geminga._connection.service_url import Address
from geminga.errors import (
    AlreadyClosedError,
    BrokerError,
    ConnectionFailedError,
    GemingaError,
    TlsError,
    WrongProtocolError,
)
from geminga.options import ClientOptions
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, TlsRefused, TlsUnanswered
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts
from geminga_runtime.waiters import Promise


class Endpoint(NamedTuple):
    """A broker, and the address to connect to: the proxy's if there is one. `cluster` is the index
    of its cluster for the failover.
    """

    address: Address
    proxy_to_broker_url: str | None = None
    cluster: int = 0


class Connector(Protocol):
    """Opens streams; `tls` is given for addresses with TLS only."""

    async def __call__(
        self, host: str, port: int, deadline: float, tls: TlsContexts | None = None
    ) -> FramedStream:
        """`deadline` is of Trio's clock. Raises geminga_runtime's ConnectFailed."""
        ...


async def connect_tcp(
    host: str, port: int, deadline: float, tls: TlsContexts | None = None
) -> FramedStream:
    """The connector for real networks."""
    return await connect(host, port, deadline=deadline, tls=tls)


class ConnectionPool:
    """Opens a connection on first use, and again after it was lost."""

    def __init__(
        self,
        options: ClientOptions,
        nursery: Background,
        connector: Connector,
        clusters: list[Access],
    ) -> None:
        self._options = options
        self._clusters = clusters
        self._cluster = 0
        self._connector = connector
        self._nursery = nursery
        self._connections: dict[tuple[Endpoint, int], Connection] = {}
        self._opening: dict[tuple[Endpoint, int], Promise[Connection]] = {}
        self._turn = 0
        self.is_closed = False
        """Whether the client was closed: no connection is opened any more."""
        self.opened = 0
        """Number of connections opened so far."""
        self.failures = {"tcp-failed": 0, "handshake": 0}
        """Number of attempts that failed, by where."""
        self._openings = trio.lowlevel.ParkingLot()

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return [each for each in self._connections.values() if not each.is_lost]

    async def get(self, endpoint: Endpoint) -> Connection:
        """A ready connection. Raises ConnectionFailedError, OperationTimeoutError,
        AlreadyClosedError, or the broker's error for CONNECT.
        """
        if endpoint.cluster != self._cluster:
            # A lookup and credentials of one cluster don't apply to another.
            raise ConnectionFailedError(f"{endpoint.address.url}: the client left this cluster")
        self._turn += 1
        key = endpoint, self._turn % self._options.connections_per_broker
        known = self._connections.get(key)
        if known is not None and not known.is_lost:
            return known
        promise = self._opening.get(key)
        if promise is None:
            if self.is_closed:
                raise AlreadyClosedError("the client is closed")
            # Opened in its own task: the first caller may be cancelled while others wait.
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
            if self.is_closed:
                connection.close("the client was closed")
            elif key[0].cluster == self._cluster:
                self._connections[key] = connection
                self.opened += 1
                promise.resolve(connection)
                self._openings.unpark_all()
            else:
                connection.close("the client left this cluster")
                promise.reject(ConnectionFailedError(f"{connection.name}: left while connecting"))
        finally:
            self._opening.pop(key, None)
            promise.reject(AlreadyClosedError("the client is closed"))

    async def wait_for_opening(self) -> None:
        """Wait until another connection is opened."""
        await self._openings.park()

    async def _connect(self, endpoint: Endpoint) -> Connection:
        deadline = trio.current_time() + self._options.connection_timeout_s
        access = self._clusters[endpoint.cluster]
        try:
            stream = await self.open_stream(endpoint.address, deadline, endpoint.cluster)
        except GemingaError as error:
            self.failures["tcp-failed"] += 1
            unanswered = isinstance(error.__cause__, TlsUnanswered)
            speaks = self._speaks_without_tls
            if unanswered and await speaks(endpoint.address, deadline):  # noqa: ASYNC120
                raise WrongProtocolError(
                    f"{error}; it speaks Pulsar's protocol without TLS: the URL of this port is "
                    "pulsar://"
                ) from error
            raise
        connection = Connection(
            stream,
            self._options.keep_alive_interval_s,
            access.authentication,
            prefers_tls=endpoint.address.tls,
        )
        self._nursery.start_soon(connection.run)
        timeout_s = max(0.0, deadline - trio.current_time())
        try:
            await connection.handshake(timeout_s, endpoint.proxy_to_broker_url)
        except GemingaError:
            self.failures["handshake"] += 1
            raise
        return connection

    async def _speaks_without_tls(self, address: Address, deadline: float) -> bool:
        """Whether the port is a broker's one without TLS; a broker that is stopping, or a balancer
        without one, closes a handshake, too. No credentials are sent.
        """
        try:
            stream = await self._connector(address.host, address.port, deadline)
        except ConnectFailed:
            return False
        connection = Connection(stream, self._options.keep_alive_interval_s)
        self._nursery.start_soon(connection.run)
        try:
            await connection.handshake(max(0.0, deadline - trio.current_time()), None)
        except BrokerError:
            return True
        except GemingaError:
            return False
        finally:
            connection.close("TLS is wanted")
        return True

    async def open_stream(self, address: Address, deadline: float, cluster: int) -> FramedStream:
        """A stream outside of the pool; `deadline` is of Trio's clock. Raises
        ConnectionFailedError, also as TlsError.
        """
        host, port = address.host, address.port
        try:
            if address.tls:
                tls = self._clusters[cluster].tls
                return await self._connector(host, port, deadline, tls=tls)
            return await self._connector(host, port, deadline)
        except TlsRefused as error:
            raise TlsError(str(error)) from error
        except ConnectFailed as error:
            raise ConnectionFailedError(str(error)) from error

    def close(self) -> None:
        """Close all connections, and open no more."""
        self.is_closed = True
        self.drop_all("the client was closed")

    def go_to(self, cluster: int) -> None:
        """Close all connections; new ones are to that cluster."""
        self._cluster = cluster
        self.drop_all("the client switches to another cluster")

    def drop_all(self, reason: str) -> None:
        """Close all connections; they are reopened on use."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close(reason)
