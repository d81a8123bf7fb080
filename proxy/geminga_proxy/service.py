"""State shared by all clients of one proxy (spec PX-01 to PX-08)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Protocol

from geminga_proxy.binary.connecting import Connector
from geminga_proxy.binary.machine import Options
from geminga_proxy.bounds import KEPT_BYTES_MAX, HeldBytes, RequestBudget
from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.metrics import ProxyMetrics
from geminga_proxy.relay import Tunnels
from geminga_proxy.traffic import Traffic
from geminga_runtime.auth.service import load_authenticator
from geminga_runtime.server import CONNECTIONS_MAX, ConnectionCount

VERSION = f"Geminga proxy {version('geminga')}"


class Drainable(Protocol):
    """A client's connection."""

    def drain(self) -> None:
        """The proxy stops."""


class ProxyService:
    """Brokers, bounds, counters, and the clients that are connected."""

    def __init__(self, config: ProxyConfig) -> None:
        """Raises ConfigError."""
        self.config = config
        self.version = VERSION
        self.authenticator = load_authenticator(config.auth)
        self.brokers = Brokers(config)
        self.connector = Connector(config, self.brokers, self.version)
        listen = config.listen
        self.connections = ConnectionCount(
            listen.connections_max or CONNECTIONS_MAX, listen.connections_per_ip_max
        )
        self.metrics = ProxyMetrics(self.connections, listen.cluster_name)
        self.tunnels = Tunnels(config.brokers.read_timeout_ms / 1000)
        self.traffic = Traffic()
        self.log_level = listen.log_level
        """What is logged of clients, `proxyLogLevel` until it is changed over REST."""
        self.budget = RequestBudget(
            listen.lookups_max, HeldBytes(), self.metrics.lookups, self.metrics.rejected
        )
        self.options = Options(
            version=self.version,
            authenticates=self.authenticator is not None,
            by_tls=self.brokers.tls is not None,
            max_message_size=listen.max_message_size_bytes,
        )
        self.kept = HeldBytes(KEPT_BYTES_MAX)
        """Bodies of HTTP requests that may be sent to another broker."""
        self._sessions: dict[Drainable, None] = {}
        self._is_draining = False

    @contextmanager
    def one_more(self, session: Drainable) -> Iterator[None]:
        """Count a client while the context is open."""
        self.metrics.new_connections += 1
        self.metrics.active_connections += 1
        self._sessions[session] = None
        if self._is_draining:
            session.drain()
        try:
            yield
        finally:
            self.metrics.active_connections -= 1
            del self._sessions[session]

    def drain(self) -> None:
        """The proxy stops: answer and close clients that do lookups; tunnels continue."""
        self._is_draining = True
        for session in list(self._sessions):
            session.drain()
