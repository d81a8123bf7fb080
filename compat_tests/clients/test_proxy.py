"""Clients through our proxy, before our broker and before Apache's (spec PX-01 to PX-08)."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
import trio

import geminga
from compat_tests.apache import jars
from compat_tests.missing import JAVA_CLIENT, skipped_without
from compat_tests.secured import BOTH, METHODS, Keys, Secured, admin, start_secured
from compat_tests.secured import secured as secured

SIZES = (1, 1_000_000, 20_000)


@pytest.mark.parametrize("method", METHODS)
async def test_sdk(secured: Secured, method: str) -> None:
    topic = secured.topic("sdk")
    with trio.fail_after(200):
        async with geminga.connect(
            secured.proxy_url(method), **secured.sdk_options(method)
        ) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            for size in SIZES:
                await producer.send(b"x" * size)
                message = await consumer.receive(60)
                assert len(message.data) == size
                await consumer.acknowledge(message)


@pytest.mark.parametrize("method", METHODS)
def test_official_python_client(secured: Secured, method: str) -> None:
    topic = secured.topic("python")
    client = secured.python_client(secured.proxy_url(method), method)
    try:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        for size in SIZES:
            producer.send(b"x" * size)
            message = consumer.receive(60_000)
            assert len(message.data()) == size
            consumer.acknowledge(message)
        assert client.get_topic_partitions(topic) == [topic]
    finally:
        client.close()


@pytest.mark.java
def test_java_client(secured: Secured) -> None:
    arguments = [secured.keys.ca]
    for method in METHODS:
        arguments += secured.java_arguments(secured.proxy_url(method), method)
    arguments += secured.java_arguments(secured.proxy.service_url_tls, "token")
    arguments += secured.java_arguments(secured.proxy.service_url, "token", "mallory")
    arguments += [secured.proxy.service_url, "basic", "alice", "wrong"]
    with skipped_without(JAVA_CLIENT):
        command = jars.java_command("Proxied", arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    refusals = ["AuthorizationException", "AuthenticationException"]
    assert done.stdout.split() == ["ok"] * 4 + refusals, done.stderr[-2000:]


async def test_partitions_and_patterns(secured: Secured) -> None:
    topic = secured.topic("partitions")
    path = topic.replace("persistent://", "/admin/v2/persistent/") + "/partitions"
    admin(secured.broker.web_url, secured.keys, "PUT", path, 3)
    with trio.fail_after(200):
        async with geminga.connect(
            secured.proxy.service_url_tls, **secured.sdk_options("token")
        ) as client:
            assert len(await client.list_partitions(topic)) == 3
            producer = await client.create_producer(topic)
            pattern = re.compile(re.escape(topic).replace("persistent://", "persistent://") + ".*")
            consumer = await client.subscribe(
                pattern, "s", initial_position=geminga.InitialPosition.EARLIEST
            )
            sent = {f"{number}".encode() for number in range(30)}
            for each in sent:
                await producer.send(each)
            got = set()
            while got != sent:
                message = await consumer.receive(60)
                got.add(message.data)
                await consumer.acknowledge(message)


def test_schemas(secured: Secured) -> None:
    topic = secured.topic("schema")
    client = secured.python_client(secured.proxy.service_url, "basic")
    try:
        producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
        consumer = client.subscribe(topic, "s", schema=pulsar.schema.StringSchema())
        producer.send("hello")
        assert consumer.receive(60_000).value() == "hello"
    finally:
        client.close()


@pytest.mark.parametrize("method", METHODS)
async def test_who_has_no_grant_is_refused(secured: Secured, method: str) -> None:
    async with geminga.connect(
        secured.proxy_url(method), **secured.sdk_options(method, "mallory")
    ) as client:
        with trio.fail_after(60), pytest.raises(geminga.AuthorizationError):
            await client.create_producer(secured.topic("refused"))


def wrong(secured: Secured) -> dict[str, geminga.Authentication]:
    other = Keys(secured.folder / "other")
    return {
        "token": geminga.AuthenticationToken(other.token("alice")),
        "expired": geminga.AuthenticationToken(secured.keys.token("alice", -10)),
        "basic": geminga.AuthenticationBasic("alice", "wrong"),
        "none": geminga.Authentication("none"),
    }


async def test_wrong_credentials(secured: Secured) -> None:
    for about, who in wrong(secured).items():
        async with geminga.connect(secured.proxy.service_url, authentication=who) as client:
            with trio.fail_after(60), pytest.raises(geminga.AuthenticationError):
                await client.create_producer(secured.topic(about))


def test_the_broker_knows_whom_the_proxy_speaks_for(secured: Secured) -> None:
    topic = secured.topic("stats")
    client = secured.python_client(secured.proxy.service_url, "token")
    try:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "s")
        path = topic.replace("persistent://", "/admin/v2/persistent/") + "/stats"
        # Over the proxy's HTTP side.
        stats = admin(secured.proxy.web_url, secured.keys, "GET", path)
        assert len(stats["publishers"]) == 1
        assert len(stats["subscriptions"]["s"]["consumers"]) == 1
        producer.close()
        consumer.close()
    finally:
        client.close()


FORWARDING = {"forwardAuthorizationCredentials": "true"}


@pytest.fixture(scope="module", params=BOTH)
def forwarding(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """The broker checks the clients' credentials itself."""
    running = start_secured(
        request.param,
        tmp_path_factory.mktemp(f"forwarding-{request.param}"),
        broker_settings={"authenticateOriginalAuthData": "true"},
        proxy_settings=FORWARDING,
    )
    yield running
    running.stop()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["token", "basic"])
def test_credentials_are_forwarded(forwarding: Secured, method: str) -> None:
    topic = forwarding.topic("forwarded")
    client = forwarding.python_client(forwarding.proxy.service_url, method)
    try:
        producer = client.create_producer(topic)
        producer.send(b"x")
    finally:
        client.close()
    client = forwarding.python_client(forwarding.proxy.service_url, method, "mallory")
    try:
        with pytest.raises(pulsar.AuthorizationError):
            client.create_producer(topic)
    finally:
        client.close()


def short_tokens(secured: Secured) -> Any:
    return lambda: secured.keys.token("alice", 3)


async def exchange_for(secured: Secured, seconds: float) -> None:
    """A client whose tokens last three seconds sends and receives for longer; nothing is lost."""
    topic = secured.topic("refresh")
    who = geminga.AuthenticationToken(short_tokens(secured))
    with trio.fail_after(seconds + 200):
        async with geminga.connect(secured.proxy.service_url, authentication=who) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            until_s, number = trio.current_time() + seconds, 0
            got: set[bytes] = set()
            while trio.current_time() < until_s:
                await producer.send(b"%d" % number)
                number += 1
                # A lookup as well, on the connection to the proxy itself.
                await client.list_partitions(topic)
                await trio.sleep(0.2)
            while len(got) < number:
                message = await consumer.receive(60)
                got.add(message.data)
                await consumer.acknowledge(message)
            assert got == {b"%d" % each for each in range(number)}


@pytest.mark.slow
async def test_tokens_are_renewed(secured: Secured) -> None:
    await exchange_for(secured, 8)


@pytest.mark.slow
async def test_forwarded_tokens_are_renewed(forwarding: Secured) -> None:
    await exchange_for(forwarding, 8)


@pytest.mark.slow
def test_official_clients_tokens_are_renewed(secured: Secured) -> None:
    topic = secured.topic("refresh-python")
    client = pulsar.Client(
        secured.proxy.service_url,
        authentication=pulsar.AuthenticationToken(short_tokens(secured)),
        operation_timeout_seconds=30,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        until_s, number = time.monotonic() + 8, 0
        while time.monotonic() < until_s:
            producer.send(b"%d" % number)
            number += 1
            time.sleep(0.2)
        got = set()
        while len(got) < number:
            message = consumer.receive(60_000)
            got.add(message.data())
            consumer.acknowledge(message)
    finally:
        client.close()


async def test_no_secret_is_logged(secured: Secured) -> None:
    """Runs last: all that was used before it. Apache's broker logs its own way."""
    wrong_password = geminga.AuthenticationBasic("alice", "wrong")
    for server in (secured.proxy, secured.broker):
        for _ in range(5):
            async with geminga.connect(server.service_url, authentication=wrong_password) as client:
                with trio.fail_after(60), pytest.raises(geminga.AuthenticationError):
                    await client.create_producer(secured.topic("logged"))
    logs = [secured.proxy.log_path]
    if secured.kind == "geminga":
        logs.append(secured.broker.log_path)
    for log in logs:
        text = log.read_text(errors="replace")
        assert len(text) > 500
        for secret in secured.keys.secrets():
            assert secret not in text, log
        assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:3000]
