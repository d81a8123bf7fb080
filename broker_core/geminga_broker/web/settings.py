"""What the web port allows (spec PX-24)."""

from __future__ import annotations

import math
from dataclasses import dataclass

IDLE_S = 30.0
"""Time without a request after which a connection is closed: Jetty's, so Apache's brokers'."""

TLS_PEER_CERTIFICATE = "geminga.tls_peer_certificate"
"""Scope key of requests over TLS: the client's verified certificate (DER), or None."""


WHOLE_BODY = "geminga.whole_body"
"""Scope key of requests: a function that takes the body, if all of it has come already, or None."""


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Of one server."""

    idle_s: float = IDLE_S
    text_bytes_max: int = 1 << 20
    """Of a WebSocket's message."""
    socket_send_s: float = math.inf
    """Time to send a part of a WebSocket's message; then the client is gone, as far as one can
    tell.
    """
    ping_interval_s: float = math.inf
