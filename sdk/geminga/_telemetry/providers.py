"""The types of the client's options for OpenTelemetry, and their check. The library is not imported
for programs without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.errors import InvalidArgumentError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider as TracerProvider
else:
    TracerProvider = object

NEEDED = 'OpenTelemetry is not installed: pip install "geminga[otel]"'


def check_providers(tracers: object) -> None:
    """Raises InvalidArgumentError unless it is a provider, or None."""
    if tracers is None:
        return
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise InvalidArgumentError(NEEDED) from error
    if not isinstance(tracers, trace.TracerProvider):
        raise InvalidArgumentError(f"tracer_provider must be a TracerProvider, not {tracers!r}")
