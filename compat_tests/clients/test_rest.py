"""The admin API: the same calls in the same order, on our server and on Apache's, with the same
answers.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

import httpx2 as httpx

from compat_tests.clients import cluster_calls, function_calls, namespace_calls, topic_calls
from compat_tests.clients.rest_calls import ANY, CALLS, EMPTY, Keys, Members, Text
from compat_tests.processes import ServerProcess
from geminga_broker.admin.namespaces.changing import FIELDS

SETTLED_S = 30.0
"""Apache's broker takes a topic's policies when it has read them from its system topic."""


Calls = Sequence[tuple[str, str, str | None, int, object]]
T = TypeVar("T")


def fill(value: T, words: Mapping[str, str]) -> T:
    """The value with `{t}` and other words replaced wherever a string has them."""
    found: object = value
    if isinstance(value, str):
        for word, text in words.items():
            found = cast(str, found).replace(word, text)
    elif isinstance(value, Text):
        found = Text(fill(value.text, words))
    elif isinstance(value, Members):
        found = Members(fill(value.names, words))
    elif isinstance(value, list):
        found = [fill(item, words) for item in value]
    elif isinstance(value, dict):
        found = {fill(key, words): fill(item, words) for key, item in value.items()}
    return cast(T, found)


def difference(expected: object, response: httpx.Response) -> str | None:
    """What is wrong with the body, or None."""
    if expected is ANY:
        return None
    if expected == EMPTY:
        return None if not response.content else f"a body: {response.text}"
    if isinstance(expected, Text):
        return None if response.text == expected.text else f"{response.text!r}, not {expected}"
    try:
        body = response.json()
    except json.JSONDecodeError:
        return f"no JSON: {response.text!r}"
    if isinstance(expected, Keys):
        if not isinstance(body, dict):
            return f"no object: {body!r}"
        found = frozenset(body)
        if found != expected.names:
            return f"lacks {expected.names - found}, has too {found - expected.names}"
        return None
    if isinstance(expected, Members) and isinstance(body, list):
        body, expected = sorted(body), sorted(expected.names)
    return None if body == expected else f"{body!r} instead of {expected!r}"


def wrong_with(response: httpx.Response, status: int, expected: object) -> str | None:
    """What is wrong with an answer, or None."""
    if response.status_code != status:
        return f"{response.status_code} instead of {status}: {response.text[:200]}"
    return difference(expected, response)


def all_wrong(
    web_url: str, calls: Calls = CALLS, *, but: tuple[str, ...] = (), **more: str
) -> list[str]:
    """Make every call and tell which answers are not as they should be; paths that begin with one
    of `but` are left out. `more` are further words in braces.
    """
    tenant = f"rest{uuid.uuid4().hex[:8]}"
    words = {"{t}": tenant} | {f"{{{name}}}": value for name, value in more.items()}
    wrong = []
    with httpx.Client(base_url=web_url, timeout=60) as client:
        for method, path, body, status, expected in calls:
            if path.startswith(but):
                continue
            headers = {"content-type": "application/json"} if body is not None else {}
            path, body = fill(path, words), fill(body, words)
            told = f"{method} {path} {body or ''}"
            deadline = time.monotonic() + (SETTLED_S if method == "GET" else 0)
            while True:
                response = client.request(method, path, content=body, headers=headers)
                problem = wrong_with(response, status, fill(expected, words))
                if not problem or time.monotonic() >= deadline:
                    break
                time.sleep(0.05)
            if problem:
                wrong.append(f"{told}: {problem}")
    return wrong


def test_every_call_is_answered_as_apache_answers(server: ServerProcess) -> None:
    assert all_wrong(server.web_url) == []


def test_calls_about_the_cluster_are_answered_as_apache_answers(server: ServerProcess) -> None:
    cluster = f"c{uuid.uuid4().hex[:8]}"
    broker = server.web_url.partition("://")[2]
    assert all_wrong(server.web_url, cluster_calls.CALLS, c=cluster, b=broker) == []


def test_what_namespaces_keep_is_answered_as_apache_answers(server: ServerProcess) -> None:
    assert all_wrong(server.web_url, namespace_calls.CALLS) == []


def test_what_topics_keep_is_answered_as_apache_answers(server: ServerProcess) -> None:
    assert all_wrong(server.web_url, topic_calls.CALLS) == []


HTTP_ITSELF = (
    ("OPTIONS", "/admin/v2/clusters", {}, 200, "HEAD,GET,OPTIONS"),
    ("GET", "/admin/v2/clusters/", {}, 200, None),
    ("HEAD", "/admin/v2/clusters", {}, 200, None),
    ("DELETE", "/admin/v2/clusters", {}, 405, "GET,OPTIONS"),
    ("PATCH", "/admin/v2/clusters", {}, 405, "GET,OPTIONS"),
    ("GET", "/admin/v2/nowhere", {}, 404, None),
    ("GET", "/admin/v2//clusters", {}, 404, None),
    ("GET", "/admin/v2", {}, 302, None),
    (
        *("PUT", "/admin/v2/tenants/form"),
        {"content-type": "application/x-www-form-urlencoded"},
        *(415, None),
    ),
)
"""A method, a path, headers, and the status and `Allow` that come back."""


def test_what_is_switched_off_is_told_as_by_apache(server: ServerProcess) -> None:
    """Functions, connectors and packages: status, type and body."""
    wrong = []
    calls = function_calls.calls()
    with httpx.Client(base_url=server.web_url, timeout=60) as client:
        for call in calls:
            body = None if call.sent_as is None else function_calls.TYPES[call.sent_as]
            headers = {} if call.sent_as is None else {"content-type": call.sent_as}
            told = client.request(call.method, call.path, content=body, headers=headers)
            kind = told.headers.get("content-type", "").partition(";")[0] or None
            found = (told.status_code, kind, told.json() if call.body is not None else None)
            if found != (call.status, call.content, call.body):
                wrong.append(f"{call}: {found}")
    assert wrong == []
    assert len(calls) > 150


def test_http_itself_is_answered_as_apache_answers(server: ServerProcess) -> None:
    wrong = []
    with httpx.Client(base_url=server.web_url, timeout=60) as client:
        for method, path, headers, status, allow in HTTP_ITSELF:
            content = b"{}" if headers else None
            told = client.request(method, path, headers=headers, content=content)
            found = (told.status_code, told.headers.get("allow"))
            if found != (status, allow):
                wrong.append(f"{method} {path}: {found} instead of {(status, allow)}")
    assert wrong == []


def test_a_namespace_is_written_as_by_apache(server: ServerProcess) -> None:
    """Its members come in the order of Apache's class, also those that were set later."""
    tenant = f"order{uuid.uuid4().hex[:8]}"
    path = f"/admin/v2/namespaces/{tenant}/n"
    with httpx.Client(base_url=server.web_url, timeout=60) as client:
        info = {"adminRoles": [], "allowedClusters": ["standalone"]}
        assert client.put(f"/admin/v2/tenants/{tenant}", json=info).status_code == 204
        assert client.put(path).status_code == 204
        assert client.post(f"{path}/maxProducersPerTopic", json=3).status_code == 204
        assert client.put(f"{path}/offloadThreshold", json=5).status_code == 204
        body = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
        assert client.post(f"{path}/persistence", json=body).status_code == 204
        assert client.post(f"{path}/dispatcherPauseOnAckStatePersistent").status_code == 204
        told = client.get(path).json()
        assert client.delete(path).status_code == 204
        assert client.delete(f"/admin/v2/tenants/{tenant}").status_code == 204
    assert list(told) == [name for name in FIELDS if name in told]
    set_here = {"persistence", "offload_policies", "max_producers_per_topic"}
    assert set_here | {"dispatcherPauseOnAckStatePersistentEnabled"} <= set(told)


def test_statistics_tell_what_clients_did(server: ServerProcess) -> None:
    import pulsar

    name = f"stats-{uuid.uuid4().hex[:8]}"
    client = pulsar.Client(server.service_url)
    try:
        consumer = client.subscribe(
            name, "s", pulsar.ConsumerType.Shared, consumer_name="cc", properties={"x": "y"}
        )
        producer = client.create_producer(name, producer_name="pp", properties={"a": "b"})
        for index in range(20):
            producer.send(f"{index}".encode())
        for _ in range(10):
            consumer.acknowledge(consumer.receive(timeout_millis=60_000))
        path = f"/admin/v2/persistent/public/default/{name}"
        with httpx.Client(base_url=server.web_url, timeout=60) as web:
            deadline = time.monotonic() + SETTLED_S
            while True:  # what no one has taken yet is on its way
                stats = web.get(f"{path}/stats").json()
                sent = stats["subscriptions"]["s"]["msgOutCounter"]
                if sent == 20 or time.monotonic() > deadline:
                    break
            metrics = web.get("/metrics/").text
            refused = web.delete(path)
            forced = web.delete(f"{path}?force=true")
    finally:
        client.close()
    assert stats["msgInCounter"] == 20
    publisher = stats["publishers"][0]
    assert publisher["producerName"] == "pp"
    assert publisher["metadata"] == {"a": "b"}
    subscription = stats["subscriptions"]["s"]
    assert subscription["type"] == "Shared"
    assert subscription["msgOutCounter"] == 20
    told = subscription["consumers"][0]
    assert told["consumerName"] == "cc"
    assert told["metadata"] == {"x": "y"}
    assert told["availablePermits"] == 980
    full = f'topic="persistent://public/default/{name}"'
    assert any(
        line.startswith("pulsar_in_messages_total") and full in line and line.endswith(" 20")
        for line in metrics.splitlines()
    )
    assert refused.status_code == 412
    assert refused.json() == {"reason": "Topic has 2 connected producers/consumers"}
    assert forced.status_code == 204
