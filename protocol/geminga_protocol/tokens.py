"""JSON web tokens: pure functions of token, key and time (spec PX-20, PX-24).

Follows `AuthTokenUtils` and `AuthenticationProviderToken` of Apache Pulsar: keys are raw bytes
(HMAC), PKCS#8 or X.509 DER, or PEM. The key, not the token, decides the algorithms: `none` is
refused, and so is a public key used as an HMAC secret.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

TOKEN_BYTES_MAX = 64 * 1024
"""Longer tokens are refused unread. Real ones have a few hundred or thousand bytes."""

SECRET_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""HMAC algorithms and the minimal size of their keys (RFC 7518, 3.2)."""

RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
EC_CURVES: Mapping[str, type[ec.EllipticCurve]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}
ALGORITHMS = (*SECRET_BYTES, *RSA_ALGORITHMS, *EC_CURVES)

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
Claims = Mapping[str, object]


class TokenError(Exception):
    """The token is invalid. The text says why and holds no part of the token."""


class TokenExpired(TokenError):
    """The token was valid, but has expired."""


class KeyRefused(ValueError):
    """A key can't be read, or is too weak for every algorithm."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A key and the algorithms that it may verify."""

    key: bytes | PublicKey
    algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """Requirements on a token beside its signature."""

    role_claim: str = "sub"
    audience_claim: str = ""
    """Empty: audiences are not checked."""
    audiences: tuple[str, ...] = ()
    """The token must have one of these."""
    clock_skew_s: float = 0
    required: tuple[str, ...] = ()
    """Claims that the token must have."""


@dataclass(frozen=True, slots=True)
class Token:
    """A verified token."""

    role: str
    expires_at_s: float | None
    """Unix time, None for a token that never expires."""
    claims: Claims

    def good_until_s(self, rules: Rules) -> float | None:
        """Unix time from which on these rules refuse it, None for never. A client that is asked for
        a fresh token earlier would send the same one again.
        """
        return None if self.expires_at_s is None else self.expires_at_s + rules.clock_skew_s


def secret_key(data: bytes) -> VerifyingKey:
    """An HMAC key. Raises KeyRefused under 32 bytes."""
    algorithms = tuple(name for name, least in SECRET_BYTES.items() if len(data) >= least)
    if not algorithms:
        raise KeyRefused(f"the secret key has {len(data)} bytes, it needs at least 32")
    return VerifyingKey(data, algorithms)


def public_key(data: bytes) -> VerifyingKey:
    """An RSA or EC public key, DER (X.509) or PEM. Raises KeyRefused."""
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            key = serialization.load_pem_public_key(data)
        else:
            key = serialization.load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyRefused("the public key is neither DER (X.509) nor PEM") from None
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        raise KeyRefused("the public key is neither RSA nor EC")
    return VerifyingKey(key, _algorithms_of(key))


def private_key(data: bytes) -> PrivateKey:
    """An RSA or EC private key, DER (PKCS#8) or PEM, not encrypted. Raises KeyRefused."""
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            key = serialization.load_pem_private_key(data, password=None)
        else:
            key = serialization.load_der_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyRefused("the private key is neither DER (PKCS#8) nor PEM, or encrypted") from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise KeyRefused("the private key is neither RSA nor EC")
    return key


def jwk_key(jwk: Mapping[str, object]) -> VerifyingKey:
    """A public key of a JSON web key set (RFC 7517). Raises KeyRefused."""
    if jwk.get("kty") not in ("RSA", "EC"):
        raise KeyRefused("the web key is neither RSA nor EC")
    if jwk.get("use", "sig") != "sig":
        raise KeyRefused("the web key is not for signatures")
    try:
        maker = RSAAlgorithm if jwk["kty"] == "RSA" else ECAlgorithm
        key = maker.from_jwk(dict(jwk))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise KeyRefused("the web key can't be read") from None
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        raise KeyRefused("the web key holds no public key")
    algorithms = _algorithms_of(key)
    named = jwk.get("alg")
    if isinstance(named, str):
        algorithms = tuple(name for name in algorithms if name == named)
        if not algorithms:
            raise KeyRefused(f"the web key is not one for {named}")
    return VerifyingKey(key, algorithms)


def _algorithms_of(key: PublicKey) -> tuple[str, ...]:
    if isinstance(key, rsa.RSAPublicKey):
        return RSA_ALGORITHMS
    return tuple(name for name, curve in EC_CURVES.items() if isinstance(key.curve, curve))


_SHOWN_CHARACTERS_MAX = 100


def verify(token: str | bytes, key: VerifyingKey, now_s: float, rules: Rules = Rules()) -> Token:
    """The token's role and expiry at the Unix time `now_s`. Raises TokenError, TokenExpired."""
    text = _text(token)
    try:
        # Only the signature: claims are checked below, against the caller's clock.
        payload = _signatures.decode(text, key.key, algorithms=list(key.algorithms))
        claims = json.loads(payload)
    except jwt.InvalidAlgorithmError:
        raise TokenError("the token's algorithm does not fit the key") from None
    except jwt.InvalidSignatureError:
        claimed = _claimed(_unverified(text), rules)
        raise TokenError(f"the token's signature is wrong (it claims {claimed})") from None
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenError("the token is malformed") from None
    if not isinstance(claims, dict):
        raise TokenError("the token is malformed")
    for name in rules.required:
        if claims.get(name) is None:
            raise TokenError(f"the token has no claim {name!r}")
    expires_at_s = _check_times(claims, now_s, rules)
    _check_audience(claims, rules)
    return Token(_role(claims, rules.role_claim), expires_at_s, claims)


_signatures = jwt.PyJWS()


def _text(token: str | bytes) -> str:
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenError(f"the token is longer than {TOKEN_BYTES_MAX} bytes")
    if isinstance(token, bytes):
        try:
            token = token.decode("ascii")
        except UnicodeDecodeError:
            raise TokenError("the token is malformed") from None
    if not token:
        raise TokenError("the token is empty")
    return token.strip()


def _unverified(text: str) -> Claims:
    """The claims of a token with a wrong signature: untrusted, for the log."""
    try:
        claims = json.loads(_signatures.decode(text, options={"verify_signature": False}))
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _claimed(claims: Claims, rules: Rules) -> str:
    try:
        return f"role {_role(claims, rules.role_claim)[:_SHOWN_CHARACTERS_MAX]!r}"
    except TokenError:
        return "no role"


def _check_times(claims: Claims, now_s: float, rules: Rules) -> float | None:
    begins = _time(claims, "nbf")
    if begins is not None and now_s + rules.clock_skew_s < begins:
        raise TokenError(f"the token of {_claimed(claims, rules)} is not valid yet")
    ends = _time(claims, "exp")
    if ends is not None and now_s - rules.clock_skew_s >= ends:
        raise TokenExpired(f"the token of {_claimed(claims, rules)} has expired")
    return ends


def _time(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenError(f"the token's {name} is no number")
    return float(value)


def _check_audience(claims: Claims, rules: Rules) -> None:
    if not rules.audience_claim:
        return
    found = claims.get(rules.audience_claim)
    named = found if isinstance(found, list) else [found]
    if not any(audience in named for audience in rules.audiences):
        raise TokenError("the token is not meant for this audience")


def _role(claims: Claims, name: str) -> str:
    found = claims.get(name)
    if isinstance(found, list):
        found = found[0] if found else None
    if not isinstance(found, str) or not found:
        raise TokenError(f"the token names no role in its claim {name!r}")
    return found


def create(
    key: bytes | PrivateKey,
    subject: str,
    *,
    algorithm: str | None = None,
    expires_at_s: int | None = None,
    headers: Mapping[str, object] | None = None,
    claims: Claims | None = None,
) -> str:
    """A signed token; by default with the strongest algorithm for the key's size.

    Raises KeyRefused when the key can't sign with the algorithm.
    """
    chosen = algorithm or signing_algorithm(key)
    payload: dict[str, object] = {"sub": subject, **(claims or {})}
    if expires_at_s is not None:
        payload["exp"] = expires_at_s
    extra = dict(headers) if headers else {}
    # Apache's tool writes no "typ".
    extra.setdefault("typ", None)
    try:
        return jwt.encode(payload, key, algorithm=chosen, headers=extra)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise KeyRefused(f"the key can't sign with {chosen}") from None


def signing_algorithm(key: bytes | PrivateKey) -> str:
    """The algorithm for a key of this kind and size. Raises KeyRefused."""
    if isinstance(key, bytes):
        return secret_key(key).algorithms[-1]
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS512" if key.key_size >= 4096 else "RS384" if key.key_size >= 3072 else "RS256"
    for name, curve in EC_CURVES.items():
        if isinstance(key.curve, curve):
            return name
    raise KeyRefused(f"no algorithm signs with the curve {key.curve.name}")


def show(token: str) -> tuple[str, str]:
    """Header and claims as JSON texts; nothing is verified. Raises TokenError."""
    parts = _text(token).split(".")
    if len(parts) != 3:
        raise TokenError("the token is malformed")
    try:
        texts = [_decoded(part) for part in parts[:2]]
        for text in texts:
            json.loads(text)
    except (binascii.Error, ValueError, RecursionError):
        raise TokenError("the token is malformed") from None
    return texts[0], texts[1]


def key_id(token: str | bytes) -> str | None:
    """The `kid` in a token's header, not verified. Raises TokenError."""
    try:
        header = jwt.get_unverified_header(_text(token))
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenError("the token is malformed") from None
    found = header.get("kid")
    return found if isinstance(found, str) else None


def unverified_claims(token: str | bytes) -> Claims:
    """The token's claims, not verified. Raises TokenError."""
    text = show(_text(token))[1]
    claims = json.loads(text)
    if not isinstance(claims, dict):
        raise TokenError("the token is malformed")
    return claims


def _decoded(part: str) -> str:
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True).decode()
