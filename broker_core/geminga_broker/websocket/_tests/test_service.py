"""WebSockets straight into the application of a broker in memory (spec PX-09)."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from starlette.types import ASGIApp, Message

from geminga_broker._tests.wire import open_broker
from geminga_broker.admin._tests.test_guard import SECRET, call, secured
from geminga_broker.admin.app import create_app
from geminga_broker.config import load_config
from geminga_broker.web.settings import TLS_PEER_CERTIFICATE
from geminga_protocol import tokens

ON = {"webSocketServiceEnabled": "true"}
TOPIC = "persistent/public/default/t"


class Peer:
    """A client: its messages and the service's."""

    def __init__(self) -> None:
        self.to_app, self._app_receives = trio.open_memory_channel[Message](100)
        self._app_sends, self.from_app = trio.open_memory_channel[Message](100)
        self.done = trio.Event()

    async def run(self, app: ASGIApp, path: str, query: str, headers: dict[str, str]) -> None:
        scope = {
            "type": "websocket", "path": path, "raw_path": path.encode(), "scheme": "ws",
            "query_string": query.encode(), "client": ("1.2.3.4", 5), "server": ("here", 8080),
            "headers": [(k.encode(), v.encode()) for k, v in headers.items()], "root_path": "",
            "extensions": {"websocket.http.response": {}}, "subprotocols": [],
            TLS_PEER_CERTIFICATE: None,
        }  # fmt: skip
        await self.to_app.send({"type": "websocket.connect"})
        await app(scope, self._app_receives.receive, self._app_sends.send)
        self.done.set()

    async def next(self) -> Message:
        with trio.fail_after(60):
            return await self.from_app.receive()

    async def say(self, value: object) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        await self.to_app.send({"type": "websocket.receive", "text": text})

    async def hear(self) -> Any:
        message = await self.next()
        assert message["type"] == "websocket.send", message
        return json.loads(message["text"])

    async def refusal(self) -> tuple[int, str]:
        start, body = await self.next(), await self.next()
        assert start["type"] == "websocket.http.response.start"
        return start["status"], json.loads(body["body"])["reason"]

    async def nothing(self) -> None:
        with trio.move_on_after(0.1) as patience:
            raise AssertionError(await self.from_app.receive())
        assert patience.cancelled_caught


Open = Callable[..., Any]


@asynccontextmanager
async def opening(app: ASGIApp) -> AsyncIterator[Open]:
    """Opens WebSockets, which are closed at the block's end."""
    peers: list[Peer] = []
    async with trio.open_nursery() as nursery:

        async def open_(
            path: str, query: str = "", *, accepted: bool = True, **headers: str
        ) -> Peer:
            peer = Peer()
            peers.append(peer)
            nursery.start_soon(peer.run, app, f"/ws/v2/{path}", query, headers)
            if accepted:
                message = await peer.next()
                assert message["type"] == "websocket.accept", message
            return peer

        yield open_
        for peer in peers:
            if not peer.done.is_set():
                await peer.to_app.send({"type": "websocket.disconnect", "code": 1000})
                with trio.fail_after(60):
                    await peer.done.wait()


@asynccontextmanager
async def service(**settings: str) -> AsyncIterator[Open]:
    async with (
        open_broker(load_config(None, {}, ON | settings)) as broker,
        opening(create_app(broker.service)) as open_,
    ):
        yield open_
    assert not broker.service.connections.sessions


def payload(text: str) -> dict[str, str]:
    return {"payload": base64.b64encode(text.encode()).decode(), "context": text}


def text_of(message: dict[str, str]) -> str:
    return base64.b64decode(message["payload"]).decode()


@pytest.mark.slow
async def test_messages_go_around() -> None:
    async with service() as open_:
        consumer = await open_(f"consumer/{TOPIC}/s", "subscriptionType=Shared")
        producer = await open_(f"producer/{TOPIC}")
        for text in ("a", "b", "c"):
            await producer.say({**payload(text), "key": "k", "properties": {"p": text}})
            answer = await producer.hear()
            assert (answer["result"], answer["context"]) == ("ok", text)
            message = await consumer.hear()
            assert message["messageId"] == answer["messageId"]
            assert (text_of(message), message["key"]) == (text, "k")
            assert message["properties"] == {"p": text}
            await consumer.say({"messageId": message["messageId"]})
        await producer.say("rubbish")
        assert (await producer.hear())["result"] == "send-error:3"
        await consumer.say({"type": "isEndOfTopic"})
        assert await consumer.hear() == {"endOfTopic": False}


@pytest.mark.slow
async def test_a_consumer_gets_no_more_than_its_budget() -> None:
    async with service() as open_:
        query = "receiverQueueSize=2&subscriptionType=Shared&negativeAckRedeliveryDelay=50"
        consumer = await open_(f"consumer/{TOPIC}/s", query)
        pulling = await open_(f"consumer/{TOPIC}/pull", "pullMode=true")
        reader = await open_(f"reader/{TOPIC}", "receiverQueueSize=1")
        producer = await open_(f"producer/{TOPIC}")
        for text in "abcde":
            await producer.say(payload(text))
            await producer.hear()
        got = [await consumer.hear(), await consumer.hear()]
        assert [text_of(one) for one in got] == ["a", "b"]
        await consumer.nothing()
        await consumer.say({"messageId": got[0]["messageId"]})
        assert text_of(await consumer.hear()) == "c"
        await consumer.say({"type": "negativeAcknowledge", "messageId": got[1]["messageId"]})
        assert text_of(await consumer.hear()) == "d"
        await consumer.say({"messageId": got[0]["messageId"]})
        await consumer.say({"messageId": got[0]["messageId"]})
        assert {text_of(await consumer.hear()), text_of(await consumer.hear())} == {"b", "e"}

        await pulling.nothing()
        await pulling.say({"type": "permit", "permitMessages": 2})
        assert [text_of(await pulling.hear()), text_of(await pulling.hear())] == ["a", "b"]
        await pulling.nothing()

        assert text_of(await reader.hear()) == "a"
        await reader.nothing()
        await reader.say({"messageId": "x"})
        assert text_of(await reader.hear()) == "b"
        await reader.say({"type": "isEndOfTopic"})
        assert await reader.hear() == {"endOfTopic": False}


async def test_bad_commands_close_and_unsubscribing_does_not() -> None:
    async with service() as open_:
        for text in ("rubbish", "{}", '{"type":"permit"}', '{"messageId":"!!"}'):
            consumer = await open_(f"consumer/{TOPIC}/s")
            await consumer.say(text)
            message = await consumer.next()
            assert (message["type"], message["code"]) == ("websocket.close", 1011)
        consumer = await open_(f"consumer/{TOPIC}/gone")
        await consumer.say({"type": "unsubscribe"})
        await consumer.say({"type": "isEndOfTopic"})
        assert "endOfTopic" in await consumer.hear()


async def test_refusals() -> None:
    async with service() as open_:
        for path, query, status in (
            (f"nothing/{TOPIC}", "", 404),
            ("producer/persistent/public/nowhere/t", "", 404),
            (f"producer/{TOPIC}", "sendTimeoutMillis=x", 400),
            (f"producer/{TOPIC}", "encryptionKeys=x", 500),
            (f"producer/{TOPIC}", "&".join(f"a{n}=1" for n in range(200)), 400),
        ):
            peer = await open_(path, query, accepted=False)
            assert (await peer.refusal())[0] == status
        await open_(f"producer/{TOPIC}", "producerName=p")
        peer = await open_(f"producer/{TOPIC}", "producerName=p", accepted=False)
        assert (await peer.refusal())[0] == 409
    async with service(webSocketServiceEnabled="false") as open_:
        peer = await open_(f"producer/{TOPIC}", accepted=False)
        assert (await peer.refusal())[0] == 404


async def test_idle_sockets_are_closed() -> None:
    async with service(webSocketSessionIdleTimeoutMillis="50") as open_:
        producer = await open_(f"producer/{TOPIC}")
        message = await producer.next()
        assert (message["type"], message["code"]) == ("websocket.close", 1001)


def bearer(role: str, lasts_s: float | None = None) -> str:
    expires = None if lasts_s is None else int(time.time() + lasts_s)
    return tokens.create(SECRET, role, expires_at_s=expires)


PRIVATE = "persistent/t/n/top"


@pytest.mark.parametrize("by_query", [False, True])
async def test_callers_need_their_rights(by_query: bool) -> None:
    async with secured(**ON) as (_, app), opening(app) as open_:

        async def attempt(kind: str, role: str | None, **headers: str) -> int:
            path = f"{kind}/{PRIVATE}" + ("/s" if kind == "consumer" else "")
            query = f"token={bearer(role)}" if role and by_query else ""
            if role and not by_query:
                headers["authorization"] = "Bearer " + bearer(role)
            peer = await open_(path, query, accepted=False, **headers)
            message = await peer.next()
            return 101 if message["type"] == "websocket.accept" else message["status"]

        assert await attempt("producer", None) == 401
        assert await attempt("producer", "prod") == 101
        assert await attempt("producer", "cons") == 403
        assert await attempt("consumer", "cons") == 101
        assert await attempt("consumer", "prod") == 403
        assert await attempt("reader", "cons") == 101
        assert await attempt("reader", "prod") == 403
        assert await attempt("producer", "fn") == 403
        assert await attempt("producer", "root") == 101
        # A proxy speaks for others, whose rights count.
        speaks_for = {"x-original-principal": "prod"}
        assert await attempt("producer", "proxy", **speaks_for) == 101
        assert await attempt("consumer", "proxy", **speaks_for) == 403
        assert await attempt("producer", "proxy") == 401
        assert await attempt("producer", "cons", **speaks_for) == 401


async def test_sockets_of_one_role_are_bounded() -> None:
    async with secured(webSocketMaxConnectionsPerRole="2", **ON) as (_, app), opening(app) as open_:
        mine = f"token={bearer('prod')}"
        first = await open_(f"producer/{PRIVATE}", mine)
        await open_(f"producer/{PRIVATE}", mine)
        third = await open_(f"producer/{PRIVATE}", mine, accepted=False)
        assert await third.refusal() == (429, "Too many WebSockets of this role")
        await open_(f"consumer/{PRIVATE}/s", f"token={bearer('cons')}")
        await first.to_app.send({"type": "websocket.disconnect", "code": 1000})
        with trio.fail_after(60):
            await first.done.wait()
        await open_(f"producer/{PRIVATE}", mine)


async def test_a_revoked_grant_ends_a_producer() -> None:
    async with secured(**ON) as (_, app), opening(app) as open_:
        query = f"token={bearer('prod')}&sendTimeoutMillis=100"
        producer = await open_(f"producer/{PRIVATE}", query)
        await producer.say(payload("a"))
        assert (await producer.hear())["result"] == "ok"
        path = "/admin/v2/namespaces/t/n/permissions/prod"
        assert (await call(app, "DELETE", path, "root")).status == 204
        await producer.say(payload("b"))
        assert (await producer.hear())["result"] == "send-error:8"


@pytest.mark.slow
async def test_an_expired_token_ends_the_socket() -> None:
    async with secured(**ON) as (_, app), opening(app) as open_:
        consumer = await open_(f"consumer/{PRIVATE}/s", f"token={bearer('cons', 4)}")
        message = await consumer.next()
        assert (message["type"], message["code"]) == ("websocket.close", 1008)
