"""The brokers behind a proxy: their addresses, and how the proxy identifies itself to them (spec
PX-03, PX-04).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import trio

from geminga_proxy.addresses import Address, BadAddress, parse_url, parse_urls
from geminga_proxy.config import ProxyConfig
from geminga_proxy.discovery import BrokerRecord
from geminga_proxy.trust import CredentialPolicy, Targets
from geminga_runtime.auth.own import OwnCredentials, own_credentials
from geminga_runtime.settings import ConfigError
from geminga_runtime.tls import ClientTls, TlsConfigError, TlsContexts

_log = logging.getLogger(__name__)

DEAD_S = 5.0
"""A broker that could not be reached is tried last for this long."""
DEAD_MAX = 1000
"""Unreachable brokers that are remembered."""


class Rotation:
    """The order in which brokers are tried: round robin, unreachable ones last."""

    def __init__(self) -> None:
        self._next = 0
        self._dead_until_s: dict[Address, float] = {}

    def order(self, listed: list[Address]) -> list[Address]:
        """All brokers, beginning with another one at each call."""
        self._next += 1
        start = self._next % len(listed) if listed else 0
        now_s = trio.current_time()
        turned = listed[start:] + listed[:start]
        return sorted(turned, key=lambda one: self._dead_until_s.get(one, 0.0) > now_s)

    def is_dead(self, address: Address) -> None:
        """The broker could not be reached, or its response broke off."""
        if len(self._dead_until_s) >= DEAD_MAX:
            self._dead_until_s.clear()
        self._dead_until_s[address] = trio.current_time() + DEAD_S

    def is_alive(self, address: Address) -> None:
        """The broker was reached."""
        self._dead_until_s.pop(address, None)

    def clear(self) -> None:
        """Forget which brokers were unreachable."""
        self._dead_until_s.clear()


class Brokers:
    """The brokers' addresses, and the credentials and TLS settings for them."""

    def __init__(self, config: ProxyConfig) -> None:
        """Raises ConfigError."""
        client, where = config.client, config.brokers
        own = own_credentials(client.auth_plugin, client.auth_parameters)
        self.credentials = CredentialPolicy(own, forwards=client.forward_credentials)
        self.tls = _tls_contexts(config, own) if client.tls else None
        plain = parse_urls("brokerServiceURL", where.service_url)
        by_tls = parse_urls("brokerServiceURLTLS", where.service_url_tls)
        self.listed = by_tls if client.tls else plain
        """Brokers for requests that any broker can answer."""
        self.targets = Targets(
            [*plain, *by_tls],
            where.allowed_host_names,
            where.allowed_ip_addresses,
            where.allowed_target_ports,
        )
        self.rotation = Rotation()
        self.on_web_found: Callable[[Sequence[Address]], object] | None = None
        """Called with the addresses of discovered brokers' web services."""

    def found(self, records: Sequence[BrokerRecord]) -> None:
        """Replace the brokers by discovered ones. An empty report changes nothing: more likely all
        brokers restart than that none is left.
        """
        if not records:
            return
        self.rotation.clear()
        by_tls = self.tls is not None
        self.listed = _addresses(
            (one.pulsar_service_url_tls if by_tls else one.pulsar_service_url for one in records),
            by_tls=by_tls,
        )
        self.targets.know(
            _addresses(
                (
                    url
                    for one in records
                    for url in (one.pulsar_service_url, one.pulsar_service_url_tls)
                ),
                by_tls=True,
            )
        )
        if self.on_web_found is not None:
            self.on_web_found(
                _addresses(
                    (one.web_service_url_tls if by_tls else one.web_service_url for one in records),
                    by_tls=by_tls,
                )
            )


def _tls_contexts(config: ProxyConfig, own: OwnCredentials) -> TlsContexts:
    client = config.client
    options = ClientTls(
        certificate_file=own.certificate_file or client.tls_certificate_file,
        key_file=own.key_file or client.tls_key_file,
        trust_certs_file=client.tls_trust_certs_file,
        validate_hostname=client.tls_hostname_verification,
    )
    try:
        return TlsContexts(options, refresh_check_s=config.tls.refresh_check_s)
    except TlsConfigError as error:
        raise ConfigError(f"TLS to brokers: {error}") from error


def _addresses(urls: Iterable[str | None], *, by_tls: bool) -> list[Address]:
    """The addresses of all valid URLs; those that ask for TLS only if `by_tls`."""
    found = []
    for url in urls:
        if url:
            try:
                found.append(parse_url(url, by_tls=by_tls))
            except BadAddress as error:
                _log.warning("discovered broker ignored: %s", error)
    return found
