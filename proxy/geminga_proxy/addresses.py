"""Addresses of brokers, as configuration, clients and brokers write them (spec PX-02). Pure."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from geminga_runtime.host_port import host_port
from geminga_runtime.settings import ConfigError

DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 80, "https": 443}
SCHEMES = {
    "brokerServiceURL": "pulsar",
    "brokerServiceURLTLS": "pulsar+ssl",
    "brokerWebServiceURL": "http",
    "brokerWebServiceURLTLS": "https",
}
"""What URLs of brokers must begin with, by key."""

_TLS_SCHEMES = ("pulsar+ssl", "https")
_PLACES = {
    scheme: f"{key}, with tlsEnabledWithBroker=true" if scheme in _TLS_SCHEMES else key
    for key, scheme in SCHEMES.items()
}
_HOST = re.compile(r"[a-z0-9_.:-]{1,253}")


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_port(self.host, self.port)


class BadAddress(ValueError):
    """Not a valid address of a broker."""


def parse_target(text: str) -> Address:
    """`host:port` as clients give it in CONNECT; a scheme is tolerated. Raises BadAddress."""
    rest = text.partition("://")[2] if "://" in text else text
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadAddress(f"{text!r} is not host:port") from None
    odd = parts.path or parts.query or parts.fragment or parts.username is not None
    if not host or not port or odd or not _HOST.fullmatch(host):
        raise BadAddress(f"{text!r} is not host:port")
    return Address(host, port)


def parse_url(text: str, *, by_tls: bool = True) -> Address:
    """The address of a service URL with one host. Raises BadAddress, without `by_tls` also for a
    URL that asks for TLS.
    """
    parts = urlsplit(text)
    if parts.scheme not in DEFAULT_PORTS:
        raise BadAddress(f"{text!r} does not begin with one of {', '.join(DEFAULT_PORTS)}")
    if parts.scheme in _TLS_SCHEMES and not by_tls:
        raise BadAddress(f"{text!r} needs TLS: set tlsEnabledWithBroker=true")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadAddress(f"{text!r} has no valid port") from None
    if not host:
        raise BadAddress(f"{text!r} has no host")
    return Address(host, port or DEFAULT_PORTS[parts.scheme])


def parse_urls(key: str, text: str) -> list[Address]:
    """The addresses of a key\'s URL with one or several hosts, `pulsar://a:6650,b:6650`.

    Raises ConfigError, which names the key, also if a URL has another scheme than the key's.
    """
    if not text:
        return []
    scheme = SCHEMES[key]
    hosts = [part.strip() for part in text.split(",")]
    try:
        # Only the first one needs a scheme.
        return [
            parse_url(
                _with_scheme(host if "://" in host or not n else f"{scheme}://{host}", scheme)
            )
            for n, host in enumerate(hosts)
        ]
    except BadAddress as error:
        raise ConfigError(f"{key}: {error}") from None


def _with_scheme(url: str, scheme: str) -> str:
    """The URL itself. Raises BadAddress if it has another scheme."""
    given, separator, _ = url.partition("://")
    given = given.lower() if separator else ""
    if given == scheme:
        return url
    advice = f"; {given}:// belongs in {_PLACES[given]}" if given in _PLACES else ""
    raise BadAddress(f"{url!r} must begin with {scheme}://{advice}")
