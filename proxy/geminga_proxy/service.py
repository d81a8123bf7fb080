"""A proxy: its brokers, its clients, its bounds (spec PX-01 to PX-08)."""

from __future__ import annotations

from importlib.metadata import version

from geminga_proxy.binary.session import ProxySession
from geminga_proxy.bounds import KEPT_BYTES_MAX, HeldBytes
from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.metrics import ProxyMetrics
from geminga_proxy.relay import Tunnels
from geminga_runtime.auth.service import load_authenticator
from geminga_runtime.server import ConnectionCount
from geminga_runtime.stream import FramedStream

VERSION = f"Geminga proxy {version('geminga')}"


class ProxyService:
    """What all clients of one proxy share."""

    def __init__(self, config: ProxyConfig) -> None:
        """Raises ConfigError."""
        self.config = config
        self.version = VERSION
        self.authenticator = load_authenticator(config.auth)
        self.brokers = Brokers(config, self.version)
        listen = config.listen
        self.connections = ConnectionCount(listen.connections_max, listen.connections_per_ip_max)
        self.metrics = ProxyMetrics(self.connections, listen.cluster_name)
        self.tunnels = Tunnels(config.brokers.read_timeout_ms / 1000)
        self.held = HeldBytes()
        self.kept = HeldBytes(KEPT_BYTES_MAX)
        """Of bodies that could be sent to another broker."""
        self.lookups = 0
        """Requests that wait for a broker now, of all clients."""
        self._sessions: dict[ProxySession, None] = {}
        self._is_draining = False

    async def handle(self, stream: FramedStream) -> None:
        """Serve one client until it leaves."""
        metrics = self.metrics
        session = ProxySession(stream, self)
        metrics.new_connections += 1
        metrics.active_connections += 1
        self._sessions[session] = None
        if self._is_draining:
            session.drain()
        try:
            await session.run()
        finally:
            session.release()
            metrics.active_connections -= 1
            del self._sessions[session]

    def drain(self) -> None:
        """The proxy stops: whoever looks something up goes elsewhere, tunnels may go on."""
        self._is_draining = True
        for session in self._sessions:
            session.drain()
