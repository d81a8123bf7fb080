"""The proxy's configuration: Apache's `proxy.conf` keys with Apache's defaults (spec OP-07)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from geminga_proxy.addresses import parse_urls
from geminga_proxy.discovery import check_store
from geminga_runtime.auth.settings import AuthSettings
from geminga_runtime.settings import (
    ConfigError,
    build,
    gather,
    limit,
    setting,
    use_older_keys,
    written,
)
from geminga_runtime.tls_settings import NO_PORT, TlsSettings, check_ports_differ

BROKER_ADDRESSES = (
    "brokerServiceURL (--broker-service-url), brokerServiceURLTLS (--broker-service-url-tls) or "
    "metadataStoreUrl (--metadata-store)"
)


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """Where clients connect, and how many may."""

    cluster_name: str = setting("clusterName", "")
    bind_address: str = setting("bindAddress", "0.0.0.0")
    advertised_address: str = setting("advertisedAddress", "")
    service_port: int = setting("servicePort", 6650, at_least=NO_PORT, at_most=65535)
    service_port_tls: int = setting("servicePortTls", NO_PORT, at_least=NO_PORT, at_most=65535)
    web_port: int = setting("webServicePort", 8080, at_least=NO_PORT, at_most=65535)
    web_port_tls: int = setting("webServicePortTls", NO_PORT, at_least=NO_PORT, at_most=65535)
    haproxy_protocol: bool = setting("haProxyProtocolEnabled", False)
    connections_max: int = setting("maxConcurrentInboundConnections", 10_000)
    connections_per_ip_max: int = setting("maxConcurrentInboundConnectionsPerIp", 0)
    lookups_max: int = setting("maxConcurrentLookupRequests", 50_000, at_least=1)
    max_message_size_bytes: int = setting("maxMessageSize", 5 << 20, at_least=1, at_most=1 << 30)
    log_level: int = setting("proxyLogLevel", 0, at_most=2)
    drain_s: float = setting("proxyDrainSeconds", 5.0)
    """Ours: how long connections may last after SIGTERM."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Where the brokers are, and which addresses clients may be tunnelled to."""

    metadata_store_url: str = setting("metadataStoreUrl", "")
    session_timeout_ms: int = setting("metadataStoreSessionTimeoutMillis", 30_000, at_least=1)
    service_url: str = setting("brokerServiceURL", "")
    service_url_tls: str = setting("brokerServiceURLTLS", "")
    web_url: str = setting("brokerWebServiceURL", "")
    web_url_tls: str = setting("brokerWebServiceURLTLS", "")
    allowed_host_names: str = setting("brokerProxyAllowedHostNames", "")
    allowed_ip_addresses: str = setting("brokerProxyAllowedIPAddresses", "")
    allowed_target_ports: str = setting("brokerProxyAllowedTargetPorts", "6650,6651")
    connect_timeout_ms: int = setting("brokerProxyConnectTimeoutMs", 10_000, at_least=1)
    read_timeout_ms: int = setting("brokerProxyReadTimeoutMs", 75_000, at_least=1)
    http_timeout_ms: int = setting("httpProxyTimeout", 300_000, at_least=1)


@dataclass(frozen=True, slots=True)
class BrokerClientConfig:
    """How the proxy authenticates to brokers, and verifies them."""

    auth_plugin: str = setting("brokerClientAuthenticationPlugin", "")
    auth_parameters: str = setting("brokerClientAuthenticationParameters", "", secret=True)
    forward_credentials: bool = setting("forwardAuthorizationCredentials", False)
    tls: bool = setting("tlsEnabledWithBroker", False)
    tls_hostname_verification: bool = setting("tlsHostnameVerificationEnabled", True)
    tls_trust_certs_file: str = setting("brokerClientTrustCertsFilePath", "")
    tls_certificate_file: str = setting("brokerClientCertificateFilePath", "")
    tls_key_file: str = setting("brokerClientKeyFilePath", "")
    haproxy_protocol: bool = setting("haProxyProtocolToBrokerEnabled", False)
    """Ours: a PROXY header tells brokers the client's address."""


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Bounds of the web side, its own pages, and who may see them."""

    status_file: str = setting("statusFilePath", "")
    authenticate_metrics: bool = setting("authenticateMetricsEndpoint", True)
    has_stats: bool = setting("enableProxyStatsEndpoints", True)
    needs_super_user: bool = setting("authorizationEnabled", False)
    """Of /proxy-stats; all else is up to the brokers."""
    super_user_roles: str = setting("superUserRoles", "")
    trusts_forwarded_for: bool = setting("webServiceTrustXForwardedFor", False)
    """Whether clients' `X-Forwarded-For` is passed on: only if all clients are trusted proxies."""
    head_bytes_max: int = setting(
        "httpMaxRequestHeaderSize", 8192, at_least=1024, at_most=1024 * 1024
    )
    replay_bytes_max: int = setting("httpInputMaxReplayBufferSize", 5 * 1024 * 1024)
    websockets_per_role_max: int = setting("webSocketMaxConnectionsPerRole", 500)
    """Ours: WebSockets of one role, or of one address without authentication; 0 for no limit."""
    connections_per_ip_max: int = setting("maxHttpServerConnectionsPerIp", 512)
    connections_max: int = limit("maxHttpServerConnections", 2048)

    @property
    def super_users(self) -> frozenset[str]:
        """Roles that may see statistics and change the level of logging."""
        return frozenset(role.strip() for role in self.super_user_roles.split(",") if role.strip())


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """All settings of one proxy."""

    listen: ListenConfig = field(default_factory=ListenConfig)
    brokers: BrokerConfig = field(default_factory=BrokerConfig)
    client: BrokerClientConfig = field(default_factory=BrokerClientConfig)
    web: WebConfig = field(default_factory=WebConfig)
    tls: TlsSettings = field(default_factory=TlsSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)

    def values(self) -> dict[str, str]:
        """Every setting under Apache's key, without secrets."""
        return written(self)


OLDER_KEYS = {
    "metadataStoreUrl": ("zookeeperServers",),
    "metadataStoreSessionTimeoutMillis": ("zookeeperSessionTimeoutMs",),
}
"""What Apache's proxy still reads."""


def load_config(
    path: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
) -> ProxyConfig:
    """Defaults, then a file, the environment, overrides. Raises ConfigError."""
    values = gather(path, environment, overrides, defaults)
    use_older_keys(values, OLDER_KEYS)
    config = build(ProxyConfig, values, "proxy")
    listen, brokers = config.listen, config.brokers
    check_ports_differ(
        {
            "servicePort": listen.service_port,
            "servicePortTls": listen.service_port_tls,
            "webServicePort": listen.web_port,
            "webServicePortTls": listen.web_port_tls,
        }
    )
    parse_urls("brokerServiceURL", brokers.service_url)
    parse_urls("brokerServiceURLTLS", brokers.service_url_tls)
    parse_urls("brokerWebServiceURL", brokers.web_url)
    parse_urls("brokerWebServiceURLTLS", brokers.web_url_tls)
    if not (brokers.service_url or brokers.service_url_tls or brokers.metadata_store_url):
        raise ConfigError(f"the addresses of brokers are missing: set {BROKER_ADDRESSES}")
    if brokers.metadata_store_url:
        check_store(brokers.metadata_store_url)
    if config.client.tls and not (brokers.service_url_tls or brokers.metadata_store_url):
        raise ConfigError("tlsEnabledWithBroker needs brokerServiceURLTLS or metadataStoreUrl")
    if not (config.client.tls or brokers.service_url or brokers.metadata_store_url):
        raise ConfigError(
            "brokerServiceURLTLS is for tlsEnabledWithBroker=true: set that, or brokerServiceURL"
        )
    if config.web.needs_super_user and not config.auth.enabled:
        raise ConfigError("authorizationEnabled needs authenticationEnabled")
    if config.client.forward_credentials and not config.auth.enabled:
        raise ConfigError("forwardAuthorizationCredentials needs authenticationEnabled")
    return config
