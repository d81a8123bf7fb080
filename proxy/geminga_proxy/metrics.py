"""What a proxy counts, under the names of Apache's proxy (spec PX-07)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from geminga_runtime.server import ConnectionCount


class ProxyMetrics:
    """Plain numbers; the text is made when somebody asks."""

    def __init__(self, connections: ConnectionCount) -> None:
        self._connections = connections
        self.active_connections = 0
        self.new_connections = 0
        self.tunnels = 0
        self.lookups: Counter[str] = Counter()
        """Kind -> requests that were passed on."""
        self.rejected: Counter[str] = Counter()
        """Kind -> requests that were too many."""
        self.bytes_relayed = 0
        self.reads_relayed = 0

    @property
    def rejected_connections(self) -> int:
        """Connections over a bound, of all clients or of one address."""
        return self._connections.rejected

    def lines(self) -> Iterator[str]:
        """In Prometheus' text form."""
        gauge, counter = "gauge", "counter"
        yield from _one("pulsar_proxy_active_connections", gauge, self.active_connections)
        yield from _one("pulsar_proxy_new_connections", counter, self.new_connections)
        yield from _one("pulsar_proxy_rejected_connections", counter, self.rejected_connections)
        yield from _one("pulsar_proxy_binary_ops", counter, self.reads_relayed)
        yield from _one("pulsar_proxy_binary_bytes", counter, self.bytes_relayed)
        for kind, name in _KINDS.items():
            yield from _one(f"pulsar_proxy_{name}_requests", counter, self.lookups[kind])
            yield from _one(f"pulsar_proxy_rejected_{name}_requests", counter, self.rejected[kind])
        yield from _one("geminga_proxy_tunnels", gauge, self.tunnels)


_KINDS = {
    "lookup": "lookup",
    "partitions": "partitions_metadata",
    "topics": "get_topics_of_namespace",
    "schema": "get_schema",
}


def _one(name: str, kind: str, value: float) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    yield f"{name} {value}"
