"""Tokens of OpenID providers (spec PX-21, PIP-97; Apache's `AuthenticationProviderOpenID`).

The issuer's keys are found by its discovery document, or read from a file, and kept for a while.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import trio

from geminga_protocol import tokens
from geminga_runtime.auth.api import EXPIRED_TOKEN, AuthenticationFailed, Identity, Peer
from geminga_runtime.auth.settings import AuthSettings
from geminga_runtime.errors import ConnectionLost
from geminga_runtime.http.get import BadHttpAnswer, get
from geminga_runtime.json_text import read_json
from geminga_runtime.settings import ConfigError, listed
from geminga_runtime.stream import FramedStream

METHOD = "token"
DISCOVERY = "/.well-known/openid-configuration"
RETRY_S = 5.0
"""Pause after an issuer could not be reached, however many tokens come."""
KEYS_MAX = 100
"""Cached keys of one issuer."""
REQUIRED_CLAIMS = ("iat", "exp", "nbf", "sub")

Fetch = Callable[[str], Awaitable[bytes]]
"""The body of a URL, by GET. Raises OSError."""


@dataclass(frozen=True, slots=True)
class _KeySet:
    keys: Mapping[str | None, tokens.VerifyingKey]
    fetched_at_s: float


class OpenIdProvider:
    """Verifies tokens of the allowed issuers. It is its own exchange: one step, no state."""

    method = METHOD
    name = "AuthenticationProviderOpenID"

    def __init__(
        self,
        settings: AuthSettings,
        fetch: Fetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises ConfigError."""
        self._settings = settings
        self._issuers = listed(settings.openid_issuers)
        audiences = listed(settings.openid_audiences)
        if not self._issuers or not audiences:
            raise ConfigError(
                "authentication by OpenID needs openIDAllowedTokenIssuers and "
                "openIDAllowedAudiences"
            )
        for issuer in self._issuers:
            if settings.openid_require_https and not issuer.startswith("https://"):
                raise ConfigError(
                    f"openIDAllowedTokenIssuers: {issuer!r} does not begin with https:// "
                    "(openIDRequireIssuersUseHttps=false allows that)"
                )
        self._rules = tokens.Rules(
            role_claim=settings.openid_role_claim,
            audience_claim="aud",
            audiences=audiences,
            clock_skew_s=settings.openid_leeway_s,
            required=REQUIRED_CLAIMS,
        )
        self._fetch = fetch
        self._clock = clock
        self._sets: dict[str, _KeySet] = {}
        self._failures: dict[str, tuple[float, str]] = {}
        """Issuer -> time and text of its last failure."""
        self._refreshing = trio.Lock()
        if settings.openid_jwks_file:
            fixed = _read_file(Path(settings.openid_jwks_file))
            self._sets = {issuer: _KeySet(fixed, float("inf")) for issuer in self._issuers}

    @classmethod
    def from_settings(cls, settings: AuthSettings) -> OpenIdProvider:
        """Asks issuers over HTTPS, trusting the system's authorities or those of
        `openIDTokenIssuerTrustCertsFilePath`. Raises ConfigError.
        """
        trust = settings.openid_issuer_trust_certs_file_path
        return cls(settings, fetcher(trust, settings.openid_http_timeout_ms / 1000))

    def begin(self, peer: Peer) -> OpenIdProvider:
        """The provider itself."""
        return self

    async def step(self, data: bytes) -> Identity:
        """Raises AuthenticationFailed."""
        try:
            issuer = tokens.unverified_claims(data).get("iss")
            if not isinstance(issuer, str) or issuer not in self._issuers:
                raise AuthenticationFailed("token issuer is not allowed", "issuer")
            key = await self._key(issuer, tokens.key_id(data))
            token = tokens.verify(data, key, self._clock(), self._rules)
        except tokens.TokenExpired as error:
            raise AuthenticationFailed(str(error), EXPIRED_TOKEN) from None
        except tokens.TokenError as error:
            raise AuthenticationFailed(str(error), "invalid_token") from None
        return Identity(token.role, METHOD, token.good_until_s(self._rules))

    async def _key(self, issuer: str, key_id: str | None) -> tokens.VerifyingKey:
        found = self._sets.get(issuer)
        age_s = self._clock() - found.fetched_at_s if found else float("inf")
        known = found is not None and key_id in found.keys
        lives_s = self._settings.openid_cache_refresh_s
        if not known:
            lives_s = min(lives_s, self._settings.openid_cache_miss_s)
        if found is None or age_s > lives_s:
            found = await self._refresh(issuer, found)
        if key_id in found.keys:
            return found.keys[key_id]
        raise AuthenticationFailed("token is signed with a key that its issuer doesn't publish")

    async def _refresh(self, issuer: str, known: _KeySet | None) -> _KeySet:
        """Fetch once for all waiting tasks; until it expires, an old set is used on failure."""
        async with self._refreshing:
            current = self._sets.get(issuer)
            if current is not None and current is not known:
                return current
            failed_s, why = self._failures.get(issuer, (float("-inf"), ""))
            if self._clock() - failed_s < RETRY_S:
                return self._old(issuer, known, why)
            try:
                keys = await self._fetch_keys(issuer)
            except (OSError, ValueError) as error:
                self._failures[issuer] = self._clock(), str(error)
                return self._old(issuer, known, str(error))
            self._sets[issuer] = fresh = _KeySet(keys, self._clock())
            return fresh

    def _old(self, issuer: str, known: _KeySet | None, why: str) -> _KeySet:
        """The cached keys if they have not expired. Raises AuthenticationFailed."""
        expires_s = self._settings.openid_cache_expiration_s
        if known is not None and self._clock() - known.fetched_at_s < expires_s:
            return known
        text = f"the keys of {issuer} can't be had: {why}"
        raise AuthenticationFailed(text, "issuer_unreachable")

    async def _fetch_keys(self, issuer: str) -> Mapping[str | None, tokens.VerifyingKey]:
        body = await self._fetch(issuer.rstrip("/") + DISCOVERY)
        document = read_json(body, _Discovery)
        if document.issuer != issuer:
            raise OSError(f"its discovery document is that of {document.issuer!r}")
        if self._settings.openid_require_https and not document.jwks_uri.startswith("https://"):
            raise OSError("its jwks_uri does not begin with https://")
        return _keys_of(await self._fetch(document.jwks_uri))


class _Discovery(msgspec.Struct):
    issuer: str
    jwks_uri: str


class _WebKeys(msgspec.Struct):
    keys: list[dict[str, object]]


def _keys_of(body: bytes) -> dict[str | None, tokens.VerifyingKey]:
    """Keys by id; keys that can't verify are skipped. Raises BadJson."""
    found: dict[str | None, tokens.VerifyingKey] = {}
    for web_key in read_json(body, _WebKeys).keys[:KEYS_MAX]:
        try:
            key = tokens.jwk_key(web_key)
        except tokens.KeyRefused:
            continue
        key_id = web_key.get("kid")
        found[key_id if isinstance(key_id, str) else None] = key
    return found


def _read_file(path: Path) -> Mapping[str | None, tokens.VerifyingKey]:
    try:
        return _keys_of(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"openIDJwksFile: {path} can't be read: {error}") from None


def fetcher(trust_certs_file_path: str, timeout_s: float) -> Fetch:
    """A function that returns a URL's body. Raises OSError.

    Trusts the system's authorities when no file is named. Raises ConfigError when it can't be read.
    """
    try:
        context = ssl.create_default_context(cafile=trust_certs_file_path or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{trust_certs_file_path} can't be read: {error}") from None

    async def fetch(url: str) -> bytes:
        try:
            with trio.fail_after(timeout_s):
                return await _fetch(url, context)
        except trio.TooSlowError:
            raise OSError(f"{url} did not answer within {timeout_s:g} s") from None
        except (ConnectionLost, BadHttpAnswer, trio.BrokenResourceError, ssl.SSLError) as error:
            raise OSError(f"{url}: {error}") from error

    return fetch


async def _fetch(url: str, context: ssl.SSLContext) -> bytes:
    parts = urlsplit(url)
    host = parts.hostname or ""
    stream: trio.abc.Stream
    if parts.scheme == "https":
        stream = await trio.open_ssl_over_tcp_stream(host, parts.port or 443, ssl_context=context)
    elif parts.scheme == "http":
        stream = await trio.open_tcp_stream(host, parts.port or 80)
    else:
        raise OSError(f"{url} is neither http nor https")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    answer = await get(FramedStream(stream, name=parts.netloc), parts.netloc, target, {})
    if answer.status != 200:
        raise OSError(f"{url} answered {answer.status}")
    return answer.body
