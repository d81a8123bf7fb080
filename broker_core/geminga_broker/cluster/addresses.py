"""Where a broker is reached."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit


class Addresses(NamedTuple):
    """Addresses of a broker for clients; empty where it has no listener."""

    broker_url: str
    web_url: str
    broker_url_tls: str = ""
    web_url_tls: str = ""

    @property
    def broker_id(self) -> str:
        """Apache's broker id: `host:port` of the web service, or of another port without it."""
        urls = (self.web_url, self.web_url_tls, self.broker_url)
        return urlsplit(next((url for url in urls if url), self.broker_url_tls)).netloc


def advertised_host(bind_address: str, advertised_address: str) -> str:
    """The host that clients are told, by `bindAddress` and `advertisedAddress`."""
    if advertised_address:
        return advertised_address
    return "localhost" if bind_address in ("", "0.0.0.0", "::") else bind_address
