"""Metrics of a proxy, under the names of Apache's proxy (spec PX-06, PX-07)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from geminga_runtime.auth.service import Authenticator
from geminga_runtime.server import ConnectionCount


class ProxyMetrics:
    """Plain numbers; the text is made on request."""

    def __init__(self, connections: ConnectionCount, cluster: str = "") -> None:
        self._connections = connections
        self._labels = f'{{cluster="{_escaped(cluster)}"}}'
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
        lines += [f"geminga_proxy_http_requests {http_requests}", *_authentication(authenticator)]
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


METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_KINDS = {
    "lookup": "lookup",
    "partitions": "partitions_metadata",
    "topics": "get_topics_of_namespace",
    "schema": "get_schema",
}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _authentication(authenticator: Authenticator | None) -> Iterator[str]:
    if authenticator is None:
        return
    yield "# TYPE pulsar_authentication_success_total counter"
    for (provider, method), count in sorted(authenticator.successes.items()):
        yield (
            "pulsar_authentication_success_total"
            f'{{provider_name="{provider}",auth_method="{method}"}} {count}'
        )
    yield "# TYPE pulsar_authentication_failures_total counter"
    for (provider, method, reason), count in sorted(authenticator.failures.items()):
        yield (
            "pulsar_authentication_failures_total"
            f'{{provider_name="{provider}",auth_method="{_escaped(method)}",reason="{reason}"}} '
            f"{count}"
        )
