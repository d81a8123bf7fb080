"""WebSockets and binary clients crosswise, at our broker and at Apache's, directly and through the
proxy (spec PX-09).
"""

from __future__ import annotations

import base64
import time
from typing import Any

import httpx2 as httpx
import pytest

from compat_tests.secured import Secured
from compat_tests.websocket import Closed, Refused, WebSocketClient
from compat_tests.websocket import gate as gate
from geminga_protocol.message_id import MessageId


def websocket(
    gate: Secured, where: str, path: str, role: str | None, *, query: str = "", by: str = "header"
) -> WebSocketClient:
    """`where` is `direct`, `proxy` or `proxy-tls`. Raises Refused."""
    base = {
        "direct": gate.broker.web_url,
        "proxy": gate.proxy.web_url,
        "proxy-tls": gate.proxy.web_url_tls,
    }[where]
    headers = {}
    if role is not None and by == "header":
        headers["Authorization"] = f"Bearer {gate.keys.token(role)}"
    elif role is not None:
        query = f"{query}&token={gate.keys.token(role)}".lstrip("&")
    url = f"{base}/ws/v2/{path}" + (f"?{query}" if query else "")
    return WebSocketClient(url, headers=headers, ca=gate.keys.ca)


WHERE = ["direct", "proxy", "proxy-tls"]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(message: dict[str, Any]) -> str:
    return base64.b64decode(message["payload"]).decode()


def id_of(answer: dict[str, Any]) -> MessageId:
    return MessageId.deserialize(base64.b64decode(answer["messageId"]))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("by", ["header", "query"])
def test_websockets_and_clients_crosswise(gate: Secured, where: str, by: str) -> None:
    topic = gate.topic("ws")
    path = topic.replace("://", "/")
    client = gate.python_client(gate.broker.service_url, "token")
    try:
        consumer = client.subscribe(topic, "binary")
        producer = client.create_producer(topic)
        query = "subscriptionType=Shared&receiverQueueSize=5"
        with (
            websocket(gate, where, f"consumer/{path}/ws", "alice", query=query, by=by) as taking,
            websocket(gate, where, f"producer/{path}", "alice", by=by) as sending,
        ):
            sending.say(
                {
                    "payload": encoded("from the web"),
                    "properties": {"a": "b"},
                    "key": "k",
                    "context": "1",
                    "eventTime": "2026-01-02T03:04:05.678Z",
                }
            )
            answer = sending.hear()
            assert (answer["result"], answer["context"]) == ("ok", "1")
            got = consumer.receive(60_000)
            assert (got.data(), got.properties(), got.partition_key()) == (
                b"from the web",
                {"a": "b"},
                "k",
            )
            assert got.event_timestamp() == 1767323045678
            assert id_of(answer) == MessageId.deserialize(got.message_id().serialize())
            producer.send(b"to the web", properties={"c": "d"}, event_timestamp=1)
            first, second = taking.hear(), taking.hear()
            assert [decoded(first), decoded(second)] == ["from the web", "to the web"]
            assert first["eventTime"].startswith("2026-01-02T03:04:05.678")
            assert (first["key"], first["properties"], first["redeliveryCount"]) == (
                "k",
                {"a": "b"},
                0,
            )
            for message in (first, second):
                taking.say({"messageId": message["messageId"]})
            taking.say({"type": "isEndOfTopic"})
            assert taking.hear() == {"endOfTopic": False}
    finally:
        client.close()
    with websocket(gate, where, f"reader/{path}", "alice", query="messageId=earliest") as reading:
        assert [decoded(reading.hear()), decoded(reading.hear())] == ["from the web", "to the web"]


@pytest.mark.parametrize("where", WHERE)
def test_a_consumer_is_given_what_it_has_room_for(gate: Secured, where: str) -> None:
    path = gate.topic("room").replace("://", "/")
    query = "subscriptionType=Shared&receiverQueueSize=2&negativeAckRedeliveryDelay=100"
    with (
        websocket(gate, where, f"consumer/{path}/s", "alice", query=query) as taking,
        websocket(gate, where, f"consumer/{path}/p", "alice", query="pullMode=true") as pulling,
        websocket(gate, where, f"producer/{path}", "alice") as sending,
    ):
        for number in range(4):
            sending.say({"payload": encoded(str(number))})
            assert sending.hear()["result"] == "ok"
        first, second = taking.hear(), taking.hear()
        with pytest.raises(TimeoutError):
            taking.hear(0.3)
        taking.say({"messageId": first["messageId"]})
        third = taking.hear()
        assert decoded(third) == "2"
        taking.say({"type": "negativeAcknowledge", "messageId": second["messageId"]})
        assert decoded(taking.hear()) == "3"
        taking.say({"messageId": third["messageId"]})
        again = taking.hear()
        assert (again["messageId"], again["redeliveryCount"]) == (second["messageId"], 1)
        with pytest.raises(TimeoutError):
            pulling.hear(0.3)
        pulling.say({"type": "permit", "permitMessages": 3})
        assert [decoded(pulling.hear()) for _ in range(3)] == ["0", "1", "2"]
        with pytest.raises(TimeoutError):
            pulling.hear(0.3)


@pytest.mark.parametrize("where", WHERE)
def test_websockets_that_are_refused(gate: Secured, where: str) -> None:
    path = gate.topic("refused").replace("://", "/")
    for kind, role, query, status in (
        (f"producer/{path}", None, "", 401),
        (f"producer/{path}", "mallory", "", 403),
        (f"consumer/{path}/s", "mallory", "", 403),
        (f"reader/{path}", "mallory", "", 403),
        (f"producer/{path}", "alice", "compressionType=FOO", 400),
        (f"producer/{path}", "alice", "sendTimeoutMillis=abc", 400),
        (f"producer/{path}", "alice", "encryptionKeys=k", 500),
        (f"consumer/{path}/s", "alice", "subscriptionType=Foo", 400),
        (f"consumer/{path}/s", "alice", "receiverQueueSize=-1", 400),
        (f"consumer/{path}", "alice", "", 400),
        ("producer/persistent/public/nowhere/t", "admin", "", 404),
    ):
        with pytest.raises(Refused) as refused:
            websocket(gate, where, kind, role, query=query).close()
        assert refused.value.status == status, (kind, role, query)
    with (
        websocket(gate, where, f"producer/{path}", "alice", query="producerName=p"),
        pytest.raises(Refused) as refused,
    ):
        websocket(gate, where, f"producer/{path}", "alice", query="producerName=p").close()
    assert refused.value.status == 409


UNTOLD = 1006
"""The connection ended without a word."""


@pytest.mark.parametrize("where", WHERE)
def test_what_a_producer_hears_of_bad_messages(gate: Secured, where: str) -> None:
    path = gate.topic("bad").replace("://", "/")
    with websocket(gate, where, f"producer/{path}", "alice") as sending:
        for text, result in (
            ("rubbish", "send-error:3"),
            ("[]", "send-error:3"),
            ('{"payload":"!!"}', "send-error:7"),
            ("{}", "send-error:7"),
            ('{"payload":"eA==","eventTime":"x"}', "send-error:7"),
            ('{"payload":"eA","unknown":1,"properties":{"n":1}}', "ok"),
        ):
            sending.say(text)
            assert sending.hear()["result"] == result, text
        # The server may be gone before it has heard all of it, and what it said with it.
        with pytest.raises((Closed, OSError)) as closed:
            sending.say({"payload": encoded("x" * 1_200_000)})
            sending.hear()
        if isinstance(closed.value, Closed):
            assert closed.value.code == 1009 or (
                gate.kind == "apache" and closed.value.code == UNTOLD
            )
    for text in ("rubbish", "{}", '{"messageId":"!!"}', '{"type":"permit"}'):
        with websocket(gate, where, f"consumer/{path}/s", "alice") as taking:
            taking.say(text)
            with pytest.raises(Closed):
                taking.hear()


def test_a_topics_end_is_told(gate: Secured) -> None:
    topic = gate.topic("end")
    path = topic.replace("://", "/")
    client = gate.python_client(gate.broker.service_url, "token")
    try:
        client.create_producer(topic).send(b"last")
    finally:
        client.close()
    with (
        websocket(gate, "proxy", f"reader/{path}", "alice", query="messageId=earliest") as reading,
        websocket(
            gate,
            "proxy",
            f"consumer/{path}/s",
            "alice",
            query="subscriptionInitialPosition=Earliest",
        ) as taking,
    ):
        last = taking.hear()
        assert decoded(reading.hear()) == decoded(last) == "last"
        taking.say({"messageId": last["messageId"]})
        url = f"{gate.broker.web_url}/admin/v2/{path}/terminate"
        headers = {"Authorization": f"Bearer {gate.keys.token('admin')}"}
        assert httpx.post(url, headers=headers, timeout=60).status_code == 200
        for one in (reading, taking):
            deadline = time.monotonic() + 60
            answer: dict[str, bool] = {}
            while not answer.get("endOfTopic") and time.monotonic() < deadline:
                one.say({"type": "isEndOfTopic"})
                answer = one.hear()
            assert answer == {"endOfTopic": True}
