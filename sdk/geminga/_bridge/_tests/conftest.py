"""One broker for all tests of the faces."""

from __future__ import annotations

import itertools
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


@pytest.fixture
def partitioned(url: BrokerUrl) -> Callable[[str, int], str]:
    """Make a topic with partitions."""
    import urllib.request

    def make(topic: str, partitions: int) -> str:
        request = urllib.request.Request(
            f"{url.web_url}/admin/v2/{topic.replace('://', '/')}/partitions",
            data=str(partitions).encode(),
            headers={"content-type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=60):
            return topic

    return make
