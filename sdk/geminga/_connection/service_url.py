"""Service URLs: `pulsar://host:6650,host2:6650`, `pulsar+ssl://host:6651`, `http://host:8080`,
`https://host:8443` (ServiceURI of the Java client).
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from geminga.errors import InvalidServiceUrlError
from geminga_runtime.host_port import host_port

PORT_PLAIN = 6650
PORT_TLS = 6651
PORT_HTTP = 8080
PORT_HTTPS = 8443


class Address(NamedTuple):
    """A broker's host and port, whether it uses TLS, and whether it is its web service."""

    host: str
    port: int
    tls: bool = False
    http: bool = False

    @property
    def authority(self) -> str:
        """Host and port."""
        return host_port(self.host, self.port)

    @property
    def url(self) -> str:
        """As a URL of one broker."""
        return f"{_NAMES[self.tls, self.http]}://{self.authority}"


def is_trusted(address: Address, patterns: Iterable[str]) -> bool:
    """Whether a pattern matches the address's host, or host and port; `*` matches anything."""
    names = (address.host.lower(), address.authority.lower())
    return any(fnmatchcase(name, each.lower()) for each in patterns for name in names)


def parse(service_url: str, what: str = "service_url") -> tuple[Address, ...]:
    """The addresses of a service URL, in its order. Raises InvalidServiceUrlError, which says
    `what` had it.
    """
    if not isinstance(service_url, str):
        raise InvalidServiceUrlError(f"{what} must be a text, not {service_url!r}")
    scheme, separator, rest = service_url.partition("://")
    if not separator or scheme not in _SCHEMES:
        schemes = ", ".join(f"{each}://" for each in _SCHEMES)
        raise InvalidServiceUrlError(f"{what} must begin with {schemes}, not {service_url!r}")
    hosts = rest.split("/", 1)[0]
    addresses = tuple(
        _address(part, scheme, f"{what} has a bad", service_url)
        for part in hosts.split(",")
        if part
    )
    if not addresses:
        raise InvalidServiceUrlError(f"{what} names no host: {service_url!r}")
    return addresses


def parse_one(url: str) -> Address:
    """The address of one broker, as returned by lookups. Raises InvalidServiceUrlError."""
    return parse(url)[0]


_SCHEMES = {
    "pulsar": (PORT_PLAIN, False, False),
    "pulsar+ssl": (PORT_TLS, True, False),
    "http": (PORT_HTTP, False, True),
    "https": (PORT_HTTPS, True, True),
}
"""By scheme: default port, whether with TLS, whether web service."""
_NAMES = {(tls, http): scheme for scheme, (_, tls, http) in _SCHEMES.items()}


def _address(text: str, scheme: str, has_a_bad: str, url: str) -> Address:
    if text.startswith("["):
        host, bracket, tail = text[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise InvalidServiceUrlError(f"{has_a_bad} IPv6 host: {url!r}")
        port = tail[1:]
    else:
        host, _, port = text.partition(":")
    if not host or (port and not port.isdecimal()) or (port and not 0 < int(port) < 65536):
        raise InvalidServiceUrlError(f"{has_a_bad} host or port: {url!r}")
    default, tls, http = _SCHEMES[scheme]
    return Address(host, int(port) if port else default, tls, http)
