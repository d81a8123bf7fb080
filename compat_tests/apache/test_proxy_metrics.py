"""What our proxy tells Prometheus beside what Apache's does, before the same broker and after the
same load (PX-07). Each difference stands in a table here, with its reason.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pulsar
import pytest

from compat_tests.apache.proxy import Proxies, both_proxies
from compat_tests.apache.test_metrics import Metric, get, parsed, unexplained, unused
from compat_tests.processes import ServerProcess
from compat_tests.secured import Keys

pytestmark = pytest.mark.java

LACKING = {
    r".*_created": "when counting began; in Prometheus's text format each is a series more",
    r"(jetty|jvm)_.*": "of Java's",
}
"""What Apache's proxy tells and ours doesn't, and why."""

OWN = {
    r"geminga_.*": "what Apache's has no name for",
    r"python_gc_.*": "of Python's",
    r"pulsar_proxy_rejected_get_schema_requests_total": "Apache's doesn't count these",
}
"""What our proxy tells and Apache's doesn't."""


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[Proxies]:
    with both_proxies(tmp_path) as found:
        yield found


def load(proxy: ServerProcess, keys: Keys) -> dict[str, Metric]:
    """A connection, a refused one, and each kind of request that a proxy answers itself."""
    wrong = pulsar.Client(
        proxy.service_url, pulsar.AuthenticationToken("wrong"), operation_timeout_seconds=3
    )
    with closing(wrong), pytest.raises(pulsar.PulsarException):
        wrong.create_producer("refused")
    token = pulsar.AuthenticationToken(keys.token("admin"))
    with closing(pulsar.Client(proxy.service_url, token)) as client:
        client.get_topic_partitions("some")
        producer = client.create_producer("some", schema=pulsar.schema.StringSchema())
        producer.send("x")
        client.subscribe(re.compile("persistent://public/default/so.*"), "s").close()
        request = urllib.request.Request(f"{proxy.web_url}/admin/v2/clusters")
        request.add_header("Authorization", f"Bearer {keys.token('admin')}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
        return parsed(get(f"{proxy.web_url}/metrics/"))


def test_the_proxies_tell_the_same(proxies: Proxies) -> None:
    apaches, found = (load(each, proxies.keys) for each in (proxies.apache, proxies.ours))
    lacking = apaches.keys() - found.keys()
    print(sorted(lacking), sorted(found.keys() - apaches.keys()))
    assert unexplained(lacking, LACKING) == []
    assert unused(lacking, LACKING) == []
    assert unexplained(found.keys() - apaches.keys(), OWN) == []
    assert {name: metric for name, metric in found.items() if name in apaches} == {
        name: metric for name, metric in apaches.items() if name in found
    }
