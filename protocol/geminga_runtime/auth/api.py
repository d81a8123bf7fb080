"""The seam between servers and providers of authentication.

Follows `AuthenticationProvider` and `AuthenticationState` of Apache Pulsar, with one difference:
what a provider learns is a value (`Identity`), not a state that is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

REFRESH = b"PulsarAuthRefresh"
"""Data of an AUTH_CHALLENGE that asks a peer for fresh credentials (PIP-55)."""

ANONYMOUS_METHOD = "none"
"""Method name of clients without credentials."""


class AuthenticationFailed(Exception):
    """The peer isn't let in. The text goes to the log and holds no secret; the peer hears less."""

    def __init__(self, text: str, reason: str = "invalid_credentials") -> None:
        super().__init__(text)
        self.reason = reason
        """One of a few words, for the metric's label."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a peer has shown to be."""

    role: str
    method: str
    """Wire name of the provider's method: `token`, `tls`, `basic`."""
    expires_at_s: float | None = None
    """Unix time at which fresh credentials are due, None for never."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The provider wants to hear more: `data` goes to the peer in an AUTH_CHALLENGE."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Peer:
    """What a server knows of a connection before anything is said."""

    address: str = ""
    """`host:port`, for the log."""
    certificate: bytes | None = None
    """DER of the verified client certificate, None without TLS or without certificate."""


class Exchange(Protocol):
    """One peer's proof, in one step or more."""

    async def step(self, data: bytes) -> Identity | Challenge:
        """Take what the peer sent. Raises AuthenticationFailed."""
        ...


class Provider(Protocol):
    """One way to prove who one is."""

    @property
    def method(self) -> str:
        """Wire name of the method that clients announce in CONNECT."""
        ...

    @property
    def name(self) -> str:
        """Class name as Apache's metrics put it in the label `provider_name`."""
        ...

    def begin(self, peer: Peer) -> Exchange:
        """A new proof for one connection, or one HTTP request."""
        ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a provider may look at in an HTTP request; header names in lower case."""

    headers: Mapping[str, str] = field(default_factory=dict)
    peer: Peer = field(default_factory=Peer)
