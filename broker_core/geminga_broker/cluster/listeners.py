"""Named listeners: several sets of addresses under which clients reach one broker (spec CL-05;
Apache's MultipleListenerValidator).

`advertisedListeners` is a list such as `inside:pulsar://10.0.0.1:6650,outside:pulsar://b.org:6650`;
a client that names a listener is told its address. Brokers and others are told those of
`internalListenerName`, which is the first one unless set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from geminga_broker.cluster.addresses import Addresses
from geminga_runtime.host_port import bracketed
from geminga_runtime.settings import ConfigError

KEY = "advertisedListeners"
LISTENERS_MAX = 32
_FIELDS = {
    "pulsar": "broker_url",
    "pulsar+ssl": "broker_url_tls",
    "http": "web_url",
    "https": "web_url_tls",
}


class Listeners(NamedTuple):
    """The addresses of each listener; `internal` names one of them. Empty without listeners."""

    by_name: Mapping[str, Addresses]
    internal: str = ""

    def advertised(self, bound: Addresses) -> Addresses:
        """This broker's own addresses: the internal listener's, and of the ports that it doesn't
        name those that are bound, at its host.
        """
        given = self.by_name.get(self.internal)
        if given is None:
            return bound
        host = bracketed(next(urlsplit(url).hostname for url in given if url) or "")
        found = {
            field: getattr(given, field) or _at_host(getattr(bound, field), host)
            for field in _FIELDS.values()
        }
        return Addresses(**found)


def _at_host(url: str, host: str) -> str:
    if not url:
        return ""
    parts = urlsplit(url)
    return f"{parts.scheme}://{host}:{parts.port}"


NO_LISTENERS = Listeners({})


def parse_listeners(text: str, internal: str, advertised_address: str) -> Listeners:
    """Raises ConfigError, as Apache's broker refuses to start."""
    entries = [part.strip() for part in text.split(",") if part.strip()]
    if not entries:
        if internal:
            raise ConfigError(f"internalListenerName: {internal!r} needs {KEY}")
        return NO_LISTENERS
    if advertised_address:
        raise ConfigError(f"{KEY} and advertisedAddress can't both be set")
    found: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    for entry in entries:
        name, field, url, netloc = _parse(entry)
        urls = found.setdefault(name, {})
        if field in urls:
            raise ConfigError(f"{KEY}: listener {name!r} has two addresses of one kind: {url}")
        if owners.setdefault(netloc, name) != name:
            raise ConfigError(f"{KEY}: {netloc} is of two listeners, {owners[netloc]!r}, {name!r}")
        urls[field] = url
    if len(found) > LISTENERS_MAX:
        raise ConfigError(f"{KEY}: more than {LISTENERS_MAX} listeners")
    first = internal or next(iter(found))
    if first not in found:
        raise ConfigError(f"internalListenerName: {KEY} has no {first!r}")
    every = {"broker_url": "", "web_url": ""}
    return Listeners({name: Addresses(**(every | urls)) for name, urls in found.items()}, first)


def _parse(entry: str) -> tuple[str, str, str, str]:
    """Name, field of Addresses, URL, host and port."""
    name, _, url = entry.partition(":")
    name, url = name.strip(), url.strip()
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port is not None and parts.path in ("", "/")
    except ValueError:
        raise ConfigError(f"{KEY}: {entry[:200]!r} has no valid port") from None
    if not name or parts.scheme not in _FIELDS or not is_whole:
        raise ConfigError(
            f"{KEY}: {entry[:200]!r} is not NAME:SCHEME://HOST:PORT with one of the schemes "
            f"{', '.join(_FIELDS)}"
        )
    return name, _FIELDS[parts.scheme], f"{parts.scheme}://{parts.netloc}", parts.netloc
