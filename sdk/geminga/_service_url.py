"""Service URLs: `pulsar://host:6650,host2:6650`, `http://host:8080` (ServiceURI of the Java
client).
"""

from __future__ import annotations

from typing import NamedTuple

from geminga.errors import InvalidServiceUrl

PORT_PLAIN = 6650
PORT_TLS = 6651
PORT_HTTP = 8080


class Address(NamedTuple):
    """A broker's host and port, whether to speak TLS there, and whether it is its web service."""

    host: str
    port: int
    tls: bool = False
    http: bool = False

    @property
    def authority(self) -> str:
        """Host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """As a URL of one broker."""
        scheme = "http" if self.http else "pulsar+ssl" if self.tls else "pulsar"
        return f"{scheme}://{self.authority}"


def parse(service_url: str) -> tuple[Address, ...]:
    """The addresses of a service URL, in its order. Raises InvalidServiceUrl."""
    if not isinstance(service_url, str):
        raise InvalidServiceUrl(f"service_url must be a text, not {service_url!r}")
    scheme, separator, rest = service_url.partition("://")
    if not separator or scheme not in ("pulsar", "pulsar+ssl", "http"):
        raise InvalidServiceUrl(
            f"service_url must begin with pulsar:// or http://, not {service_url!r}"
        )
    hosts = rest.split("/", 1)[0]
    addresses = tuple(_address(part, scheme, service_url) for part in hosts.split(",") if part)
    if not addresses:
        raise InvalidServiceUrl(f"service_url names no host: {service_url!r}")
    return addresses


def parse_one(url: str) -> Address:
    """The address of one broker, as lookups answer it. Raises InvalidServiceUrl."""
    return parse(url)[0]


_PORTS = {"pulsar": PORT_PLAIN, "pulsar+ssl": PORT_TLS, "http": PORT_HTTP}


def _address(text: str, scheme: str, url: str) -> Address:
    if text.startswith("["):
        host, bracket, tail = text[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise InvalidServiceUrl(f"service_url has a bad IPv6 host: {url!r}")
        port = tail[1:]
    else:
        host, _, port = text.partition(":")
    if not host or (port and not port.isdecimal()) or (port and not 0 < int(port) < 65536):
        raise InvalidServiceUrl(f"service_url has a bad host or port: {url!r}")
    number = int(port) if port else _PORTS[scheme]
    return Address(host, number, scheme == "pulsar+ssl", scheme == "http")
