"""Settings of the WebSocket service, by Apache's keys."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.settings import setting


@dataclass(frozen=True, slots=True)
class WebSocketSettings:
    """WebSockets: off by default, as in Apache's broker; a standalone turns them on."""

    enabled: bool = setting("webSocketServiceEnabled", False)
    text_bytes_max: int = setting("webSocketMaxTextFrameSize", 1024 * 1024, at_least=1024)
    per_role_max: int = setting("webSocketMaxConnectionsPerRole", 500)
    """Ours: WebSockets of one role, or of one address without authentication; 0 is no limit."""
    idle_timeout_ms: int = setting("webSocketSessionIdleTimeoutMillis", 300_000)
    ping_interval_s: int = setting("webSocketPingDurationSeconds", -1, at_least=-1)
