"""A proxy: its brokers, its clients, its bounds (spec PX-01 to PX-08)."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version

from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.metrics import ProxyMetrics
from geminga_proxy.session import ProxySession
from geminga_runtime.auth.service import load_authenticator
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
        self.metrics = ProxyMetrics()
        self.lookups = 0
        """Requests that wait for a broker now, of all clients."""
        self._by_ip: Counter[str] = Counter()

    async def handle(self, stream: FramedStream) -> None:
        """Serve one client until it leaves."""
        metrics, per_ip = self.metrics, self.config.listen.connections_per_ip_max
        ip = stream.name.rpartition(":")[0]
        if self._by_ip[ip] >= per_ip > 0:
            metrics.rejected_connections += 1
            return
        metrics.new_connections += 1
        metrics.active_connections += 1
        self._by_ip[ip] += 1
        try:
            await ProxySession(stream, self).run()
        finally:
            metrics.active_connections -= 1
            self._by_ip[ip] -= 1
            if not self._by_ip[ip]:
                del self._by_ip[ip]
