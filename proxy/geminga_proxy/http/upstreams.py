"""The brokers' web services: whose turn it is, and kept connections (spec PX-03, PX-06)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

import h11
import trio

from geminga_proxy.addresses import Address
from geminga_proxy.http.errors import BrokerFailed
from geminga_proxy.http.headers import Header, Neighbours
from geminga_proxy.http.wire import Wire
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, ConnectionLost
from geminga_runtime.tls import TlsContexts

_log = logging.getLogger(__name__)

DEAD_S = 5.0
"""A broker that could not be reached is asked last for so long."""
IDLE_PER_BROKER_MAX = 16
IDLE_S = 20.0
"""How long a connection is kept without a request: less than servers do."""
HEAD_BYTES_MAX = 64 * 1024
BROKERS_MAX = 1000
"""Brokers that connections are kept of."""


class WebConnection:
    """One connection to a broker, for one request after the other."""

    def __init__(self, address: Address, wire: Wire) -> None:
        self.address = address
        self.wire = wire
        self.http = self._new()
        self.is_reused = False
        self.idle_since_s = 0.0
        self._is_sending = False

    @staticmethod
    def _new() -> h11.Connection:
        return h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)

    def encode_head(self, method: bytes, target: bytes, headers: Sequence[Header]) -> bytes:
        """Raises h11.LocalProtocolError for what can't stand in a header."""
        host = (b"host", str(self.address).encode("ascii"))
        request = h11.Request(method=method, target=target, headers=[host, *headers])
        return self.http.send(request) or b""

    async def send(self, event: h11.Data | h11.EndOfMessage) -> None:
        """Raises ConnectionLost."""
        await self.send_bytes(self.http.send(event) or b"")

    async def send_bytes(self, data: bytes) -> None:
        """The same with what h11 has made. Cancelled, the connection can't be kept."""
        self._is_sending = True
        await self.wire.send(data)
        self._is_sending = False

    async def next_event(self) -> h11.Event:
        """What the broker says next. Raises BrokerFailed."""
        try:
            while True:
                event = self.http.next_event()
                if event is h11.PAUSED:
                    return h11.EndOfMessage()
                if event is not h11.NEED_DATA:
                    assert not isinstance(event, type)
                    if isinstance(event, h11.ConnectionClosed):
                        raise BrokerFailed(f"{self.address} closed the connection")
                    return event
                self.http.receive_data(await self.wire.receive())
        except ConnectionLost as error:
            raise BrokerFailed(str(error)) from error
        except h11.RemoteProtocolError as error:
            raise BrokerFailed(f"{self.address} does not speak HTTP/1.1: {error}") from error

    def take_rest(self) -> bytes:
        """What came behind a switch to another protocol."""
        return self.http.trailing_data[0]

    @property
    def can_be_kept(self) -> bool:
        """Whether it can take another request."""
        http = self.http
        is_done = http.our_state is h11.DONE and http.their_state is h11.DONE
        # Bytes beyond the answer would be taken for the next client's.
        return is_done and not self._is_sending and not http.trailing_data[0]

    def renew(self) -> None:
        """For the next request. Only if it can be kept."""
        self.http.start_next_cycle()
        self.is_reused = True


class Upstreams:
    """Knows the brokers' web addresses and keeps some connections to them."""

    def __init__(
        self,
        addresses: Sequence[Address],
        tls: TlsContexts | None,
        connect_timeout_s: float,
        own_host: str = "",
    ) -> None:
        """`own_host` is the proxy's name in URLs."""
        self.listed = list(addresses)
        """Brokers that requests go to."""
        self.discovered: frozenset[Address] = frozenset()
        self._is_configured = bool(addresses)
        self._own_host = own_host
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._next = 0
        self._dead_until_s: dict[Address, float] = {}
        self._idle: dict[Address, deque[WebConnection]] = {}
        self._closed = False

    @property
    def neighbours(self) -> Neighbours:
        """Where a broker's redirects may lead."""
        return Neighbours("http" if self._tls is None else "https", self.knows, self._own_host)

    @property
    def shows_certificate(self) -> bool:
        """Whether brokers know the proxy by its certificate."""
        return self._tls is not None and bool(self._tls.options.certificate_file)

    def found(self, addresses: Sequence[Address]) -> None:
        """Discovery says that these are the brokers' web services now."""
        if not addresses:
            return
        self.discovered = frozenset(addresses)
        if not self._is_configured:
            self.listed = list(addresses)

    def knows(self, address: Address) -> bool:
        """Whether a broker listens there, by the configuration or by discovery."""
        return address in self.listed or address in self.discovered

    def in_turn(self) -> list[Address]:
        """All brokers, another one first each time, those that were just unreachable last."""
        self._next += 1
        start = self._next % len(self.listed) if self.listed else 0
        now_s = trio.current_time()
        turned = self.listed[start:] + self.listed[:start]
        return sorted(turned, key=lambda one: self._dead_until_s.get(one, 0.0) > now_s)

    async def open_any(self, *, fresh: bool = False) -> WebConnection:
        """A connection to the broker whose turn it is. Raises BrokerFailed."""
        failure = BrokerFailed("no broker's web service is known")
        for address in self.in_turn():
            try:
                return await self.open(address, fresh=fresh)
            except BrokerFailed as error:
                failure = error
        raise failure

    async def open(self, address: Address, *, fresh: bool = False) -> WebConnection:
        """A connection to that broker, a kept one unless `fresh`. Raises BrokerFailed, also for an
        address that is no known broker's: what is sent there holds credentials.
        """
        if not self.knows(address):
            raise BrokerFailed(f"{address} is no known broker")
        kept = None if fresh else await self._take_idle(address)
        if kept is not None:
            return kept
        deadline = trio.current_time() + self._connect_timeout_s
        try:
            stream = await connect(address.host, address.port, deadline=deadline, tls=self._tls)
        except ConnectFailed as error:
            self.is_dead(address)
            late = trio.current_time() >= deadline
            raise BrokerFailed(str(error), timed_out=late) from error
        self._dead_until_s.pop(address, None)
        try:
            return WebConnection(address, await Wire.over(stream))
        except ConnectionLost as error:
            await stream.aclose()
            raise BrokerFailed(str(error)) from error
        except BaseException:
            await stream.aclose()
            raise

    def is_dead(self, address: Address) -> None:
        """It could not be reached, or left in mid-answer."""
        if len(self._dead_until_s) >= BROKERS_MAX:
            self._dead_until_s.clear()
        self._dead_until_s[address] = trio.current_time() + DEAD_S

    async def _take_idle(self, address: Address) -> WebConnection | None:
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            aged_s = trio.current_time() - connection.idle_since_s
            if aged_s < IDLE_S and connection.wire.is_quiet:
                connection.renew()
                return connection
            await connection.wire.aclose()
        return None

    async def give_back(self, connection: WebConnection) -> None:
        """Keep it for another request if it can be, or close it."""
        connection.idle_since_s = trio.current_time()
        if self._closed or not connection.can_be_kept:
            await connection.wire.aclose()
            return
        idle = self._idle.setdefault(connection.address, deque())
        idle.append(connection)
        if len(idle) > IDLE_PER_BROKER_MAX:
            await idle.popleft().wire.aclose()
        if len(self._idle) > BROKERS_MAX:
            for old in self._idle.pop(next(iter(self._idle))):
                await old.wire.aclose()

    async def close_old(self) -> None:
        """Close what was kept too long. Called now and then."""
        now_s = trio.current_time()
        for address, idle in list(self._idle.items()):
            while idle and now_s - idle[0].idle_since_s >= IDLE_S:
                await idle.popleft().wire.aclose()
            if not idle:
                self._idle.pop(address, None)

    async def aclose(self) -> None:
        """Close all that is kept; from now on nothing is."""
        self._closed = True
        while self._idle:
            _, idle = self._idle.popitem()
            for connection in idle:
                await connection.wire.aclose()
