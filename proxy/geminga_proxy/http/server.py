"""The proxy's web ports (spec PX-05, PX-06)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from geminga_proxy.addresses import Address, parse_urls
from geminga_proxy.config import ProxyConfig
from geminga_proxy.http.session import HttpSession
from geminga_proxy.http.upstreams import IDLE_S, Upstreams
from geminga_proxy.http.wire import Wire
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.server import Bound, ConnectionCount, serve
from geminga_runtime.stream import FramedStream
from geminga_runtime.tls import TlsContexts
from geminga_runtime.tls_settings import NO_PORT

if TYPE_CHECKING:
    from geminga_proxy.service import ProxyService

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
        self._idle: dict[trio.CancelScope, None] = {}

    def _found(self, addresses: Sequence[Address]) -> None:
        self.upstreams.found(addresses)
        self.nameless.found(addresses)

    async def handle(self, stream: FramedStream, *, secure: bool) -> None:
        """Serve one client until it leaves."""
        try:
            wire = await Wire.over(stream)
            await HttpSession(stream, wire, self, secure=secure).run()
        except ConnectionLost as error:
            _log.debug("%s", error)

    @contextmanager
    def idle(self, scope: trio.CancelScope) -> Iterator[None]:
        """While nothing is under way, the scope is cancelled when the proxy stops."""
        if self.is_draining:
            scope.cancel()
        self._idle[scope] = None
        try:
            yield
        finally:
            del self._idle[scope]

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
    count = ConnectionCount(service.config.web.connections_max)
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
            connections_max=count,
            drain_s=listen.drain_s,
            tls=service.config.tls.contexts() if secure else None,
            proxy_header=listen.haproxy_protocol,
        )
        bound: list[Bound] = await nursery.start(listening)
        found.append((scheme, bound[0]))
    nursery.start_soon(web.keep)
    return found
