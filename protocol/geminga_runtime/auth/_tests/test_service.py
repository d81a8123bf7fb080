"""Providers, several at once, and the anonymous role (spec PX-20, PX-21)."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from passlib.hash import apr_md5_crypt, bcrypt, ldap_sha1

from geminga_protocol import tokens
from geminga_runtime.auth import basic as basic_module
from geminga_runtime.auth.api import (
    AuthenticationFailed,
    Challenge,
    HttpRequest,
    Identity,
    Peer,
)
from geminga_runtime.auth.basic import BasicProvider
from geminga_runtime.auth.key_files import KeySourceError, read_key
from geminga_runtime.auth.oidc import DISCOVERY, RETRY_S, OpenIdProvider
from geminga_runtime.auth.service import APACHE_NAMES, Authenticator, load_authenticator
from geminga_runtime.auth.settings import AuthSettings
from geminga_runtime.auth.tls import TlsProvider
from geminga_runtime.auth.token import TokenProvider
from geminga_runtime.settings import ConfigError

SECRET = bytes(range(32))
SECRET_URL = "data:;base64," + base64.b64encode(SECRET).decode()
NOW_S = 1_700_000_000.0
PEER = Peer("1.2.3.4:5")


def token_provider(secret: bytes = SECRET) -> TokenProvider:
    return TokenProvider(tokens.secret_key(secret), tokens.Rules(), lambda: NOW_S)


async def refused(service: Authenticator, method: str, data: bytes, peer: Peer = PEER) -> str:
    with pytest.raises(AuthenticationFailed) as caught:
        await service.begin(method, peer).step(data)
    return caught.value.reason


async def test_a_tokens_subject_is_the_role() -> None:
    service = Authenticator([token_provider()])
    token = tokens.create(SECRET, "joe", expires_at_s=int(NOW_S) + 9).encode()
    assert await service.begin("token", PEER).step(token) == Identity("joe", "token", NOW_S + 9)
    assert service.successes == {("AuthenticationProviderToken", "token"): 1}


async def test_why_a_token_is_refused_is_counted() -> None:
    service = Authenticator([token_provider()])
    expired = tokens.create(SECRET, "joe", expires_at_s=int(NOW_S)).encode()
    assert await refused(service, "token", expired) == "expired_token"
    assert await refused(service, "token", b"rubbish") == "invalid_token"
    assert await refused(service, "basic", b"a:b") == "unsupported_method"
    assert await refused(service, "", b"") == "unsupported_method"
    assert service.failures["AuthenticationProviderToken", "token", "expired_token"] == 1


async def test_several_providers_of_one_method_are_tried_in_order() -> None:
    other = bytes(32)
    service = Authenticator([token_provider(), token_provider(other)])
    for secret in (SECRET, other):
        token = tokens.create(secret, "joe").encode()
        assert await service.begin("token", PEER).step(token) == Identity("joe", "token")
    assert await refused(service, "token", tokens.create(b"x" * 32, "joe").encode())


async def test_the_anonymous_role_is_for_clients_without_credentials() -> None:
    service = Authenticator([token_provider()], "nobody")
    assert await service.begin("", PEER).step(b"") == Identity("nobody", "none")
    assert await service.begin("none", PEER).step(b"") == Identity("nobody", "none")
    assert await refused(service, "token", b"rubbish") == "invalid_token"


class Talker:
    """A provider of two steps."""

    method = "sasl"
    name = "Talker"

    @classmethod
    def from_settings(cls, settings: AuthSettings) -> Talker:
        return cls()

    def begin(self, peer: Peer) -> Talker:
        self.heard = 0
        return self

    async def step(self, data: bytes) -> Identity | Challenge:
        self.heard += 1
        return Challenge(b"more") if self.heard == 1 else Identity(data.decode(), self.method)


async def test_a_plug_in_may_challenge_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in = ModuleType("plug_in_of_a_user")
    plug_in.Talker = Talker  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, plug_in.__name__, plug_in)
    service = load_authenticator(AuthSettings(enabled=True, providers="plug_in_of_a_user:Talker"))
    assert service is not None
    exchange = service.begin("sasl", PEER)
    assert await exchange.step(b"") == Challenge(b"more")
    assert await exchange.step(b"joe") == Identity("joe", "sasl")


@pytest.mark.parametrize("scheme", [apr_md5_crypt, ldap_sha1, bcrypt.using(rounds=4)])
async def test_passwords(scheme: object) -> None:
    hashed = scheme.hash("s3cret")  # type: ignore[attr-defined]
    service = Authenticator([BasicProvider(f"ann:{hashed}\n".encode())])
    assert await service.begin("basic", PEER).step(b"ann:s3cret") == Identity("ann", "basic")
    long = b"ann:" + b"x" * 5000
    for bad in (b"ann:other", b"bob:s3cret", b"ann", b":s3cret", b"", b"\xff:x", long, b"ann:\0"):
        assert await refused(service, "basic", bad) == "invalid_credentials"


@pytest.mark.slow
async def test_a_first_login_does_not_wait_behind_others_wrong_passwords() -> None:
    scheme = bcrypt.using(rounds=7)
    lines = [f"{name}:{scheme.hash(name)}\n" for name in ("ann", "bob", "eve")]
    provider = BasicProvider("".join(lines).encode())
    service = Authenticator([provider])
    done: list[str] = []

    async def log_in(name: str, password: str, address: str) -> None:
        try:
            await service.begin("basic", Peer(address)).step(f"{name}:{password}".encode())
        except AuthenticationFailed:
            done.append("wrong")
        else:
            done.append(name)

    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(log_in, f"eve{number % 20}", "x", f"6.6.6.6:{number}")
            nursery.start_soon(log_in, "eve", "x", f"6.6.6.6:{number}")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(log_in, "ann", "ann", "1.2.3.4:5")
        nursery.start_soon(log_in, "bob", "bob", "6.6.6.6:7")
    assert done.index("ann") < 12
    assert done.index("bob") < 20
    assert done.count("wrong") == 120


async def test_wrong_passwords_of_one_address_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basic_module, "WAITING_PER_ADDRESS_MAX", 10)
    provider = BasicProvider(f"ann:{bcrypt.using(rounds=4).hash('pw')}\n".encode())
    service = Authenticator([provider])
    reasons: list[str] = []

    async def fail(number: int) -> None:
        with pytest.raises(AuthenticationFailed) as caught:
            await service.begin("basic", Peer(f"6.6.6.6:{number}")).step(b"ann:x")
        reasons.append(caught.value.reason)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(fail, number)
    assert reasons.count("too_many") == 40 - 10 - basic_module.CHECKS_AT_ONCE_MAX
    assert await service.begin("basic", PEER).step(b"ann:pw") == Identity("ann", "basic")


async def test_a_cancelled_login_passes_its_slot_on() -> None:
    provider = BasicProvider(f"ann:{bcrypt.using(rounds=4).hash('pw')}\n".encode())
    service = Authenticator([provider])
    for at_s in (0, 0.0005, 0.002):
        with trio.move_on_after(at_s):
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    peer = Peer(f"6.6.6.6:{number}")
                    nursery.start_soon(service.begin("basic", peer).step, b"ann:pw")
    with trio.fail_after(60):
        assert await service.begin("basic", PEER).step(b"ann:pw") == Identity("ann", "basic")


def test_a_password_file_in_the_clear_is_refused() -> None:
    with pytest.raises(ConfigError, match="basicAuthConf"):
        BasicProvider.from_settings(AuthSettings(basic_file="data:,ann:plain"))
    with pytest.raises(ConfigError, match="basicAuthConf"):
        BasicProvider.from_settings(AuthSettings())


async def test_http_headers() -> None:
    hashed = ldap_sha1.hash("pw")
    service = Authenticator([token_provider(), BasicProvider(f"ann:{hashed}\n".encode())])

    async def role(header: str) -> str:
        return (await service.authenticate_http(HttpRequest({"authorization": header}))).role

    assert await role("Bearer " + tokens.create(SECRET, "joe")) == "joe"
    assert await role("Basic " + base64.b64encode(b"ann:pw").decode()) == "ann"
    for bad in (
        "",
        "Bearer",
        "Bearer x",
        "Basic ?",
        "Digest x",
        "Basic " + "A" * 10_000,
        "Bearer é",
    ):
        with pytest.raises(AuthenticationFailed):
            await role(bad)


def test_keys_by_url_file_and_base64(tmp_path: Path) -> None:
    file = tmp_path / "my key"
    file.write_bytes(SECRET)
    quoted = str(file).replace(" ", "%20")
    for source in (SECRET_URL, f"file://{quoted}", str(file), base64.b64encode(SECRET).decode()):
        assert read_key(source) == SECRET
    for bad in ("data:", "data:;base64,?", "file:///nowhere", "no file, no key", "x" * 5000 + "?"):
        with pytest.raises(KeySourceError) as caught:
            read_key(bad)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (AuthSettings(enabled=True), "authenticationProviders"),
        (AuthSettings(enabled=True, providers="nonsense"), "'nonsense'"),
        (AuthSettings(enabled=True, providers="no.such:Thing"), "can't be loaded"),
        (AuthSettings(enabled=True, providers="token"), "tokenSecretKey"),
        (AuthSettings(enabled=True, providers="token", token_secret_key="data:,x"), "1 bytes"),
        (
            AuthSettings(enabled=True, providers="token", token_public_key="data:,x"),
            "tokenPublicKey",
        ),
        (
            AuthSettings(
                enabled=True,
                providers="token",
                token_secret_key=SECRET_URL,
                token_audience_claim="aud",
            ),
            "tokenAudience",
        ),
        (AuthSettings(enabled=True, providers="oidc"), "openIDAllowedTokenIssuers"),
    ],
)
def test_wrong_settings_name_their_key(settings: AuthSettings, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_authenticator(settings)


def test_apaches_class_names_are_known(tmp_path: Path) -> None:
    assert load_authenticator(AuthSettings()) is None
    names = [name for name, short in APACHE_NAMES.items() if short in ("token", "tls")]
    settings = AuthSettings(enabled=True, providers=" , ".join(names), token_secret_key=SECRET_URL)
    service = load_authenticator(settings)
    assert service is not None
    assert service.methods == ("token", "tls")
    assert SECRET_URL not in repr(settings)


async def test_no_certificate_no_role() -> None:
    service = Authenticator([TlsProvider()])
    assert await refused(service, "tls", b"") == "no_certificate"
    assert await refused(service, "tls", b"", Peer("a:1", b"rubbish")) == "invalid_credentials"


# ---- OpenID ----

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ISSUER = "https://issuer.example/realm"


class Issuer:
    """A discovery document and a key set, which may be unreachable."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0
        self.key_ids = ["k1"]
        self.named = ISSUER

    async def fetch(self, url: str) -> bytes:
        self.asked += 1
        if self.away:
            raise OSError("away")
        if url == ISSUER + DISCOVERY:
            return msgspec.json.encode({"issuer": self.named, "jwks_uri": ISSUER + "/keys"})
        assert url == ISSUER + "/keys"
        web = msgspec.json.decode(RSAAlgorithm.to_jwk(KEY.public_key()))
        return msgspec.json.encode({"keys": [{**web, "kid": one} for one in self.key_ids]})


def openid(issuer: Issuer, now: list[float]) -> Authenticator:
    settings = AuthSettings(openid_issuers=ISSUER, openid_audiences="pulsar, other")
    return Authenticator([OpenIdProvider(settings, issuer.fetch, lambda: now[0])])


def id_token(key_id: str = "k1", **claims: object) -> bytes:
    every: dict[str, object] = {
        "iss": ISSUER, "aud": "pulsar", "iat": NOW_S, "nbf": NOW_S, "exp": NOW_S + 1e6, **claims,
    }  # fmt: skip
    return tokens.create(KEY, "joe", headers={"kid": key_id}, claims=every).encode()


async def test_openid_keys_are_fetched_once_and_kept() -> None:
    issuer, now = Issuer(), [NOW_S]
    service = openid(issuer, now)
    for _ in range(3):
        found = await service.begin("token", PEER).step(id_token())
        assert found == Identity("joe", "token", NOW_S + 1e6)
    assert issuer.asked == 2
    issuer.key_ids = ["k2"]
    assert await refused(service, "token", id_token("k2")) == "invalid_credentials"
    assert issuer.asked == 2, "not asked again at once for a key that nobody knows"
    now[0] += 301
    assert await service.begin("token", PEER).step(id_token("k2"))


async def test_openid_uses_old_keys_while_the_issuer_is_unreachable() -> None:
    issuer, now = Issuer(), [NOW_S]
    service = openid(issuer, now)
    issuer.away = True
    for _ in range(3):
        assert await refused(service, "token", id_token()) == "issuer_unreachable"
    assert issuer.asked == 1, "a flood of tokens is no flood of requests"
    issuer.away = False
    now[0] += RETRY_S
    assert await service.begin("token", PEER).step(id_token())
    issuer.away = True
    now[0] += 20 * 3600
    assert await service.begin("token", PEER).step(id_token())
    now[0] += 5 * 3600
    assert await refused(service, "token", id_token()) == "issuer_unreachable"


async def test_openid_refuses() -> None:
    service = openid(Issuer(), [NOW_S])
    assert await refused(service, "token", id_token(iss="https://evil.example")) == "issuer"
    for claims in ({"aud": "someone"}, {"exp": NOW_S - 1}, {"nbf": NOW_S + 5}, {"iat": None}):
        assert (await refused(service, "token", id_token(**claims))).endswith("_token")
    liar = Issuer()
    liar.named = "https://other.example"
    assert await refused(openid(liar, [NOW_S]), "token", id_token()) == "issuer_unreachable"


def test_openid_by_file(tmp_path: Path) -> None:
    settings = AuthSettings(
        openid_issuers=ISSUER, openid_audiences="x", openid_jwks_file=str(tmp_path / "none")
    )
    with pytest.raises(ConfigError, match="openIDJwksFile"):
        OpenIdProvider(settings, Issuer().fetch)
    (tmp_path / "none").write_bytes(b'{"keys":[{"kid":"\xff"}]}')
    with pytest.raises(ConfigError, match="openIDJwksFile"):
        OpenIdProvider(settings, Issuer().fetch)
    with pytest.raises(ConfigError, match="https"):
        OpenIdProvider(
            AuthSettings(openid_issuers="http://x", openid_audiences="x"), Issuer().fetch
        )


async def test_a_key_set_in_a_file_needs_no_network(tmp_path: Path) -> None:
    web = msgspec.json.decode(RSAAlgorithm.to_jwk(KEY.public_key()))
    file = tmp_path / "keys.json"
    file.write_bytes(msgspec.json.encode({"keys": [{**web, "kid": "k1"}]}))
    settings = AuthSettings(
        openid_issuers=ISSUER, openid_audiences="pulsar", openid_jwks_file=str(file)
    )
    issuer = Issuer()
    issuer.away = True
    service = Authenticator([OpenIdProvider(settings, issuer.fetch, lambda: NOW_S)])
    assert (await service.begin("token", PEER).step(id_token())) == Identity(
        "joe", "token", NOW_S + 1e6
    )
    assert issuer.asked == 0
