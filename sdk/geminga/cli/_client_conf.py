"""The keys of Apache's `client.conf` that the commands read."""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_runtime.settings import setting


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
