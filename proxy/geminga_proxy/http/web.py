"""What all HTTP connections of one proxy share (spec PX-05, PX-06)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import trio

from geminga_proxy.addresses import parse_urls
from geminga_proxy.config import ProxyConfig
from geminga_proxy.http.errors import HttpError
from geminga_proxy.http.upstreams import IDLE_S, Upstreams
from geminga_proxy.service import ProxyService
from geminga_proxy.trust import WebBrokers
from geminga_runtime.logs import shown
from geminga_runtime.server import CONNECTIONS_MAX, ConnectionCount
from geminga_runtime.tls import TlsContexts

CROWDED = 0.75
"""Share of `connections_max` above which a new connection closes an idle one."""

_log = logging.getLogger(__name__)


class Web:
    """What all HTTP connections of one proxy share."""

    def __init__(self, service: ProxyService) -> None:
        """Raises ConfigError."""
        self.service = service
        self.config: ProxyConfig = service.config
        where, tls = self.config.brokers, service.brokers.tls
        key, url = "brokerWebServiceURL", where.web_url
        if tls is not None:
            key, url = "brokerWebServiceURLTLS", where.web_url_tls
        brokers = WebBrokers(parse_urls(key, url))
        timeout_s = where.connect_timeout_ms / 1000
        own_host = self.config.listen.advertised_address.lower()
        self.upstreams = Upstreams(brokers, tls, timeout_s, own_host)
        self.without_certificate = Upstreams(
            brokers, tls and _without_certificate(tls), timeout_s, own_host
        )
        """For WebSockets: Apache's service would take the proxy's certificate for the client's.
        """
        if not (url or where.metadata_store_url):
            self.upstreams.no_url = f"This proxy passes on no HTTP: {key} is not set"
            self.without_certificate.no_url = self.upstreams.no_url
            _log.warning("%s", self.upstreams.no_url)
        service.brokers.on_web_found = brokers.found
        self.is_draining = False
        self.requests = 0
        web = self.config.web
        self.count = ConnectionCount(
            web.connections_max or CONNECTIONS_MAX, web.connections_per_ip_max
        )
        self._websockets: Counter[str] = Counter()
        self._idle: dict[trio.CancelScope, None] = {}

    def make_room(self) -> None:
        """Close the connection that has been idle longest if there are many: idle clients must not
        keep others out.
        """
        if self.count.open > self.count.connections_max * CROWDED and self._idle:
            scope = next(iter(self._idle))
            del self._idle[scope]
            scope.cancel()

    @contextmanager
    def idle(self, scope: trio.CancelScope) -> Iterator[None]:
        """Between requests: the scope is cancelled when the proxy stops, or to make room."""
        if self.is_draining:
            scope.cancel()
        self._idle[scope] = None
        try:
            yield
        finally:
            self._idle.pop(scope, None)

    @contextmanager
    def one_more_websocket(self, who: str) -> Iterator[None]:
        """Count a WebSocket while the context is open. Raises HttpError 429."""
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
        """Finish the requests that are under way; no connection takes another one."""
        self.is_draining = True
        for scope in self._idle:
            scope.cancel()

    async def keep(self) -> None:
        """Close unused connections to brokers from time to time, and all of them at the end."""
        try:
            while True:
                await trio.sleep(IDLE_S / 2)
                await self.upstreams.close_old()
                await self.without_certificate.close_old()
        finally:
            self.drain()
            with trio.CancelScope(shield=True):
                await self.upstreams.aclose()
                await self.without_certificate.aclose()


def _without_certificate(tls: TlsContexts) -> TlsContexts:
    """The same without the proxy's certificate. Raises TlsConfigError."""
    return TlsContexts(replace(tls.options, certificate_file="", key_file=""))
