from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import geminga
from geminga import AuthenticationToken
from geminga._connection.service_url import parse
from geminga._tests.fake_broker import URL, FakeBroker, fake_broker
from geminga.client import open_client
from geminga.options import ClientOptions
from geminga_runtime.errors import ConnectFailed
from geminga_runtime.stream import FramedStream

LOOKUP = "/lookup/v2/topic/persistent/public/default/t"
PARTITIONS = "/admin/v2/persistent/public/default/t/partitions?checkAllowAutoCreation=true"


class Web:
    """Web services by `host:port/path`; a status and a body."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.answers: dict[str, tuple[int, Any]] = {
            f"web:8080{LOOKUP}": (200, {"brokerUrl": URL, "httpUrl": "http://web:8080"}),
            f"web:8080{PARTITIONS}": (200, {"partitions": 0}),
        }
        self.asked: list[str] = []
        self.heads: list[bytes] = []

    async def connector(self, host: str, port: int, deadline: float) -> FramedStream:
        if port == 6650:
            return await self.broker.connector(host, port, deadline)
        await trio.lowlevel.checkpoint()
        if host == "down":
            raise ConnectFailed("down")
        ours, theirs = trio.testing.memory_stream_pair()
        self.broker.nursery.start_soon(self.serve, f"{host}:{port}", ours)
        return FramedStream(theirs, name=f"{host}:{port}")

    async def serve(self, at: str, stream: trio.abc.Stream) -> None:
        async with stream:
            head = bytes(await stream.receive_some(10_000))
            self.heads.append(head)
            where = at + head.split(b" ")[1].decode()
            self.asked.append(where)
            status, what = self.answers.get(where, (404, {}))
            if status == 0:
                await trio.sleep_forever()
            location = f"Location: {what}\r\n" if status == 307 else ""
            body = json.dumps(what)
            answer = f"HTTP/1.1 {status} X\r\n{location}Content-Length: {len(body)}\r\n\r\n{body}"
            await stream.send_all(answer.encode())


@asynccontextmanager
async def web_client(url: str = "http://web:8080", **options: Any) -> Any:
    async with fake_broker() as broker:
        web = Web(broker)
        async with open_client(parse(url), ClientOptions(**options), web.connector) as client:
            yield web, client


async def test_produce_and_consume(autojump_clock: MockClock) -> None:
    async with web_client(authentication=AuthenticationToken("secret")) as (web, client):
        assert "http://web:8080" in repr(client)
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t")
        await producer.send(b"hello")
        assert (await consumer.receive(5)).data == b"hello"
        assert set(web.asked) == set(web.answers)
        assert all(b"\r\nAuthorization: Bearer secret\r\n" in head for head in web.heads)
        assert all(b"\r\nHost: web:8080\r\n" in head for head in web.heads)


async def test_redirects_and_hosts_that_are_down(autojump_clock: MockClock) -> None:
    async with web_client("http://down,web", lookup_redirects_max=2) as (web, client):
        there = f"{LOOKUP}?authoritative=true"
        web.answers[f"web:8080{LOOKUP}"] = (307, f"http://other:81{there}")
        web.answers[f"other:81{there}"] = (307, LOOKUP)
        web.answers[f"other:81{LOOKUP}"] = (200, {"brokerUrl": URL})
        assert (await client._core.lookup.broker_of("persistent://public/default/t")).address.url
        web.answers[f"other:81{LOOKUP}"] = (307, LOOKUP)
        with pytest.raises(geminga.ServiceNotReadyError, match="too often"):
            await client._core.lookup.broker_of("persistent://public/default/t")


async def test_credentials_go_to_trusted_brokers_only(autojump_clock: MockClock) -> None:
    who = AuthenticationToken("secret")
    topic = "persistent://public/default/t"

    async def sent(url: str, to: str, **options: Any) -> list[bool]:
        async with web_client(url, authentication=who, **options) as (web, client):
            web.answers[f"web:8080{LOOKUP}"] = (307, f"http://{to}/x")
            web.answers[f"{to}/x"] = (200, {"brokerUrl": URL})
            assert (await client._core.lookup.broker_of(topic)).address.url
            return [b"Authorization: Bearer secret" in head for head in web.heads]

    assert await sent("http://web:8080", "evil:81") == [True, False]
    assert await sent("http://web:8080", "web:81") == [True, False]
    assert await sent("http://web:8080", "web.evil:8080") == [True, False]
    assert await sent("http://web:8080,other:81", "other:81") == [True, True]
    trusts = {"trusted_broker_hosts": ["*.brokers.example", "10.0.0.1:81", "fake"]}
    assert await sent("http://web:8080", "one.brokers.example:81", **trusts) == [True, True]
    assert await sent("http://web:8080", "10.0.0.1:81", **trusts) == [True, True]
    assert await sent("http://web:8080", "10.0.0.1:82", **trusts) == [True, False]
    # If an untrusted host asks for them, the error names the option.
    async with web_client(authentication=who) as (web, client):
        web.answers[f"web:8080{LOOKUP}"] = (307, "http://evil:81/x")
        web.answers["evil:81/x"] = (401, {})
        with pytest.raises(geminga.AuthenticationError, match="trusted_broker_hosts"):
            await client._core.lookup.broker_of(topic)
        assert b"secret" not in web.heads[-1]


async def test_brokers_that_are_not_trusted_are_not_connected_to(autojump_clock: MockClock) -> None:
    async with web_client(trusted_broker_hosts=["*.brokers.example"]) as (web, client):
        with pytest.raises(geminga.ServiceNotReadyError, match="trusted_broker_hosts"):
            await client._core.lookup.broker_of("persistent://public/default/t")
        named = (200, {"brokerUrl": "pulsar://one.brokers.example:6650"})
        web.answers[f"web:8080{LOOKUP}"] = named
        assert await client._core.lookup.broker_of("persistent://public/default/t")


@pytest.mark.parametrize(
    ("status", "what", "kind"),
    [
        (401, {}, geminga.AuthenticationError),
        (403, {}, geminga.AuthorizationError),
        (404, {}, geminga.TopicNotFoundError),
        (412, {}, geminga.InvalidTopicNameError),
        (500, {}, geminga.UnknownBrokerError),
        (503, {}, geminga.ServiceNotReadyError),
        (200, [], geminga.ServiceNotReadyError),
        (307, "ftp://web/x", geminga.ServiceNotReadyError),
        (307, "http://web:nan/", geminga.ServiceNotReadyError),
        (0, {}, geminga.OperationTimeoutError),
    ],
)
async def test_failures(
    autojump_clock: MockClock, status: int, what: object, kind: type[geminga.GemingaError]
) -> None:
    async with web_client(operation_timeout_s=2) as (web, client):
        web.answers[f"web:8080{LOOKUP}"] = (status, what)
        with pytest.raises(kind) as caught:
            await client._core.lookup.broker_of("persistent://public/default/t")
        assert caught.value.topic in (None, "persistent://public/default/t")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Unauthorized to validateTopicOperation", geminga.AuthorizationError),
        ("Authentication required", geminga.AuthenticationError),
    ],
)
async def test_the_brokers_reason_is_told(
    autojump_clock: MockClock, reason: str, kind: type[geminga.GemingaError]
) -> None:
    async with web_client(operation_timeout_s=2) as (web, client):
        web.answers[f"web:8080{LOOKUP}"] = (401, {"reason": reason})
        with pytest.raises(kind, match=f"HTTP status 401: {reason}"):
            await client._core.lookup.broker_of("persistent://public/default/t")


async def test_partitions_listener_and_topics(autojump_clock: MockClock) -> None:
    async with web_client(listener_name="in side") as (web, client):
        web.answers[f"web:8080{PARTITIONS}"] = (200, {"partitions": 3})
        assert len(await client.list_partitions("t")) == 3
        web.answers[f"web:8080{PARTITIONS}"] = (200, {"partitions": "3"})
        with pytest.raises(geminga.UnknownBrokerError):
            await client._core.lookup.partitions_of("persistent://public/default/t")
        with pytest.raises(geminga.TopicNotFoundError):
            await client._core.lookup.broker_of("persistent://public/default/t")
        assert web.asked[-1].endswith("?listenerName=in+side")
        with pytest.raises(geminga.UnsupportedVersionError):
            await client._core.lookup.service_connection()


async def test_no_broker_without_tls_where_the_service_url_has_it() -> None:
    async with web_client("pulsar+ssl://web") as (_, client):
        endpoint = client._core.lookup.endpoint
        assert endpoint("pulsar+ssl://one:6651").address.tls
        with pytest.raises(geminga.ServiceNotReadyError, match="without TLS"):
            endpoint("pulsar://one:6650")
