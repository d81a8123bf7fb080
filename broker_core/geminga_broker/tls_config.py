"""The broker's listeners with TLS, by Apache's keys (spec PX-25)."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_runtime.settings import setting
from geminga_runtime.tls_settings import NO_PORT, TlsSettings


@dataclass(frozen=True, slots=True)
class TlsConfig(TlsSettings):
    """Ports beside the files."""

    broker_service_port: int = setting(
        "brokerServicePortTls", NO_PORT, at_least=NO_PORT, at_most=65535
    )
    web_service_port: int = setting("webServicePortTls", NO_PORT, at_least=NO_PORT, at_most=65535)
