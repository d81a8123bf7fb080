"""Several providers at once, and the role of anonymous clients (spec PX-21; Apache's
`AuthenticationService` and `AuthenticationProviderList`).
"""

from __future__ import annotations

import base64
import binascii
import logging
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from geminga_runtime.auth.api import (
    ANONYMOUS_METHOD,
    EXPIRED_TOKEN,
    AuthenticationFailed,
    Challenge,
    Exchange,
    HttpRequest,
    Identity,
    Peer,
    Provider,
)
from geminga_runtime.auth.settings import AuthSettings
from geminga_runtime.logs import shown
from geminga_runtime.metrics.buckets import Buckets
from geminga_runtime.settings import ConfigError

_log = logging.getLogger(__name__)

PROVIDERS = {
    "token": "geminga_runtime.auth.token:TokenProvider",
    "tls": "geminga_runtime.auth.tls:TlsProvider",
    "basic": "geminga_runtime.auth.basic:BasicProvider",
    "oidc": "geminga_runtime.auth.oidc:OpenIdProvider",
}
"""Short names of providers -> `module:class`; the class has a `from_settings`."""

APACHE_NAMES = {
    "org.apache.pulsar.broker.authentication.AuthenticationProviderToken": "token",
    "org.apache.pulsar.broker.authentication.AuthenticationProviderTls": "tls",
    "org.apache.pulsar.broker.authentication.AuthenticationProviderBasic": "basic",
    "org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID": "oidc",
}
"""Class names in Apache's configuration files."""


_DAYS = (1, 7, 14, 30, 90, 180, 270, 365)
EXPIRING_BOUNDS_MINUTES = (5.0, 10.0, 60.0, 240.0, *(days * 1440.0 for days in _DAYS))
"""As Apache's AuthenticationMetricsToken."""


class ProviderFactory(Protocol):
    """The class of a provider, as a plug-in offers it."""

    def from_settings(self, settings: AuthSettings) -> Provider:
        """Raises ConfigError."""
        ...


class Authenticator:
    """Authenticates peers by the providers of their method, in order."""

    def __init__(self, providers: Sequence[Provider], anonymous_role: str = "") -> None:
        self._providers: dict[str, list[Provider]] = {}
        for provider in providers:
            self._providers.setdefault(provider.method, []).append(provider)
        self._anonymous_role = anonymous_role
        self.successes: Counter[tuple[str, str]] = Counter()
        """(provider, method) -> number of successes."""
        self.failures: Counter[tuple[str, str, str]] = Counter()
        """(provider, method, reason) -> number of failures."""
        self.expiring_minutes = Buckets(EXPIRING_BOUNDS_MINUTES)
        """How long tokens that were accepted are still good; those that expire only."""

    def accepted(self, provider: str, method: str, identity: Identity) -> None:
        """A provider has authenticated a peer."""
        self.successes[provider, method] += 1
        if method == "token" and identity.expires_at_s is not None:
            left_s = identity.expires_at_s - time.time()
            self.expiring_minutes.add(max(left_s, 0.0) / 60)

    @property
    def expired_tokens(self) -> int:
        """How often a token was refused because its time was over."""
        counts = self.failures.items()
        return sum(count for (_, _, reason), count in counts if reason == EXPIRED_TOKEN)

    @property
    def methods(self) -> Sequence[str]:
        """The methods that clients may announce."""
        return tuple(self._providers)

    def begin(self, method: str, peer: Peer) -> Exchange:
        """A new exchange. Raises AuthenticationFailed if no provider has the method and there is no
        anonymous role.

        A peer without a method is authenticated by its certificate, if it has one and `tls` is on.
        """
        if not method and peer.certificate is not None and "tls" in self._providers:
            method = "tls"
        providers = self._providers.get(method)
        if providers:
            return _Attempts(self, method, [(one.name, one.begin(peer)) for one in providers])
        if self._anonymous_role:
            return _Anonymous(self._anonymous_role)
        # Not the peer's own name of it: peers could create any number of labels.
        label = "unknown" if method else ANONYMOUS_METHOD
        self.failures["none", label, "unsupported_method"] += 1
        known = ", ".join(self._providers) or "none"
        what = f"no provider for method {shown(method)!r}" if method else "no credentials"
        raise AuthenticationFailed(f"{what} (known methods: {known})", "unsupported_method")

    async def authenticate_http(self, request: HttpRequest) -> Identity:
        """By the Authorization header, else the certificate, else as anonymous.

        Raises AuthenticationFailed.
        """
        method, data = _of_header(request.headers.get("authorization", ""))
        answer = await self.begin(method, request.peer).step(data)
        if isinstance(answer, Challenge):
            raise AuthenticationFailed("HTTP has no methods of several steps", "unsupported_method")
        return answer


class _Anonymous:
    def __init__(self, role: str) -> None:
        self._role = role

    async def step(self, data: bytes) -> Identity:
        return Identity(self._role, ANONYMOUS_METHOD)


class _Attempts:
    """The first provider that accepts wins; if none does, raises the last failure."""

    def __init__(
        self, service: Authenticator, method: str, open_: list[tuple[str, Exchange]]
    ) -> None:
        self._service = service
        self._method = method
        self._open = open_

    async def step(self, data: bytes) -> Identity | Challenge:
        failure = AuthenticationFailed("no provider is left")
        for name, exchange in list(self._open):
            try:
                answer = await exchange.step(data)
            except AuthenticationFailed as error:
                failure = error
                self._service.failures[name, self._method, error.reason] += 1
                continue
            except Exception as error:
                # A plug-in's error fails this peer only. Its text may contain the peer's data.
                kind = type(error).__name__
                failure = AuthenticationFailed(f"{name} failed with {kind}", "provider_failed")
                self._service.failures[name, self._method, failure.reason] += 1
                continue
            # The provider that began an exchange continues it, and gets renewed credentials.
            self._open = [(name, exchange)]
            if isinstance(answer, Identity):
                self._service.accepted(name, self._method, answer)
            return answer
        raise failure


def _of_header(header: str) -> tuple[str, bytes]:
    """Method and data of an Authorization header; both empty for an empty one."""
    if not header:
        return "", b""
    scheme, _, rest = header.partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return "token", rest.encode("latin-1", "replace")
    if scheme.lower() == "basic":
        try:
            return "basic", base64.b64decode(rest, validate=True)
        except (binascii.Error, ValueError):
            raise AuthenticationFailed("Basic header is not Base64") from None
    raise AuthenticationFailed("unknown scheme in the Authorization header", "unsupported_method")


def load_authenticator(settings: AuthSettings) -> Authenticator | None:
    """The configured authenticator; None if authentication is off. Raises ConfigError."""
    if not settings.enabled:
        return None
    names = [name.strip() for name in settings.providers.split(",") if name.strip()]
    if not names and not settings.anonymous_role:
        raise ConfigError("authenticationEnabled needs authenticationProviders")
    return Authenticator([_load(name, settings) for name in names], settings.anonymous_role)


def _load(name: str, settings: AuthSettings) -> Provider:
    target = PROVIDERS.get(APACHE_NAMES.get(name, name), name)
    module, colon, attribute = target.partition(":")
    if not colon:
        known = ", ".join((*PROVIDERS, *APACHE_NAMES))
        raise ConfigError(
            f"authenticationProviders: {name!r} is none of {known}, nor a plug-in as module:Class"
        )
    try:
        factory = cast(ProviderFactory, getattr(import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"authenticationProviders: {name!r} can't be loaded: {error}") from None
    provider = factory.from_settings(settings)
    _log.info("authentication by %s", provider.name)
    return provider
