"""Service URLs: `pulsar://host:6650,host2:6650` (ServiceURI of the Java client)."""

from __future__ import annotations

from typing import NamedTuple

from geminga.errors import InvalidServiceUrl

PORT_PLAIN = 6650
PORT_TLS = 6651


class Address(NamedTuple):
    """A broker's host and port, and whether to speak TLS there."""

    host: str
    port: int
    tls: bool = False

    @property
    def url(self) -> str:
        """As a URL of one broker."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{host}:{self.port}"


def parse(service_url: str) -> tuple[Address, ...]:
    """The addresses of a service URL, in its order. Raises InvalidServiceUrl."""
    if not isinstance(service_url, str):
        raise InvalidServiceUrl(f"service_url must be a text, not {service_url!r}")
    scheme, separator, rest = service_url.partition("://")
    if not separator or scheme not in ("pulsar", "pulsar+ssl"):
        raise InvalidServiceUrl(f"service_url must begin with pulsar://, not {service_url!r}")
    tls = scheme == "pulsar+ssl"
    hosts = rest.split("/", 1)[0]
    addresses = tuple(_address(part, tls, service_url) for part in hosts.split(",") if part)
    if not addresses:
        raise InvalidServiceUrl(f"service_url names no host: {service_url!r}")
    return addresses


def parse_one(url: str) -> Address:
    """The address of one broker, as lookups answer it. Raises InvalidServiceUrl."""
    return parse(url)[0]


def _address(text: str, tls: bool, url: str) -> Address:
    if text.startswith("["):
        host, bracket, tail = text[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise InvalidServiceUrl(f"service_url has a bad IPv6 host: {url!r}")
        port = tail[1:]
    else:
        host, _, port = text.partition(":")
    if not host or (port and not port.isdecimal()) or (port and not 0 < int(port) < 65536):
        raise InvalidServiceUrl(f"service_url has a bad host or port: {url!r}")
    return Address(host, int(port) if port else (PORT_TLS if tls else PORT_PLAIN), tls)
