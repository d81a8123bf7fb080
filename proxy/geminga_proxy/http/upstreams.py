"""Connections to the brokers' web services, new and kept ones (spec PX-03, PX-06)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

import h11
import trio

from geminga_proxy.addresses import Address
from geminga_proxy.brokers import Rotation
from geminga_proxy.http.errors import BrokerFailed
from geminga_proxy.http.headers import Header, RedirectRules
from geminga_proxy.http.wire import Wire
from geminga_proxy.trust import WebBrokers
from geminga_runtime.connect import connect
from geminga_runtime.errors import ConnectFailed, ConnectionLost
from geminga_runtime.tls import TlsContexts

_log = logging.getLogger(__name__)

IDLE_PER_BROKER_MAX = 16
IDLE_S = 20.0
"""How long an unused connection is kept: shorter than by servers."""
HEAD_BYTES_MAX = 64 * 1024
BROKERS_MAX = 1000
"""Brokers with kept connections."""


class WebConnection:
    """One connection to a broker's web service, for one request at a time."""

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
        """Raises h11.LocalProtocolError for an invalid header."""
        host = (b"host", str(self.address).encode("ascii"))
        request = h11.Request(method=method, target=target, headers=[host, *headers])
        return self.http.send(request) or b""

    async def send(self, event: h11.Data | h11.EndOfMessage) -> None:
        """Raises ConnectionLost."""
        await self.send_bytes(self.http.send(event) or b"")

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes from h11. If cancelled, the connection isn't kept. Raises ConnectionLost."""
        self._is_sending = True
        await self.wire.send(data)
        self._is_sending = False

    async def next_event(self) -> h11.Event:
        """The next part of the broker's response. Raises BrokerFailed."""
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
        """Bytes that came after a switch to another protocol."""
        return self.http.trailing_data[0]

    @property
    def can_be_kept(self) -> bool:
        """Whether the connection can take another request."""
        http = self.http
        is_done = http.our_state is h11.DONE and http.their_state is h11.DONE
        # Bytes after the response would become part of the next client's response.
        return is_done and not self._is_sending and not http.trailing_data[0]

    def renew(self) -> None:
        """Prepare for the next request. Only if `can_be_kept`."""
        self.http.start_next_cycle()
        self.is_reused = True


class Upstreams:
    """Opens connections to brokers' web services, and keeps some of them."""

    def __init__(
        self,
        brokers: WebBrokers,
        tls: TlsContexts | None,
        connect_timeout_s: float,
        own_host: str = "",
    ) -> None:
        """`own_host` is the proxy's name in URLs."""
        self._brokers = brokers
        self._own_host = own_host
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self.no_url = ""
        """Why there is no broker to ask, if the configuration names none."""
        self.rotation = Rotation()
        self._idle: dict[Address, deque[WebConnection]] = {}
        self._closed = False

    @property
    def redirect_rules(self) -> RedirectRules:
        """Where a broker's redirects may lead."""
        return RedirectRules(
            "http" if self._tls is None else "https", self._brokers.is_known, self._own_host
        )

    @property
    def shows_certificate(self) -> bool:
        """Whether the proxy shows brokers a certificate."""
        return self._tls is not None and bool(self._tls.options.certificate_file)

    async def open_any(self, *, fresh: bool = False) -> WebConnection:
        """A connection to the next reachable broker. Raises BrokerFailed."""
        failure = BrokerFailed("no broker has been discovered yet")
        if self.no_url:
            failure = BrokerFailed(self.no_url, told=self.no_url)
        for address in self.rotation.order(self._brokers.listed):
            try:
                return await self.open(address, fresh=fresh)
            except BrokerFailed as error:
                failure = error
        raise failure

    async def open(self, address: Address, *, fresh: bool = False) -> WebConnection:
        """A connection to that broker, not a kept one if `fresh`. Raises BrokerFailed, also if the
        address is not a known broker's: requests contain credentials.
        """
        if not self._brokers.is_known(address):
            raise BrokerFailed(f"{address} is not a known broker")
        kept = None if fresh else await self._take_idle(address)
        if kept is not None:
            return kept
        deadline = trio.current_time() + self._connect_timeout_s
        try:
            stream = await connect(address.host, address.port, deadline=deadline, tls=self._tls)
        except ConnectFailed as error:
            self.rotation.is_dead(address)
            late = trio.current_time() >= deadline
            raise BrokerFailed(str(error), timed_out=late) from error
        self.rotation.is_alive(address)
        try:
            return WebConnection(address, await Wire.over(stream))
        except ConnectionLost as error:
            await stream.aclose()
            raise BrokerFailed(str(error)) from error
        except BaseException:
            await stream.aclose()
            raise

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
        """Keep a connection for another request if that is possible, or close it."""
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
        """Close connections that were kept too long. Called from time to time."""
        now_s = trio.current_time()
        for address, idle in list(self._idle.items()):
            while idle and now_s - idle[0].idle_since_s >= IDLE_S:
                await idle.popleft().wire.aclose()
            if not idle:
                self._idle.pop(address, None)

    async def aclose(self) -> None:
        """Close all kept connections; none is kept from now on."""
        self._closed = True
        while self._idle:
            _, idle = self._idle.popitem()
            for connection in idle:
                await connection.wire.aclose()
