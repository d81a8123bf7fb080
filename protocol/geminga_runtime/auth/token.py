"""Tokens (spec PX-20; Apache's `AuthenticationProviderToken`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from geminga_protocol import tokens
from geminga_runtime.auth.api import EXPIRED_TOKEN, AuthenticationFailed, Identity, Peer
from geminga_runtime.auth.key_files import KeySourceError, read_key
from geminga_runtime.auth.settings import AuthSettings
from geminga_runtime.settings import ConfigError

METHOD = "token"


class TokenProvider:
    """Verifies JSON web tokens with one key. It is its own exchange: one step, no state."""

    method = METHOD
    name = "AuthenticationProviderToken"

    def __init__(
        self,
        key: tokens.VerifyingKey,
        rules: tokens.Rules,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._key = key
        self._rules = rules
        self._clock = clock

    @classmethod
    def from_settings(cls, settings: AuthSettings) -> TokenProvider:
        """Raises ConfigError that names the key."""
        rules = tokens.Rules(
            role_claim=settings.token_auth_claim,
            audience_claim=settings.token_audience_claim,
            audiences=(settings.token_audience,),
            clock_skew_s=settings.token_clock_skew_s,
        )
        if rules.audience_claim and not settings.token_audience:
            raise ConfigError("tokenAudienceClaim is set, so tokenAudience must be set too")
        return cls(_verifying_key(settings), rules)

    def begin(self, peer: Peer) -> TokenProvider:
        """The provider itself."""
        return self

    async def step(self, data: bytes) -> Identity:
        """Raises AuthenticationFailed."""
        try:
            token = tokens.verify(data, self._key, self._clock(), self._rules)
        except tokens.TokenExpired as error:
            raise AuthenticationFailed(str(error), EXPIRED_TOKEN) from None
        except tokens.TokenError as error:
            raise AuthenticationFailed(str(error), "invalid_token") from None
        return Identity(token.role, METHOD, token.good_until_s(self._rules))


def _verifying_key(settings: AuthSettings) -> tokens.VerifyingKey:
    """The secret key if both are given, as in Apache's provider."""
    if settings.token_secret_key:
        key, source, make = "tokenSecretKey", settings.token_secret_key, tokens.secret_key
    elif settings.token_public_key:
        key, source, make = "tokenPublicKey", settings.token_public_key, tokens.public_key
    else:
        raise ConfigError("authentication by token needs tokenSecretKey or tokenPublicKey")
    try:
        found = make(read_key(source))
    except (KeySourceError, tokens.KeyRefused) as error:
        raise ConfigError(f"{key}: {error}") from None
    if key == "tokenPublicKey" and settings.token_public_alg not in found.algorithms:
        raise ConfigError(
            f"tokenPublicAlg: {settings.token_public_alg!r} does not fit the key, "
            f"which verifies {', '.join(found.algorithms)}"
        )
    return found
