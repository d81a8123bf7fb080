"""Which brokers get which credentials (spec PX-02, PX-04, PX-06, PX-23). Pure.

The binary side and the HTTP side both decide here only:

- `Targets` and `WebBrokers` have the brokers' addresses. No connection is opened to another
  address, and no redirect to one is followed: each connection shows a credential.
- `CredentialPolicy` tells what a broker is shown: the proxy's own credentials, the client's, or
  both.
"""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from geminga_protocol.commands.connection import Original
from geminga_proxy.addresses import Address
from geminga_runtime.auth.api import Identity
from geminga_runtime.auth.own import OwnCredentials
from geminga_runtime.settings import ConfigError, listed

LEARNED_MAX = 10_000
"""Brokers named by lookup responses that are remembered; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class HttpCredentials:
    """The credentials in one HTTP request to a broker."""

    replaces: bool = False
    """Whether the client's Authorization header is removed."""
    authorization: str | None = None
    """The proxy's own header in its place."""
    role: str | None = None
    """The client's role, for X-Original-Principal."""


class CredentialPolicy:
    """Which credentials brokers are shown for a client."""

    def __init__(self, own: OwnCredentials, *, forwards: bool) -> None:
        """`forwards`: brokers also get the client's credentials, and fresh ones on request
        (`forwardAuthorizationCredentials`).
        """
        self.own = own
        self.forwards = forwards

    def original(self, role: str | None, method: str, data: bytes) -> Original:
        """The client's part of CONNECT to a broker, beside the proxy's own credentials."""
        if not self.forwards:
            return Original(principal=role)
        return Original(role, data.decode("utf-8", "replace"), method)

    def for_request(self, identity: Identity | None, *, has_own: bool) -> HttpCredentials:
        """For an HTTP request; `has_own`: it brings credentials of the client."""
        if identity is None:
            return HttpCredentials()
        # A certificate can't be forwarded: the proxy authenticates for clients without a header.
        if (self.forwards and has_own) or not self.own.method:
            return HttpCredentials(role=identity.role)
        return HttpCredentials(replaces=True, authorization=self.own.header(), role=identity.role)

    def for_websocket(
        self, identity: Identity | None, *, has_own: bool, shows_certificate: bool
    ) -> HttpCredentials | None:
        """For a WebSocket; None if it must be refused.

        Apache's WebSocket service checks the authenticated role only, not the original principal.
        So the client's own credentials are passed on, and never replaced by the proxy's; nor may
        the proxy's certificate authenticate a client without a header (`shows_certificate`).
        """
        by_certificate = identity is not None and identity.method == "tls"
        if not has_own and (by_certificate or shows_certificate):
            return None
        return HttpCredentials(role=identity.role if identity else None)


class WebBrokers:
    """Addresses of the brokers' web services."""

    def __init__(self, configured: Sequence[Address]) -> None:
        self.listed = list(configured)
        """Brokers that requests are sent to."""
        self._discovered: frozenset[Address] = frozenset()
        self._is_configured = bool(configured)

    def found(self, addresses: Sequence[Address]) -> None:
        """Discovery reports these addresses. An empty report changes nothing."""
        if not addresses:
            return
        self._discovered = frozenset(addresses)
        if not self._is_configured:
            self.listed = list(addresses)

    def is_known(self, address: Address) -> bool:
        """Whether a broker listens there, by configuration or discovery."""
        return address in self.listed or address in self._discovered


class Targets:
    """Allowed addresses of connections of the binary protocol: known brokers, and those that the
    configuration allows.

    Apache's defaults allow every host on two ports. Here an address that is not a broker's is
    refused, unless `brokerProxyAllowedHostNames` or `brokerProxyAllowedIPAddresses` allow it.
    """

    def __init__(
        self, known: Sequence[Address], host_names: str, ip_addresses: str, ports: str
    ) -> None:
        """Raises ConfigError."""
        self._known = dict.fromkeys(known)
        self._learned: dict[Address, None] = {}
        self._host_patterns = listed(host_names)
        self._any_ip = "*" in listed(ip_addresses)
        try:
            self._networks = [
                ipaddress.ip_network(part, strict=False)
                for part in listed(ip_addresses)
                if part != "*"
            ]
            self._ports = None if "*" in listed(ports) else {int(part) for part in listed(ports)}
        except ValueError as error:
            raise ConfigError(f"brokerProxyAllowed…: {error}") from None

    def learn(self, address: Address) -> None:
        """A broker named this address in a lookup response."""
        self._learned.pop(address, None)
        self._learned[address] = None
        if len(self._learned) > LEARNED_MAX:
            del self._learned[next(iter(self._learned))]

    def know(self, brokers: Sequence[Address]) -> None:
        """Replace the known brokers; those that lookup responses named stay."""
        self._known = dict.fromkeys(brokers)

    def is_known(self, address: Address) -> bool:
        """Whether a broker listens there, by configuration, discovery or a lookup response."""
        return address in self._known or address in self._learned

    def allows(self, address: Address) -> bool:
        """Whether the address is allowed. A host name's IP addresses are checked by `allows_ip`."""
        if self.is_known(address):
            return True
        if not (self._host_patterns or self._networks or self._any_ip):
            return False
        if self._ports is not None and address.port not in self._ports:
            return False
        if self._host_patterns and not any(
            fnmatch.fnmatchcase(address.host.lower(), pattern.lower())
            for pattern in self._host_patterns
        ):
            return False
        try:
            ipaddress.ip_address(address.host)
        except ValueError:
            # A name; `allows_ip` checks its addresses after resolution.
            return True
        return self.allows_ip(address.host)

    def allows_ip(self, ip: str) -> bool:
        """Whether a host that is not a known broker may resolve to this address."""
        if self._any_ip or not self._networks:
            return True
        found = ipaddress.ip_address(ip.partition("%")[0])
        return any(found in network for network in self._networks)
