"""Settings of the proxy's web side, by Apache's keys (spec OP-07)."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.settings import setting


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Bounds of the web side, and its own pages."""

    status_file: str = setting("statusFilePath", "")
    authenticate_metrics: bool = setting("authenticateMetricsEndpoint", True)
    trusts_forwarded_for: bool = setting("webServiceTrustXForwardedFor", False)
    """Whether clients' `X-Forwarded-For` goes on, as clients are proxies themselves."""
    head_bytes_max: int = setting(
        "httpMaxRequestHeaderSize", 8192, at_least=1024, at_most=1024 * 1024
    )
    replay_bytes_max: int = setting("httpInputMaxReplayBufferSize", 5 * 1024 * 1024)
    websockets_per_role_max: int = setting("webSocketMaxConnectionsPerRole", 500)
    """Ours, as `connections_per_ip_max`: of one role, or address where roles aren't known; 0 is no
    limit.
    """
    connections_per_ip_max: int = setting("maxHttpServerConnectionsPerIp", 512)
    connections_max: int = setting("maxHttpServerConnections", 2048, at_least=1)
