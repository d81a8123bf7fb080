"""Addresses of brokers, and which of them a client may be tunnelled to (spec PX-02). Pure."""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from geminga_runtime.settings import ConfigError

DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_.:-]{1,253}")
LEARNED_MAX = 10_000
"""Brokers that lookups have named; the one that was named longest ago goes first."""


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BadAddress(ValueError):
    """Not an address of a broker."""


def parse_target(text: str) -> Address:
    """`host:port` as clients give it in CONNECT; a scheme is tolerated. Raises BadAddress."""
    rest = text.partition("://")[2] if "://" in text else text
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadAddress(f"{text!r} is no host:port") from None
    odd = parts.path or parts.query or parts.fragment or parts.username is not None
    if not host or not port or odd or not _HOST.fullmatch(host):
        raise BadAddress(f"{text!r} is no host:port")
    return Address(host, port)


def parse_url(text: str) -> Address:
    """The address of a service URL with one host. Raises BadAddress."""
    parts = urlsplit(text)
    if parts.scheme not in DEFAULT_PORTS:
        raise BadAddress(f"{text!r} does not begin with one of {', '.join(DEFAULT_PORTS)}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadAddress(f"{text!r} has no valid port") from None
    if not host:
        raise BadAddress(f"{text!r} names no host")
    return Address(host, port or DEFAULT_PORTS[parts.scheme])


def parse_urls(key: str, text: str) -> list[Address]:
    """The addresses of a service URL with one host or several, `pulsar://a:6650,b:6650`.

    Raises ConfigError that names the key.
    """
    if not text:
        return []
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise ConfigError(f"{key}: {text!r} is no URL")
    hosts = rest.rstrip("/").split(",")
    try:
        return [
            parse_url(host if "://" in host else f"{scheme}://{host}")
            for host in (part.strip() for part in hosts)
        ]
    except BadAddress as error:
        raise ConfigError(f"{key}: {error}") from None


class Targets:
    """Which addresses a tunnel may lead to: known brokers, and what the configuration allows.

    Apache's defaults let every host through on two ports; here nothing is let through that is not a
    broker, unless `brokerProxyAllowedHostNames` or `brokerProxyAllowedIPAddresses` say so.
    """

    def __init__(
        self, known: Sequence[Address], host_names: str, ip_addresses: str, ports: str
    ) -> None:
        """Raises ConfigError."""
        self._known = dict.fromkeys(known)
        self._learned: dict[Address, None] = {}
        self._host_patterns = _split(host_names)
        self._any_ip = "*" in _split(ip_addresses)
        try:
            self._networks = [
                ipaddress.ip_network(part, strict=False)
                for part in _split(ip_addresses)
                if part != "*"
            ]
            self._ports = None if "*" in _split(ports) else {int(part) for part in _split(ports)}
        except ValueError as error:
            raise ConfigError(f"brokerProxyAllowed…: {error}") from None

    def learn(self, address: Address) -> None:
        """A broker has named this one in the answer to a lookup."""
        self._learned.pop(address, None)
        self._learned[address] = None
        if len(self._learned) > LEARNED_MAX:
            del self._learned[next(iter(self._learned))]

    def know(self, brokers: Sequence[Address]) -> None:
        """These are the brokers from now on, beside those that lookups named."""
        self._known = dict.fromkeys(brokers)

    def is_known(self, address: Address) -> bool:
        """Whether it is a broker's, by configuration, discovery or a broker's word."""
        return address in self._known or address in self._learned

    def allows(self, address: Address) -> bool:
        """Whether a tunnel may lead there, as far as its name tells."""
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
            # A name: what it resolves to is looked at when it is connected to.
            return True
        return self.allows_ip(address.host)

    def allows_ip(self, ip: str) -> bool:
        """Whether a host that is no known broker may have this address."""
        if self._any_ip or not self._networks:
            return True
        found = ipaddress.ip_address(ip.partition("%")[0])
        return any(found in network for network in self._networks)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
