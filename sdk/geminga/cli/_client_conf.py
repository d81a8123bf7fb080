"""The keys of Apache's `client.conf` that the commands read."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from geminga.cli._run import LOG_FORMAT
from geminga_runtime.settings import Origins, build, setting


@dataclass(frozen=True)
class ClientConf:
    """Addresses, authentication and TLS."""

    broker_url: str = setting("brokerServiceUrl", "")
    web_url: str = setting("webServiceUrl", "")
    service_url: str = setting("serviceUrl", "")
    auth_plugin: str = setting("authPlugin", "")
    auth_params: str = setting("authParams", "", secret=True)
    allow_insecure: bool = setting("tlsAllowInsecureConnection", False)
    validate_hostname: bool = setting("tlsEnableHostnameVerification", True)
    trust_certs: str = setting("tlsTrustCertsFilePath", "")
    certificate: str = setting("tlsCertificateFilePath", "")
    key: str = setting("tlsKeyFilePath", "")


@dataclass(frozen=True)
class ClientFile:
    """All of them."""

    client: ClientConf = field(default_factory=ClientConf)


def checked(values: Origins, config: Path | None) -> ClientConf:
    """What a configuration's values are; warnings of them name the file. Raises ConfigError."""
    if config is None:
        return build(ClientFile, values, "client").client
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)

    def named(record: logging.LogRecord) -> bool:
        record.msg, record.args = "%s: %s", (config, record.getMessage())
        return True

    log = logging.getLogger(build.__module__)
    log.addFilter(named)
    try:
        return build(ClientFile, values, "client").client
    finally:
        log.removeFilter(named)
