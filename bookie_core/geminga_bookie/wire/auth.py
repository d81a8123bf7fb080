"""Authentication on a bookie's wire: what plug-ins offer, at the server and in the ledger client
(spec BK-08; Apache's BookieAuthProvider and ClientAuthProvider).

A plug-in is a Python object under `module:attribute`, in the keys where Apache has a Java class: a
callable that gets the settings and returns a factory.
"""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from geminga_runtime.settings import ConfigError

AUTHENTICATION_DISABLED = "AuthDisabledPlugin"
"""Name of the plug-in that a bookie without authentication answers with."""

TLS_ROLES = "org.apache.bookkeeper.tls.BookieAuthZFactory"
PAYLOAD_BYTES_MAX = 64 * 1024
MESSAGES_MAX = 100
"""Authentication messages of one connection."""
AUTHENTICATION_S = 30.0
"""Time until a connection must be authenticated."""

_ROLE_CODE = "0"
_PART = re.compile(r"([0-9]+):([^\r\n]*)")


class AuthFailed(Exception):
    """The peer isn't who it must be. The text is for the log, and holds no secret."""


class AuthPeer(NamedTuple):
    """What is known of a client."""

    address: str
    certificate: bytes | None
    """DER of its verified certificate; None without TLS or without one."""


class AuthStep(NamedTuple):
    """The answer to a client's message."""

    payload: bytes
    is_done: bool


class ServerExchange(Protocol):
    """The authentication of one client."""

    async def process(self, payload: bytes) -> AuthStep:
        """A message of the client. Raises AuthFailed."""


class BookieAuth(Protocol):
    """A server's plug-in."""

    @property
    def plugin_name(self) -> str:
        """What clients' messages must name."""

    def begin(self, peer: AuthPeer) -> ServerExchange | None:
        """One connection, again after its TLS handshake; None if it needs no message. Raises
        AuthFailed if no message can help.
        """


class ClientExchange(Protocol):
    """The authentication at one bookie."""

    async def first(self) -> bytes:
        """What is sent at first."""

    async def process(self, payload: bytes) -> bytes | None:
        """The next message to an answer; None if there is none: the client is authenticated. Raises
        AuthFailed.
        """


class ClientAuth(Protocol):
    """A client's plug-in."""

    @property
    def plugin_name(self) -> str:
        """What its messages name."""

    def begin(self) -> ClientExchange:
        """At one connection."""


class TlsRoles:
    """Lets clients in by the role in their certificate: the first one of `0:ROLE,ROLE` in its
    organizational unit (Apache's BookieAuthZFactory).
    """

    plugin_name = "BookieAuthZFactory"

    def __init__(self, roles: Sequence[str]) -> None:
        self._roles = frozenset(roles)

    def begin(self, peer: AuthPeer) -> None:
        """See `BookieAuth.begin`."""
        if peer.certificate is None:
            raise AuthFailed("no client certificate")
        role = certificate_role(peer.certificate)
        if role is None:
            raise AuthFailed("the certificate's organizational unit has no role")
        if role not in self._roles:
            raise AuthFailed(f"role {role[:100]!r} is none of authorizedRoles")


def certificate_role(certificate: bytes) -> str | None:
    """The first role in the first organizational unit of a certificate (DER). Raises AuthFailed."""
    from cryptography import x509  # few bookies ask for certificates
    from cryptography.x509.oid import NameOID

    try:
        names = [list(each) for each in x509.load_der_x509_certificate(certificate).subject.rdns]
    except ValueError:
        raise AuthFailed("the certificate can't be parsed") from None
    for name in names:
        # Of several values at one level others come first, or not: such a level has no role.
        if len(name) == 1 and name[0].oid == NameOID.ORGANIZATIONAL_UNIT_NAME:
            return _role_in(str(name[0].value))
    return None


def _role_in(unit: str) -> str | None:
    found: str | None = None
    for part in unit.split(";"):
        match = _PART.fullmatch(part)
        if match is not None and match[1] == _ROLE_CODE:
            found = match[2].strip().split(",")[0].strip()
    return found or None


def load_bookie_auth(
    name: str, roles: Sequence[str], settings: Mapping[str, str]
) -> BookieAuth | None:
    """The server's plug-in; None without a name. Raises ConfigError."""
    if not name:
        return None
    if name == TLS_ROLES:
        if not roles:
            raise ConfigError("authorizedRoles: must be set with BookieAuthZFactory")
        return TlsRoles(roles)
    return cast(BookieAuth, _load("bookieAuthProviderFactoryClass", name, settings, TLS_ROLES))


def load_client_auth(key: str, name: str, settings: Mapping[str, str]) -> ClientAuth | None:
    """The client's plug-in; None without a name. Raises ConfigError."""
    return cast(ClientAuth, _load(key, name, settings, "")) if name else None


def _load(key: str, name: str, settings: Mapping[str, str], known: str) -> object:
    module, colon, attribute = name.partition(":")
    if not colon:
        others = f"{known}, or " if known else ""
        raise ConfigError(
            f"{key}: {name!r} is a Java class; there are {others}Python plug-ins as module:name"
        )
    try:
        factory = cast(
            Callable[[Mapping[str, str]], object], getattr(import_module(module), attribute)
        )
        return factory(settings)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{key}: {name!r} can't be loaded: {error}") from error
