"""One broker for all tests of the faces."""

from __future__ import annotations

import itertools
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from geminga.testing import BrokerUrl, broker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def url() -> Iterator[BrokerUrl]:
    with broker() as found:
        yield found


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/faces-{next(_numbers)}"


def ask(url: BrokerUrl, topic: str, what: str, method: str, body: str) -> None:
    """One call of a topic's REST resources."""
    request = urllib.request.Request(
        f"{url.web_url}/admin/v2/{topic.replace('://', '/')}/{what}",
        data=body.encode(),
        headers={"content-type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60):
        pass


@pytest.fixture
def partitioned(url: BrokerUrl) -> Callable[[str, int], str]:
    """Make a topic with partitions."""

    def make(topic: str, partitions: int) -> str:
        ask(url, topic, "partitions", "PUT", str(partitions))
        return topic

    return make


@pytest.fixture
def terminate(url: BrokerUrl) -> Callable[[str], None]:
    """End a topic."""
    return lambda topic: ask(url, topic, "terminate", "POST", "")
