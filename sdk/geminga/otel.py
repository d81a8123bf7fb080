"""Traces by OpenTelemetry (spec SDK-49): `connect(url, tracer_provider=...)` traces all messages of
a client, and `meter_provider=...` measures it; the interceptors are for single producers and
consumers.

    with tracer.start_as_current_span("bill", context=geminga.otel.context_of(message)):
        ...

Raises ImportError without the extra: pip install "geminga[otel]".
"""

from __future__ import annotations

from geminga._telemetry.tracing import TracingConsumerInterceptor as TracingConsumerInterceptor
from geminga._telemetry.tracing import TracingProducerInterceptor as TracingProducerInterceptor
from geminga._telemetry.tracing import context_of as context_of

__all__ = ["TracingConsumerInterceptor", "TracingProducerInterceptor", "context_of"]
