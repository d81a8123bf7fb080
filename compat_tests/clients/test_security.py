"""Clients that prove who they are, direct to our broker and to Apache's (spec PX-20 to PX-22)."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from passlib.hash import apr_md5_crypt, bcrypt, ldap_sha1

import geminga
import geminga.blocking
from compat_tests.apache import jars
from compat_tests.processes import ServerProcess, start_geminga
from compat_tests.secured import METHODS, Secured, admin
from compat_tests.secured import secured as secured
from geminga_protocol import tokens

LIVES_S = 3
"""Of a token that is renewed."""
RENEWALS = 2
PATIENCE_S = 100
JAVA_ASKS = 4
"""Of the Java client for its token: when it connects, and at the renewals."""


def url_of(secured: Secured, method: str) -> str:
    broker = secured.broker
    return broker.service_url_tls if method == "tls" else broker.service_url


async def exchange(url: str, topic: str, **options: Any) -> None:
    with trio.fail_after(200):
        async with geminga.connect(url, **options) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            await producer.send(b"x")
            await consumer.acknowledge(await consumer.receive(60))


@pytest.mark.parametrize("method", METHODS)
async def test_sdk(secured: Secured, method: str) -> None:
    options = secured.sdk_options(method)
    await exchange(url_of(secured, method), secured.topic("sdk"), **options)
    with pytest.raises(geminga.AuthorizationError):
        options = secured.sdk_options(method, "mallory")
        await exchange(url_of(secured, method), secured.topic("no"), **options)


@pytest.mark.parametrize("kind", ["text", "file", "function", "environment"])
async def test_tokens_of_the_sdk(
    secured: Secured, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = secured.keys.token("alice")
    (tmp_path / "token").write_text(token + "\n")
    monkeypatch.setenv("GEMINGA_TEST_TOKEN", token)
    given: dict[str, str | Path | Callable[[], str]] = {
        "text": token,
        "file": tmp_path / "token",
        "function": lambda: token,
        "environment": "env:GEMINGA_TEST_TOKEN",
    }
    who = geminga.AuthenticationToken(given[kind])
    await exchange(secured.broker.service_url, secured.topic(kind), authentication=who)


@pytest.mark.parametrize("method", METHODS)
def test_official_python_client(secured: Secured, method: str) -> None:
    client = secured.python_client(url_of(secured, method), method)
    topic = secured.topic("python")
    try:
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic).send(b"x")
        consumer.acknowledge(consumer.receive(60_000))
    finally:
        client.close()
    client = secured.python_client(url_of(secured, method), method, "mallory")
    try:
        with pytest.raises(pulsar.AuthorizationError):
            client.create_producer(topic)
    finally:
        client.close()


@pytest.mark.java
def test_java_client(secured: Secured) -> None:
    arguments, expected = [secured.keys.ca], []
    for role, outcome in (("alice", "ok"), ("mallory", "AuthorizationException")):
        for method in METHODS:
            arguments += secured.java_arguments(url_of(secured, method), method, role)
            expected.append(outcome)
    command = jars.java_command("Proxied", arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.stdout.split() == expected, done.stderr[-2000:]


# ---- a token that is renewed on a live connection ----


class Renewed:
    """A token that is soon over, and a fresh one each time it is asked for."""

    def __init__(self, secured: Secured) -> None:
        self.secured = secured
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        return self.secured.keys.token("alice", LIVES_S)


def publisher(secured: Secured, topic: str) -> str:
    path = "/admin/v2/" + topic.replace("://", "/") + "/stats"
    (found,) = admin(secured.broker.web_url, secured.keys, "GET", path)["publishers"]
    return f"{found['address']} {found['connectedSince']}"


@contextmanager
def one_connection(secured: Secured, topic: str) -> Iterator[None]:
    """The topic's only producer has one connection all the time."""
    before = publisher(secured, topic)
    yield
    assert publisher(secured, topic) == before


@pytest.mark.slow
async def test_the_sdk_renews_its_token(secured: Secured) -> None:
    fresh, topic = Renewed(secured), secured.topic("renewed")
    who = geminga.AuthenticationToken(fresh)
    async with (
        geminga.connect(secured.broker.service_url, authentication=who) as client,
        await client.create_producer(topic) as producer,
    ):
        with one_connection(secured, topic):
            asked = fresh.asked
            with trio.fail_after(PATIENCE_S):
                while fresh.asked < asked + RENEWALS:
                    await producer.send(b"x")
                    await trio.sleep(0.1)
            await producer.send(b"with the last one")


@pytest.mark.slow
def test_the_official_python_client_renews_its_token(secured: Secured) -> None:
    fresh, topic = Renewed(secured), secured.topic("renewed")
    client = pulsar.Client(
        secured.broker.service_url,
        authentication=pulsar.AuthenticationToken(fresh),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        producer = client.create_producer(topic)
        with one_connection(secured, topic):
            asked, until_s = fresh.asked, time.monotonic() + PATIENCE_S
            while fresh.asked < asked + RENEWALS:
                assert time.monotonic() < until_s
                producer.send(b"x")
                time.sleep(0.1)
            producer.send(b"with the last one")
    finally:
        client.close()


@pytest.mark.slow
@pytest.mark.java
def test_the_java_client_renews_its_token(secured: Secured, tmp_path: Path) -> None:
    fresh, topic, file = Renewed(secured), secured.topic("renewed"), tmp_path / "token"
    done = threading.Event()

    def renew() -> None:
        while True:
            (tmp_path / "new").write_text(fresh())
            (tmp_path / "new").replace(file)
            if done.wait(0.5):
                return

    (tmp_path / "token").write_text(fresh())
    writer = threading.Thread(target=renew)
    writer.start()
    try:
        words = [secured.broker.service_url, topic, str(file), str(JAVA_ASKS), str(PATIENCE_S)]
        command = jars.java_command("Refresh", words)
        ran = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    finally:
        done.set()
        writer.join()
    word, count = ran.stdout.split()
    assert (word, int(count) >= JAVA_ASKS) == ("asked", True), ran.stderr[-2000:]


# ---- ours alone: what Apache's has no tests of ours for ----


@contextmanager
def broker(folder: Path, **settings: str) -> Iterator[ServerProcess]:
    server = start_geminga(folder / "data", settings={"authenticationEnabled": "true"} | settings)
    try:
        yield server
    finally:
        server.kill()


async def test_passwords_of_every_kind(tmp_path: Path) -> None:
    users = {"apr": apr_md5_crypt, "bcr": bcrypt.using(rounds=5), "sha": ldap_sha1}
    lines = [f"{user}:{scheme.hash('pass-' + user)}\n" for user, scheme in users.items()]
    (tmp_path / "users").write_text("".join(lines))
    settings = {"authenticationProviders": "basic", "basicAuthConf": str(tmp_path / "users")}
    with broker(tmp_path, **settings) as server:
        for user in users:
            who = geminga.AuthenticationBasic(user, "pass-" + user)
            await exchange(server.service_url, "t-" + user, authentication=who)
            client = pulsar.Client(
                server.service_url, authentication=pulsar.AuthenticationBasic(user, "pass-" + user)
            )
            client.create_producer("t-" + user).send(b"x")
            client.close()
        with pytest.raises(geminga.AuthenticationError):
            who = geminga.AuthenticationBasic("bcr", "pass-apr")
            await exchange(server.service_url, "t", authentication=who)


async def test_visitors_have_a_role_and_its_grants(secured: Secured, tmp_path: Path) -> None:
    keys = secured.keys
    settings = {**keys.broker_settings(), "anonymousUserRole": "visitor"}
    with broker(tmp_path, **settings) as server:
        with pytest.raises(geminga.AuthorizationError):
            await exchange(server.service_url, "t")
        path = "/admin/v2/namespaces/public/default/permissions/visitor"
        admin(server.web_url, keys, "POST", path, ["produce", "consume"])
        await exchange(server.service_url, "t")
        with pytest.raises(geminga.AuthenticationError):
            who = geminga.AuthenticationToken("rubbish")
            await exchange(server.service_url, "t", authentication=who)


async def test_tokens_of_an_issuer_whose_keys_are_in_a_file(tmp_path: Path) -> None:
    private, other = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    key = json.loads(RSAAlgorithm.to_jwk(private.public_key())) | {"kid": "k", "use": "sig"}
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [key]}))
    settings = {
        "authenticationProviders": "oidc",
        "openIDAllowedTokenIssuers": "https://issuer.example",
        "openIDAllowedAudiences": "pulsar",
        "openIDJwksFile": str(tmp_path / "jwks.json"),
    }
    now = int(time.time())
    claims = {"iss": "https://issuer.example", "aud": "pulsar", "iat": now, "nbf": now}

    def made(signer: rsa.RSAPrivateKey = private, **changed: object) -> str:
        more = claims | {"exp": now + 60} | changed
        return tokens.create(signer, "ann", algorithm="RS256", headers={"kid": "k"}, claims=more)

    with broker(tmp_path, **settings) as server:
        await exchange(server.service_url, "t", authentication=geminga.AuthenticationToken(made()))
        for bad in (
            made(other), made(iss="https://other.example"), made(aud="x"), made(exp=now - 1),
        ):  # fmt: skip
            with pytest.raises(geminga.AuthenticationError):
                who = geminga.AuthenticationToken(bad)
                await exchange(server.service_url, "t", authentication=who)
