"""JSON web tokens: valid ones, and attacks (spec PX-20, PX-24)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from geminga_protocol import tokens
from geminga_protocol._tests.cost import cpu_s
from geminga_protocol.tokens import Rules, TokenError, TokenExpired

NOW_S = 1_700_000_000.0
SECRET = bytes(range(32))
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEYS = {name: ec.generate_private_key(curve()) for name, curve in tokens.EC_CURVES.items()}


def public_bytes(key: tokens.PrivateKey, encoding: serialization.Encoding) -> bytes:
    return key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)


def public(key: tokens.PrivateKey) -> tokens.VerifyingKey:
    return tokens.public_key(public_bytes(key, serialization.Encoding.DER))


def signing_key(algorithm: str) -> tuple[bytes | tokens.PrivateKey, tokens.VerifyingKey]:
    if algorithm in tokens.SECRET_BYTES:
        secret = bytes(tokens.SECRET_BYTES[algorithm])
        return secret, tokens.secret_key(secret)
    key = EC_KEYS.get(algorithm, RSA_KEY)
    return key, public(key)


@pytest.mark.parametrize("algorithm", tokens.ALGORITHMS)
def test_every_algorithm_signs_and_verifies(algorithm: str) -> None:
    key, verifying = signing_key(algorithm)
    token = tokens.create(key, "joe", algorithm=algorithm, expires_at_s=int(NOW_S) + 5)
    found = tokens.verify(token, verifying, NOW_S)
    assert (found.role, found.expires_at_s) == ("joe", NOW_S + 5)
    assert json.loads(tokens.show(token)[0]) == {"alg": algorithm}


def test_a_secrets_length_chooses_its_algorithm() -> None:
    assert tokens.signing_algorithm(bytes(32)) == "HS256"
    assert tokens.signing_algorithm(bytes(63)) == "HS384"
    assert tokens.signing_algorithm(bytes(64)) == "HS512"
    with pytest.raises(tokens.KeyRefused, match="31 bytes"):
        tokens.secret_key(bytes(31))


def refused(
    token: str | bytes, rules: Rules = Rules(), key: tokens.VerifyingKey | None = None
) -> str:
    with pytest.raises(TokenError) as caught:
        tokens.verify(token, key or tokens.secret_key(SECRET), NOW_S, rules)
    return str(caught.value)


def signed(claims: dict[str, object], **headers: object) -> str:
    return jwt.encode(claims, SECRET, algorithm="HS256", headers=headers or None)


def test_alg_none_is_refused() -> None:
    body = base64.urlsafe_b64encode(b'{"sub":"joe"}').rstrip(b"=")
    for name in ("none", "None", "NONE", "nOnE"):
        head = base64.urlsafe_b64encode(json.dumps({"alg": name}).encode()).rstrip(b"=")
        assert "algorithm" in refused(head + b"." + body + b".")


def test_a_public_key_is_no_hmac_secret() -> None:
    """The classic confusion: sign with HS256 and the public key's published bytes."""
    for encoding in (serialization.Encoding.DER, serialization.Encoding.PEM):
        published = public_bytes(RSA_KEY, encoding)
        head = base64.urlsafe_b64encode(b'{"alg":"HS256"}').rstrip(b"=")
        body = base64.urlsafe_b64encode(b'{"sub":"joe"}').rstrip(b"=")
        mac = hmac.new(published, head + b"." + body, hashlib.sha256).digest()
        token = head + b"." + body + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")
        assert "algorithm" in refused(token, key=public(RSA_KEY))


def test_a_key_of_another_kind_or_another_key_is_refused() -> None:
    rs256 = tokens.create(RSA_KEY, "joe", algorithm="RS256")
    assert "algorithm" in refused(rs256)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    assert "signature" in refused(rs256, key=public(other))
    assert "algorithm" in refused(tokens.create(EC_KEYS["ES256"], "joe"), key=public(RSA_KEY))
    assert "signature" in refused(signed({"sub": "joe"}), key=tokens.secret_key(bytes(32)))


def test_times() -> None:
    key = tokens.secret_key(SECRET)
    with pytest.raises(TokenExpired):
        tokens.verify(signed({"sub": "joe", "exp": NOW_S}), key, NOW_S)
    assert "not valid yet" in refused(signed({"sub": "joe", "nbf": NOW_S + 1}))
    within = signed({"sub": "joe", "exp": NOW_S, "nbf": NOW_S + 1})
    assert tokens.verify(within, key, NOW_S, Rules(clock_skew_s=2)).role == "joe"
    for bad in ("soon", True, [1]):
        assert "no number" in refused(signed({"sub": "joe", "exp": bad}))


def test_audiences() -> None:
    rules = Rules(audience_claim="aud", audiences=("here", "there"))
    for good in ("here", ["x", "there"]):
        token = signed({"sub": "joe", "aud": good})
        assert tokens.verify(token, tokens.secret_key(SECRET), NOW_S, rules).role == "joe"
    for bad in ("nowhere", ["x"], None, 7, {"here": 1}):
        assert "audience" in refused(signed({"sub": "joe", "aud": bad}), rules)
    assert "audience" in refused(signed({"sub": "joe"}), rules)


def test_roles() -> None:
    key, rules = tokens.secret_key(SECRET), Rules(role_claim="roles")
    assert tokens.verify(signed({"roles": ["a", "b"]}), key, NOW_S, rules).role == "a"
    for bad in ([], "", 5, None, [5]):
        assert "no role" in refused(signed({"roles": bad}), rules)
    assert "'iat'" in refused(signed({"sub": "joe"}), Rules(required=("iat",)))


@pytest.mark.alone
def test_a_long_token_is_refused_quickly() -> None:
    token = "a" * (1 << 20)
    assert "longer than" in refused(token)
    assert cpu_s(lambda: refused(token), 0.05) < 0.05


def test_error_texts_hold_no_part_of_the_token() -> None:
    token = signed({"sub": "joe"})
    for cut in range(len(token)):
        text = refused(token[:cut])
        assert token[:cut] not in text or cut < 4


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_rubbish_is_refused_with_a_token_error(rubbish: bytes | str) -> None:
    with pytest.raises(TokenError):
        tokens.verify(rubbish, tokens.secret_key(SECRET), NOW_S)


@given(st.integers(0, 200), st.integers(0, 255))
def test_any_changed_byte_is_refused(at: int, byte: int) -> None:
    token = bytearray(signed({"sub": "joe"}).encode())
    at %= len(token)
    if token[at] == byte:
        return
    token[at] = byte
    # The last character of a part has unused bits: a change there gives the same bytes.
    try:
        found = tokens.verify(bytes(token), tokens.secret_key(SECRET), NOW_S)
    except TokenError:
        return
    assert found.role == "joe"


@pytest.mark.parametrize("make", [tokens.public_key, tokens.private_key], ids=["public", "private"])
def test_keys_that_cannot_be_read(make: object) -> None:
    for bad in (b"", b"x", b"-----BEGIN X-----", bytes(100)):
        with pytest.raises(tokens.KeyRefused):
            make(bad)  # type: ignore[operator]


def test_web_keys() -> None:
    for algorithm, key in (("RS256", RSA_KEY), ("ES256", EC_KEYS["ES256"])):
        maker = RSAAlgorithm if algorithm == "RS256" else ECAlgorithm
        web = json.loads(maker.to_jwk(key.public_key()))
        token = tokens.create(key, "joe", algorithm=algorithm, headers={"kid": "k1"})
        assert tokens.key_id(token) == "k1"
        assert tokens.verify(token, tokens.jwk_key(web), NOW_S).role == "joe"
        assert tokens.jwk_key({**web, "alg": algorithm}).algorithms == (algorithm,)
        with pytest.raises(tokens.KeyRefused, match="HS256"):
            tokens.jwk_key({**web, "alg": "HS256"})
    for bad in ({}, {"kty": "oct", "k": "AAAA"}, {"kty": "RSA"}, {"kty": "RSA", "use": "enc"}):
        with pytest.raises(tokens.KeyRefused):
            tokens.jwk_key(bad)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"use": "enc"}, "not for signatures"),
        ({"kty": "oct"}, "neither RSA nor EC"),
        ({"alg": "RSA-OAEP"}, "not one for RSA-OAEP"),
    ],
)
def test_a_web_key_for_something_else_verifies_nothing(more: dict[str, str], why: str) -> None:
    """Whoever may decrypt with a key, or have it decrypt, must not sign tokens with it."""
    jwk = json.loads(RSAAlgorithm.to_jwk(RSA_KEY.public_key()))
    jwk.pop("key_ops", None)
    assert tokens.jwk_key({**jwk, "use": "sig"}).algorithms == tokens.RSA_ALGORITHMS
    assert tokens.jwk_key(jwk).algorithms == tokens.RSA_ALGORITHMS
    with pytest.raises(tokens.KeyRefused, match=why):
        tokens.jwk_key({**jwk, **more})
