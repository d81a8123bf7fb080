"""What a proxy counts, under the names of Apache's proxy (spec PX-07)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator


class ProxyMetrics:
    """Plain numbers; the text is made when somebody asks."""

    def __init__(self) -> None:
        self.active_connections = 0
        self.new_connections = 0
        self.rejected_connections = 0
        self.tunnels = 0
        self.lookups: Counter[str] = Counter()
        """Kind -> requests that were passed on."""
        self.rejected_lookups = 0
        self.bytes_relayed = 0
        self.reads_relayed = 0

    def lines(self) -> Iterator[str]:
        """In Prometheus' text form."""
        gauge, counter = "gauge", "counter"
        yield from _one("pulsar_proxy_active_connections", gauge, self.active_connections)
        yield from _one("pulsar_proxy_new_connections", counter, self.new_connections)
        yield from _one("pulsar_proxy_rejected_connections", counter, self.rejected_connections)
        yield from _one("pulsar_proxy_binary_ops", counter, self.reads_relayed)
        yield from _one("pulsar_proxy_binary_bytes", counter, self.bytes_relayed)
        for name, kind in (
            ("pulsar_proxy_lookup_requests", "lookup"),
            ("pulsar_proxy_partitions_metadata_requests", "partitions"),
            ("pulsar_proxy_get_topics_requests", "topics"),
            ("pulsar_proxy_get_schema_requests", "schema"),
        ):
            yield from _one(name, counter, self.lookups[kind])
        yield from _one("pulsar_proxy_rejected_lookup_requests", counter, self.rejected_lookups)
        yield from _one("geminga_proxy_tunnels", gauge, self.tunnels)


def _one(name: str, kind: str, value: float) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    yield f"{name} {value:g}" if value < 1e6 else f"{name} {value}"
