"""Fixtures for pytest, found by the entry point group `pytest11` (spec SDK-46)."""

from __future__ import annotations

import http.client
import json
import sys
import uuid
from collections.abc import Generator
from urllib.parse import urlsplit

import pytest

from geminga.testing._broker import BrokerUrl, broker

_REQUEST_TIMEOUT_S = 10.0
_PACKAGES = {"geminga", "geminga_protocol", "geminga_runtime"}
_PACKAGES |= {"geminga_bookie", "geminga_broker", "geminga_proxy", "pyspark_pulsar"}


def _import_as_it_is() -> None:
    """pytest rewrites the assertions of a whole distribution that has a plug-in, which has no use
    here and would take some seconds of the first test. It offers no way out of that: should the
    name of its set change, only the time is lost.
    """
    for finder in sys.meta_path:
        marked = getattr(finder, "_must_rewrite", None)
        if isinstance(marked, set):
            marked -= _PACKAGES


_import_as_it_is()


@pytest.fixture(scope="session")
def geminga_broker() -> Generator[BrokerUrl]:
    """URL of one broker for all tests of the session. Override it to give it `settings`."""
    with broker() as url:
        yield url


@pytest.fixture
def geminga_namespace(geminga_broker: BrokerUrl) -> Generator[str]:
    """A namespace (`tenant/namespace`) for one test, deleted with all its topics afterwards."""
    namespace = f"public/test-{uuid.uuid4().hex[:12]}"
    status, answer = _ask(geminga_broker, "PUT", f"/admin/v2/namespaces/{namespace}")
    assert status == 204, f"namespace {namespace} was not made: {status} {answer!r}"
    yield namespace
    _remove(geminga_broker, namespace)


def _remove(url: BrokerUrl, namespace: str) -> None:
    """Delete topics, even if in use, then the namespace."""
    for kind, tail in (("/partitioned", "/partitions"), ("", "")):
        for domain in ("persistent", "non-persistent"):
            status, listed = _ask(url, "GET", f"/admin/v2/{domain}/{namespace}{kind}")
            for topic in json.loads(listed) if status == 200 else []:
                path = topic.replace("://", "/")
                _ask(url, "DELETE", f"/admin/v2/{path}{tail}?force=true")
    _ask(url, "DELETE", f"/admin/v2/namespaces/{namespace}")


def _ask(url: BrokerUrl, method: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(
        urlsplit(url.web_url).netloc, timeout=_REQUEST_TIMEOUT_S
    )
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
