"""The types of the client's options for OpenTelemetry, and their check. The library is not imported
for programs without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.errors import InvalidArgumentError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider as MeterProvider
    from opentelemetry.trace import TracerProvider as TracerProvider
else:
    MeterProvider = TracerProvider = object

NEEDED = 'OpenTelemetry is not installed: pip install "geminga[otel]"'


def check_providers(tracers: object, meters: object) -> None:
    """Raises InvalidArgumentError unless each is a provider of its kind, or None."""
    if tracers is None and meters is None:
        return
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise InvalidArgumentError(NEEDED) from error
    if tracers is not None and not isinstance(tracers, trace.TracerProvider):
        raise InvalidArgumentError(f"tracer_provider must be a TracerProvider, not {tracers!r}")
    if meters is not None and not isinstance(meters, metrics.MeterProvider):
        raise InvalidArgumentError(f"meter_provider must be a MeterProvider, not {meters!r}")
