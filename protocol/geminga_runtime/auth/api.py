"""The interface between servers and authentication providers.

Follows `AuthenticationProvider` and `AuthenticationState` of Apache Pulsar, with one difference:
the result is a value (`Identity`), not a state object that is queried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

REFRESH = b"PulsarAuthRefresh"
"""Data of an AUTH_CHALLENGE that asks a peer for fresh credentials (PIP-55)."""

EXPIRED_TOKEN = "expired_token"
"""The reason of `AuthenticationFailed` for a token whose time is over, by Apache's name."""

ANONYMOUS_METHOD = "none"
"""Method name of clients without credentials."""


class AuthenticationFailed(Exception):
    """Authentication failed. The text is for the log and holds no secret; the peer gets less."""

    def __init__(self, text: str, reason: str = "invalid_credentials") -> None:
        super().__init__(text)
        self.reason = reason
        """A word from a small set, for the metric's label."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated peer."""

    role: str
    method: str
    """Wire name of the provider's method: `token`, `tls`, `basic`."""
    expires_at_s: float | None = None
    """Unix time at which the credentials expire, None for never."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The provider needs another step: `data` goes to the peer in an AUTH_CHALLENGE."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Peer:
    """What a server knows of a connection before its first command."""

    address: str = ""
    """`host:port`, for the log."""
    certificate: bytes | None = None
    """DER of the verified client certificate, None without TLS or without certificate."""


class Exchange(Protocol):
    """The authentication of one peer, in one or more steps."""

    async def step(self, data: bytes) -> Identity | Challenge:
        """Check the peer's data. Raises AuthenticationFailed."""
        ...


class Provider(Protocol):
    """An authentication method."""

    @property
    def method(self) -> str:
        """Wire name of the method that clients announce in CONNECT."""
        ...

    @property
    def name(self) -> str:
        """Apache's class name, the label `provider_name` of its metrics."""
        ...

    def begin(self, peer: Peer) -> Exchange:
        """A new exchange for one connection, or one HTTP request."""
        ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The part of an HTTP request that providers get; header names are in lower case."""

    headers: Mapping[str, str] = field(default_factory=dict)
    peer: Peer = field(default_factory=Peer)
