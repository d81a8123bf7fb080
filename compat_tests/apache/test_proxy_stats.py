"""`/proxy-stats` of our proxy beside Apache's, before the same broker (PX-06, PX-07). Each
difference stands here.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import pytest

from compat_tests.apache.proxy import Proxies, both_proxies
from compat_tests.processes import ServerProcess
from compat_tests.secured import Keys

pytestmark = pytest.mark.java

STATES = [
    *[("GET", page) for page in ("connections", "topics", "logging", "connections/", "", "x")],
    ("HEAD", "logging"),
    *[("POST", f"logging/{level}") for level in ("1", "-1", "3", "x")],
    *[("POST", "connections"), ("GET", "logging/1"), ("GET", "logging")],
]


class Answer(NamedTuple):
    """A status, and the JSON of it; None for HTML, which ours never is."""

    status: int
    body: Any


@pytest.fixture(params=["0", "2"])
def proxies(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Proxies]:
    """With level 0 and every client's right, and with level 2 and super users."""
    settings = {
        "superUserRoles": "admin",
        "proxyLogLevel": request.param,
        "authorizationEnabled": str(request.param == "2").lower(),
    }
    stores = {"metadataStoreUrl": "memory:a", "configurationMetadataStoreUrl": "memory:a"}
    with both_proxies(tmp_path, settings, stores) as found:
        yield found


def ask(proxy: ServerProcess, method: str, page: str, token: str | None) -> Answer:
    request = urllib.request.Request(f"{proxy.web_url}/proxy-stats/{page}", method=method)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, _json(answer.headers["content-type"], answer.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, _json(error.headers["content-type"], error.read()))


def _json(kind: str | None, body: bytes) -> Any:
    return json.loads(body) if body and kind == "application/json" else None


def states(proxy: ServerProcess, token: str | None) -> list[tuple[str, str, Answer]]:
    return [(*each, ask(proxy, *each, token)) for each in STATES]


def alike(ours: Answer, theirs: Answer) -> bool:
    """Jetty's and Jersey's own errors are HTML."""
    return ours.status == theirs.status and (theirs.body is None or ours.body == theirs.body)


def test_the_same_answers(proxies: Proxies) -> None:
    for role in (None, "alice", "admin"):
        token = proxies.keys.token(role) if role else None
        pairs = zip(states(proxies.ours, token), states(proxies.apache, token), strict=True)
        for ours, theirs in pairs:
            assert alike(ours[2], theirs[2]), (role, ours, theirs)


def shapes(proxy: ServerProcess, keys: Keys) -> tuple[Any, Answer]:
    """What is told of a producer and a consumer: connections and topics."""
    token = keys.token("admin")
    with closing(pulsar.Client(proxy.service_url, pulsar.AuthenticationToken(token))) as client:
        consumer = client.subscribe("some", "s")
        producer = client.create_producer("some", batching_enabled=False)
        for _ in range(3):
            producer.send(b"12345")
            consumer.acknowledge(consumer.receive(10_000))
        connections = ask(proxy, "GET", "connections", token).body
        return connections, ask(proxy, "GET", "topics", token)


def test_the_same_shapes(proxies: Proxies) -> None:
    found = [shapes(each, proxies.keys) for each in (proxies.ours, proxies.apache)]
    (ours,), (theirs,) = (each[0] for each in found)
    assert ours.keys() == theirs.keys()
    assert ours["brokerAddress"] == theirs["brokerAddress"]
    for one in (ours, theirs):
        host, _, port = one["clientAddress"].rpartition(":")
        assert (host, port.isdigit()) == ("/127.0.0.1", True)
    topics, apaches = (each[1] for each in found)
    assert topics.status == apaches.status
    if apaches.status == 200:
        assert topics.body.keys() == apaches.body.keys()
        for name, told in apaches.body.items():
            assert topics.body[name].keys() == told.keys()
        # Apache's makes rates once, a minute after its start, and tells 0 before.
        (rates,) = topics.body.values()
        assert rates["msgByteIn"] == pytest.approx(5 * rates["msgRateIn"])
        assert rates["msgByteOut"] == pytest.approx(5 * rates["msgRateOut"])
        assert rates["msgRateIn"] > 0
        assert rates["msgRateOut"] > 0
