"""Metrics of a proxy, under the names of Apache's proxy (spec PX-06, PX-07)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from geminga_runtime.auth.service import Authenticator
from geminga_runtime.metrics.buckets import Buckets
from geminga_runtime.metrics.labels import labels
from geminga_runtime.metrics.process_figures import process_figures
from geminga_runtime.server import ConnectionCount


class ProxyMetrics:
    """Plain numbers; the text is made on request."""

    def __init__(self, connections: ConnectionCount, cluster: str = "") -> None:
        self._connections = connections
        self._cluster = ("cluster", cluster)
        self._labels = labels([self._cluster])
        self.active_connections = 0
        self.new_connections = 0
        self.tunnels = 0
        self.lookups: Counter[str] = Counter()
        """Requests that were passed on, by kind."""
        self.rejected: Counter[str] = Counter()
        """Requests that a full budget refused, by kind."""
        self.bytes_relayed = 0
        self.reads_relayed = 0

    def text(self, authenticator: Authenticator | None, http_requests: int) -> str:
        """All metrics of the proxy, in Prometheus' text form."""
        lines = [*self.lines(), "# TYPE geminga_proxy_http_requests counter"]
        lines += [f"geminga_proxy_http_requests{self._labels} {http_requests}", *self._process()]
        if authenticator is not None:
            lines += self._authentication(authenticator)
        return "\n".join(lines) + "\n"

    def lines(self) -> Iterator[str]:
        """Metrics of the binary protocol, as Apache's servlet writes counters: `_total`
        is not part of a family's name.
        """
        yield from self._gauge("pulsar_proxy_active_connections", self.active_connections)
        yield from self._counter("pulsar_proxy_new_connections", self.new_connections)
        yield from self._counter("pulsar_proxy_rejected_connections", self._connections.rejected)
        yield from self._counter("pulsar_proxy_binary_ops", self.reads_relayed)
        yield from self._counter("pulsar_proxy_binary_bytes", self.bytes_relayed)
        for kind, name in _KINDS.items():
            yield from self._counter(f"pulsar_proxy_{name}_requests", self.lookups[kind])
            yield from self._counter(f"pulsar_proxy_rejected_{name}_requests", self.rejected[kind])
        yield from self._gauge("geminga_proxy_tunnels", self.tunnels)

    def _gauge(self, name: str, value: int) -> Iterator[str]:
        yield f"# TYPE {name} gauge"
        yield f"{name}{self._labels} {value}"

    def _counter(self, name: str, value: int) -> Iterator[str]:
        yield f"# TYPE {name} counter"
        yield f"{name}_total{self._labels} {value}"

    def _authentication(self, authenticator: Authenticator) -> Iterator[str]:
        yield "# TYPE pulsar_authentication_success_total counter"
        for (provider, method), count in sorted(authenticator.successes.items()):
            pairs = [self._cluster, ("provider_name", provider), ("auth_method", method)]
            yield f"pulsar_authentication_success_total{labels(pairs)} {count}"
        yield "# TYPE pulsar_authentication_failures_total counter"
        for (provider, method, reason), count in sorted(authenticator.failures.items()):
            pairs = [self._cluster, ("provider_name", provider), ("auth_method", method)]
            where = labels([*pairs, ("reason", reason)])
            yield f"pulsar_authentication_failures_total{where} {count}"
        yield from self._histogram("pulsar_expiring_token_minutes", authenticator.expiring_minutes)
        yield from self._counter("pulsar_expired_token", authenticator.expired_tokens)

    def _histogram(self, name: str, values: Buckets) -> Iterator[str]:
        yield f"# TYPE {name} histogram"
        for end, count in values.up_to():
            yield f"{name}_bucket{labels([self._cluster, ('le', end)])} {count}"
        yield f"{name}_count{self._labels} {sum(values.counts)}"
        yield f"{name}_sum{self._labels} {round(values.sum, 6)}"

    def _process(self) -> Iterator[str]:
        """Of this process; what has one name stands together."""
        said = ""
        for figure in process_figures():
            if figure.name != said:
                said = figure.name
                yield f"# TYPE {figure.name} {figure.kind}"
            yield f"{figure.name}{labels([self._cluster, *figure.labels.items()])} {figure.value}"


METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_KINDS = {
    "lookup": "lookup",
    "partitions": "partitions_metadata",
    "topics": "get_topics_of_namespace",
    "schema": "get_schema",
}
