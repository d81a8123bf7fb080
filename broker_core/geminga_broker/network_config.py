"""Settings of addresses, connections and TLS, a part of `config.BrokerConfig` (spec OP-07)."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_broker.cluster.listeners import Listeners, parse_listeners
from geminga_runtime.settings import limit, setting
from geminga_runtime.tls_settings import NO_PORT, TlsSettings


@dataclass(frozen=True, slots=True)
class TlsConfig(TlsSettings):
    """TLS settings and the ports."""

    broker_service_port: int = setting(
        "brokerServicePortTls", NO_PORT, at_least=NO_PORT, at_most=65535
    )
    web_service_port: int = setting("webServicePortTls", NO_PORT, at_least=NO_PORT, at_most=65535)


MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Addresses, connections and frames."""

    cluster_name: str = setting("clusterName", "standalone")
    bind_address: str = setting("bindAddress", "0.0.0.0")
    advertised_address: str = setting("advertisedAddress", "")
    advertised_listeners: str = setting("advertisedListeners", "")
    internal_listener: str = setting("internalListenerName", "")
    broker_service_port: int = setting("brokerServicePort", 6650, at_least=NO_PORT, at_most=65535)
    web_service_port: int = setting("webServicePort", 8080, at_least=NO_PORT, at_most=65535)
    max_message_size_bytes: int = setting("maxMessageSize", 5 * MIB, at_least=1, at_most=1 << 30)
    keep_alive_interval_s: int = setting("keepAliveIntervalSeconds", 30, at_least=1)
    liveness_timeout_ms: int = setting("connectionLivenessCheckTimeoutMillis", 5000)
    connections_max: int = limit("brokerMaxConnections", 0)
    connections_per_ip_max: int = limit("brokerMaxConnectionsPerIp", 0)
    web_connections_max: int = limit("maxHttpServerConnections", 2048)
    """0 is no limit."""
    web_connections_per_ip_max: int = setting("maxHttpServerConnectionsPerIp", 512)
    """Ours: connections of one address; 0 is no limit."""
    http_requests_limited: bool = setting("httpRequestsLimitEnabled", False)
    http_requests_per_s_max: float = setting("httpRequestsMaxPerSecond", 100.0, at_least=0.001)
    haproxy_protocol: bool = setting("haProxyProtocolEnabled", False)
    web_haproxy_protocol: bool = setting("webServiceHaProxyProtocolEnabled", False)
    publish_buffer_mb_max: int = setting("maxMessagePublishBufferSizeInMB", 64, at_least=-1)
    shutdown_timeout_ms: int = setting("brokerShutdownTimeoutMs", 60_000)

    def listeners(self) -> Listeners:
        """Named listeners. Raises ConfigError."""
        return parse_listeners(
            self.advertised_listeners, self.internal_listener, self.advertised_address
        )
