"""OpenTelemetry: traces and metrics (spec SDK-49). The library is imported with the first use."""
