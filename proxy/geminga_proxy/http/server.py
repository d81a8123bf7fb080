"""The proxy's web ports (spec PX-05, PX-06)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from geminga_proxy.addresses import Address, parse_urls
from geminga_proxy.config import ProxyConfig
from geminga_proxy.http.errors import HttpError
from geminga_proxy.http.session import HttpSession
from geminga_proxy.http.upstreams import IDLE_S, Upstreams
from geminga_proxy.http.wire import Wire
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.logs import shown
from geminga_runtime.server import Bound, ConnectionCount, serve
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts
from geminga_runtime.tls_settings import NO_PORT

if TYPE_CHECKING:
    from geminga_proxy.service import ProxyService

CLIENT_SEND_S = 60.0
"""How long a client may leave a part of an answer, at most 64 KiB, unread."""
CROWDED = 0.75
"""Share of the connections that may be there from which on silent ones must leave."""

_log = logging.getLogger(__name__)


class Web:
    """What all HTTP connections of one proxy share."""

    def __init__(self, service: ProxyService) -> None:
        """Raises ConfigError."""
        self.service = service
        self.config: ProxyConfig = service.config
        where, tls = self.config.brokers, service.brokers.tls
        if tls is None:
            addresses = parse_urls("brokerWebServiceURL", where.web_url)
        else:
            addresses = parse_urls("brokerWebServiceURLTLS", where.web_url_tls)
        timeout_s = where.connect_timeout_ms / 1000
        own_host = self.config.listen.advertised_address.lower()
        self.upstreams = Upstreams(addresses, tls, timeout_s, own_host)
        self.nameless = Upstreams(addresses, tls and _nameless(tls), timeout_s, own_host)
        """For WebSockets, where the client speaks for itself: these connections show no certificate
        of the proxy's, which Apache's service would take for the client's.
        """
        service.brokers.on_web_found = self._found
        self.is_draining = False
        self.requests = 0
        web = self.config.web
        self.count = ConnectionCount(web.connections_max, web.connections_per_ip_max)
        self._websockets: Counter[str] = Counter()
        self._idle: dict[trio.CancelScope, None] = {}

    def _found(self, addresses: Sequence[Address]) -> None:
        self.upstreams.found(addresses)
        self.nameless.found(addresses)

    async def handle(self, stream: FramedStream, *, secure: bool) -> None:
        """Serve one client until it leaves."""
        try:
            wire = await Wire.over(stream)
            wire.send_s = CLIENT_SEND_S
            self._make_room()
            await HttpSession(stream, wire, self, secure=secure).run()
        except ConnectionLost as error:
            _log.debug("%s", error)

    def _make_room(self) -> None:
        """Many are here: who has been silent longest leaves, so that nobody can keep all others out
        by saying nothing.
        """
        if self.count.open > self.count.connections_max * CROWDED and self._idle:
            scope = next(iter(self._idle))
            del self._idle[scope]
            scope.cancel()

    @contextmanager
    def idle(self, scope: trio.CancelScope) -> Iterator[None]:
        """While nothing is under way, the scope is cancelled when the proxy stops."""
        if self.is_draining:
            scope.cancel()
        self._idle[scope] = None
        try:
            yield
        finally:
            self._idle.pop(scope, None)

    @contextmanager
    def one_more_websocket(self, who: str) -> Iterator[None]:
        """Counts it while the context is open. Raises HttpError 429."""
        most = self.config.web.websockets_per_role_max
        if most and self._websockets[who] >= most:
            _log.warning("%s has %d WebSockets open: refused", shown(who), most)
            raise HttpError(429, "Too many WebSockets of this role")
        self._websockets[who] += 1
        try:
            yield
        finally:
            self._websockets[who] -= 1
            if not self._websockets[who]:
                del self._websockets[who]

    def drain(self) -> None:
        """Requests that are under way may end; no connection takes another one."""
        self.is_draining = True
        for scope in self._idle:
            scope.cancel()

    async def keep(self) -> None:
        """Close connections to brokers that nobody uses, and all of them at the end."""
        try:
            while True:
                await trio.sleep(IDLE_S / 2)
                await self.upstreams.close_old()
                await self.nameless.close_old()
        finally:
            self.drain()
            with trio.CancelScope(shield=True):
                await self.upstreams.aclose()
                await self.nameless.aclose()


def _nameless(tls: TlsContexts) -> TlsContexts:
    """The same without a certificate of one's own. Raises TlsConfigError."""
    return TlsContexts(replace(tls.options, certificate_file="", key_file=""))


async def serve_http(service: ProxyService, nursery: trio.Nursery) -> list[tuple[str, Bound]]:
    """Listen on the web ports there are; schemes and where they listen.

    Raises BindFailed, ConfigError.
    """
    listen = service.config.listen
    if listen.web_port == listen.web_port_tls == NO_PORT:
        return []
    web = Web(service)
    found: list[tuple[str, Bound]] = []
    for scheme, port in (("http", listen.web_port), ("https", listen.web_port_tls)):
        if port == NO_PORT:
            continue
        secure = scheme == "https"
        listening = partial(
            serve,
            partial(web.handle, secure=secure),
            host=listen.bind_address,
            port=port,
            connections_max=web.count,
            drain_s=listen.drain_s,
            tls=service.config.tls.contexts() if secure else None,
            proxy_header=listen.haproxy_protocol,
        )
        bound: list[Bound] = await nursery.start(listening)
        found.append((scheme, bound[0]))
    nursery.start_soon(web.keep)
    return found
