"""Those who must not get in, against a running server with authentication, authorization and TLS:
each is refused with the right error and logged once, nobody else notices, and no log holds a secret
(spec PX-20 to PX-25).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Iterator, Mapping

import pytest
import trio
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import geminga
import geminga.blocking
from compat_tests.faults.attacked import TOPIC, Attacked, refuse, refuse_unread, rest
from compat_tests.processes import ServerProcess, start_geminga
from compat_tests.secured import Keys, admin
from compat_tests.wire.raw import RawClient
from geminga_protocol import tokens
from geminga_protocol.commands import connection, lookup, producing
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, ServerError

REFUSED = "authentication failed"
AUDIENCE = "geminga-tests"


@pytest.fixture(scope="module")
def with_public_key(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ServerProcess, list[str]]]:
    """A server that verifies with a public key and asks for an audience; a good token, bad ones."""
    folder = tmp_path_factory.mktemp("public-key")
    private = rsa.generate_private_key(65537, 2048)
    public = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "public.key").write_bytes(public)
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": "token",
        "tokenPublicKey": (folder / "public.key").as_uri(),
        "tokenAudienceClaim": "aud",
        "tokenAudience": AUDIENCE,
    }
    server = start_geminga(folder / "data", settings=settings)
    good = tokens.create(private, "alice", claims={"aud": AUDIENCE})
    who = geminga.AuthenticationToken(good)
    with geminga.blocking.connect(server.service_url, authentication=who) as client:
        client.create_producer(TOPIC).send(b"x")
    made = [
        good,
        tokens.create(private, "alice"),
        tokens.create(private, "alice", claims={"aud": "another"}),
        tokens.create(private, "alice", claims={"aud": [AUDIENCE + "2", "x"]}),
        unsigned("none", {"sub": "alice", "aud": AUDIENCE}),
        confused(public, {"sub": "alice", "aud": AUDIENCE}),
    ]
    yield server, made
    assert server.stop() == 0
    log = server.log_path.read_text(errors="replace")
    assert not [token for token in made if token in log]


def part(value: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def unsigned(algorithm: str, claims: Mapping[str, object]) -> str:
    return f"{part({'alg': algorithm})}.{part(claims)}."


def confused(public_key: bytes, claims: Mapping[str, object]) -> str:
    """HMAC with what everybody knows: the public key."""
    text = f"{part({'alg': 'HS256'})}.{part(claims)}"
    signature = hmac.digest(public_key, text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def bad_tokens(keys: Keys) -> dict[str, str]:
    good = keys.token("admin")
    head, claims, signature = good.split(".")
    other = keys.token("mallory").split(".")[1]
    later = tokens.create(keys.secret, "admin", claims={"nbf": int(time.time()) + 3600})
    return {
        "none": unsigned("none", {"sub": "admin"}),
        "NONE": unsigned("NONE", {"sub": "admin"}),
        "none with a signature": f"{part({'alg': 'none'})}.{claims}.{signature}",
        "RS256 by HMAC": f"{part({'alg': 'RS256'})}.{claims}.{signature}",
        "expired": keys.token("admin", -5),
        "not yet valid": later,
        "wrong key": tokens.create(b"k" * 32, "admin"),
        "another's claims": f"{head}.{other}.{signature}",
        "without role": tokens.create(keys.secret, "", claims={"sub": ""}),
        "role that is no text": tokens.create(keys.secret, "", claims={"sub": {"a": 1}}),
        "truncated": good[:-5],
        "without signature": f"{head}.{claims}.",
        "two parts": f"{head}.{claims}",
        "empty": "",
        "rubbish": "rubbish",
        "no ASCII": "ä" * 40,
        "60 KB": "a" * 60_000,
        "60 KB of claims": tokens.create(b"k" * 32, "admin", claims={"x": "y" * 40_000}),
        "deep JSON": f"{part({'alg': 'HS256'})}."
        + base64.urlsafe_b64encode(b"[" * 20_000).decode().rstrip("=")
        + ".AAAA",
    }


NAMES = (
    "none", "NONE", "none with a signature", "RS256 by HMAC", "expired", "not yet valid",
    "wrong key", "another's claims", "without role", "role that is no text", "truncated",
    "without signature", "two parts", "empty", "rubbish", "no ASCII", "60 KB", "60 KB of claims",
    "deep JSON",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_bad_tokens(attacked: Attacked, name: str) -> None:
    made = bad_tokens(attacked.keys)
    assert tuple(made) == NAMES
    token = made[name]
    if len(token) > 20:
        attacked.keys.made.append(token)
    greeting = connection.connect("x", auth_method_name="token", auth_data=token.encode())
    answer, line = refuse(attacked.server, greeting)
    assert (answer.error, answer.message) == (
        ServerError.AuthenticationError, "Failed to authenticate",
    )  # fmt: skip
    assert REFUSED in line
    if len(token) < 60_000 and token.isascii():
        status = rest(attacked.server, "/admin/v2/clusters", Authorization=f"Bearer {token}")
        assert status == 401
    attacked.bystander.is_served()


@pytest.mark.parametrize("claims", [False, True])
def test_a_megabyte_before_the_first_answer(attacked: Attacked, claims: bool) -> None:
    """Not even a good proof: what an unauthenticated client may make the server hold is bounded."""
    more = {"x": "y" * (1 << 20)}
    token = tokens.create(attacked.keys.secret, "admin", claims=more) if claims else "a" * (1 << 20)
    attacked.keys.made.append(token)
    greeting = connection.connect("x", auth_method_name="token", auth_data=token.encode())
    refuse_unread(attacked.server, greeting, "limit of 65536 bytes")
    method = connection.connect("x", auth_method_name="x" * 60_000)
    refuse_unread(attacked.server, method, "longer than 1024 bytes")
    original = connection.connect(
        "x",
        auth_method_name="token",
        auth_data=attacked.keys.token("alice").encode(),
        original=connection.Original(principal="a" * 60_000),
    )
    refuse_unread(attacked.server, original, "longer than")
    attacked.bystander.is_served()


@pytest.mark.parametrize(
    ("method", "data"),
    [("", b""), ("none", b""), ("basic", b"alice:wrong"), ("basic", b"nobody:x"), ("tls", b""),
     ("kerberos", b"x"), ("x" * 1000, b""), ("a\nforged", b"")],
)  # fmt: skip
def test_bad_proofs_of_other_kinds(attacked: Attacked, method: str, data: bytes) -> None:
    greeting = connection.connect("x", auth_method_name=method, auth_data=data)
    answer, line = refuse(attacked.server, greeting)
    assert answer.error == ServerError.AuthenticationError
    assert REFUSED in line
    attacked.bystander.is_served()


def test_a_megabyte_in_a_header(attacked: Attacked) -> None:
    with socket.create_connection(_web(attacked.server), 60) as client:
        client.sendall(b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ")
        try:
            client.sendall(b"a" * (1 << 20) + b"\r\n\r\n")
            answer = client.recv(100)
        except ConnectionError:
            answer = b""
    assert answer == b"" or answer.split()[1] in (b"400", b"401", b"431")
    attacked.bystander.is_served()


def _web(server: ServerProcess) -> tuple[str, int]:
    host, _, port = server.web_url.removeprefix("http://").rpartition(":")
    return host, int(port)


def test_keys_are_not_confused_and_audiences_count(
    with_public_key: tuple[ServerProcess, list[str]],
) -> None:
    server, (good, *bad) = with_public_key
    for token in bad:
        greeting = connection.connect("x", auth_method_name="token", auth_data=token.encode())
        answer, _ = refuse(server, greeting)
        assert answer.error == ServerError.AuthenticationError
        assert rest(server, "/admin/v2/clusters", Authorization=f"Bearer {token}") == 401
    assert rest(server, "/admin/v2/clusters", Authorization=f"Bearer {good}") == 200


@pytest.mark.parametrize(
    ("role", "original"),
    [("alice", "admin"), ("alice", "alice"), ("mallory", "proxy"), ("proxy", ""),
     ("proxy", "proxy"), ("alice", "a" * 1000)],
)  # fmt: skip
def test_original_principals_are_not_believed(attacked: Attacked, role: str, original: str) -> None:
    token = attacked.keys.token(role)
    greeting = connection.connect(
        "x",
        auth_method_name="token",
        auth_data=token.encode(),
        original=connection.Original(principal=original),
    )
    answer, line = refuse(attacked.server, greeting)
    assert (answer.error, answer.message) == (ServerError.AuthorizationError, "Invalid roles.")
    assert role in line
    headers = {"Authorization": f"Bearer {token}", "X_Original_Principal": original[:1000]}
    assert rest(attacked.server, "/admin/v2/tenants", **headers) == 401
    attacked.bystander.is_served()


def test_a_revoked_grant_ends_what_it_allowed(attacked: Attacked) -> None:
    server, keys, _ = attacked
    base = "/admin/v2/namespaces/public/default"
    admin(server.web_url, keys, "POST", f"{base}/permissions/mallory", ["produce", "consume"])
    with RawClient(server.address, handshake=False) as client:
        token = keys.token("mallory").encode()
        client.socket.sendall(connection.connect("x", auth_method_name="token", auth_data=token))
        client.wait_for(BaseCommand.CONNECTED)
        client.socket.sendall(producing.producer(TOPIC + "-2", 1, 1))
        client.wait_for(BaseCommand.PRODUCER_SUCCESS)
        client.socket.sendall(lookup.watch_topic_list(2, 1, "public/default", ".*"))
        client.wait_for(BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
        admin(server.web_url, keys, "DELETE", f"{base}/permissions/mallory")
        client.wait_for(BaseCommand.CLOSE_PRODUCER)
        admin(server.web_url, keys, "PUT", "/admin/v2/persistent/public/default/attacked-secret")
        for request in (
            producing.producer(TOPIC + "-2", 1, 3),
            lookup.lookup(TOPIC, 4),
            lookup.partitioned_metadata(TOPIC, 5),
        ):
            client.socket.sendall(request)
            frame = client.next_frame()
            assert b"AuthorizationError" in str(frame.command).encode(), frame.command
        time.sleep(0.2)
        client.socket.sendall(connection.PING)
        assert client.next_frame().type == BaseCommand.PONG
    attacked.bystander.is_served()


async def test_a_token_that_expires_ends_the_connection(attacked: Attacked) -> None:
    token = attacked.keys.token("alice", 6)  # time to connect and send, on a busy machine too
    who = geminga.AuthenticationToken(token)
    options = {"authentication": who, "operation_timeout_s": 4}
    with trio.fail_after(100):
        async with geminga.connect(attacked.server.service_url, **options) as client:  # type: ignore[arg-type]
            producer = await client.create_producer(TOPIC + "-3")
            await producer.send(b"in time")
            with pytest.raises(geminga.GemingaError):
                while True:
                    await producer.send(b"for ever?")
                    await trio.sleep(0.1)
    attacked.bystander.is_served()


def test_every_secret_stays_out_of_the_log(attacked: Attacked) -> None:
    """The fixture looks again when all is over."""
    log = attacked.server.log_path.read_text(errors="replace")
    assert len(attacked.keys.secrets()) > 10
    assert not [secret for secret in attacked.keys.secrets() if secret in log]
    shown = admin(
        attacked.server.web_url,
        attacked.keys,
        "GET",
        "/admin/v2/brokers/configuration/runtime",
    )
    assert shown["tokenSecretKey"] == shown["basicAuthConf"] == "*****"
