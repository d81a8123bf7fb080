"""What the proxy answers itself: metrics and its status (spec PX-06, PX-07)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from geminga_proxy.metrics import ProxyMetrics
from geminga_runtime.auth.service import Authenticator

METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


def metrics_text(
    metrics: ProxyMetrics, authenticator: Authenticator | None, http_requests: int
) -> str:
    """All that the proxy counts, in Prometheus' text form."""
    lines = [*metrics.lines(), "# TYPE geminga_proxy_http_requests counter"]
    lines += [f"geminga_proxy_http_requests {http_requests}", *_authentication(authenticator)]
    return "\n".join(lines) + "\n"


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
            f'{{provider_name="{provider}",auth_method="{_label(method)}",reason="{reason}"}} '
            f"{count}"
        )


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def is_up(status_file: str) -> bool:
    """Whether load balancers are to send clients here (Apache's VipStatus): always without a file,
    else while it exists.
    """
    return not status_file or Path(status_file).exists()
