"""What our broker and our bookie tell Prometheus beside what Apache's do, after the same small
load: names, types, labels and the values of labels that have fixed ones (OP-05, BK-13). Each
difference stands in a table here, with its reason; docs/METRICS.md has them for readers.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pulsar
import pytest

from compat_tests.apache.bookie import ApacheBookie, start_bookie
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.apache.server import start_apache
from compat_tests.missing import APACHE, BOOKIE, skipped_without
from compat_tests.processes import ServerProcess, free_port, start_geminga, wait_until
from compat_tests.secured import Keys, start_broker
from geminga_bookie._tests.support import KEY, add, read_all, write_lac
from geminga_bookie.errors import BookkeeperError
from geminga_bookie.wire.options import RemoteOptions
from geminga_bookie.wire.remote import open_remote

pytestmark = pytest.mark.java

SETTINGS = {
    "exposeConsumerLevelMetricsInPrometheus": "true",
    "exposeProducerLevelMetricsInPrometheus": "true",
    "exposeManagedCursorMetricsInPrometheus": "true",
    "exposeBundlesMetricsInPrometheus": "true",
    "managedLedgerStatsPeriodSeconds": "1",
    "loadBalancerEnabled": "true",
}
"""Everything is told; figures of storage are of the last second."""

LACKING = {
    r".*_created": "when counting began; in Prometheus's text format each is a series more",
    r"(caffeine_cache|jetty|jvm|pulsar_web_executor|pulsar_ml_cache_pool)_.*": "of Java's",
    r"pulsar_txn_.*": "no transactions",
    r"pulsar_resource_group_.*": "resource groups are kept, not enforced",
    r"pulsar_ml_(cache_pendingreads|reads)_.*": "reads are neither joined nor bounded together",
    r"pulsar_broker_pending_bytes_to_dispatch": "rounds are bounded one by one",
    r"pulsar_subscription_dispatch_throttled_.*": "a round asks all its limits at once",
    r"pulsar_ml_cursor_readLedgerSize": "a cursor reads one entry of its ledger, once",
}
"""What Apache's broker tells and ours doesn't, and why."""

LATER = {
    r"python_gc_.*": "of Python's; Apache's never",
    r"pulsar_(bundle|lb)_.*": "Apache's tells them once it has reported, or moved something",
    r"pulsar_schema_.*": "Apache's tells each once there was such a call",
}
"""What our broker tells and Apache's doesn't, or not yet."""

BOOKIES_LACKING = {
    r"jvm_.*": "of Java's",
    r"bookie_bookie_(zk|watcher)_.*": "of Apache's client of ZooKeeper",
    r"bookie_add_entry(_sum|_count)?": "no threads take adds: the loop puts a run into the cache",
    r"bookkeeper_server_(WRITE_THREAD|BookieWriteThread|BookieHighPri)\w+": "the same",
    r"bookie_db_storage_thread_time": "no such thread",
    r"bookie_journal_JOURNAL_(FORCE_WRITE_ENQUEUE|MEMORY).*": "the thread that writes also syncs",
    r"bookie_JOURNAL_QUEUE_MAX_SIZE": "the queue is bounded by connections' bytes",
    r"bookkeeper_server_READ_ENTRY_(FENCE|LONG_POLL|LONG_POLL_PRE)_WAIT.*": "parts of a whole",
    r"bookie_(entries|read_cache|write_cache)_count": "a look at each entry would be needed",
    r"bookie_ENTRY_LOCATION_COMPACTION_TOTAL": "RocksDB compacts by itself",
    r"bookie_ledger_dir_.*": "named by the directory",
}
"""What Apache's bookie tells and ours doesn't (docs/decisions/0033)."""

BOOKIES_OWN = {
    r"geminga_.*": "what BookKeeper has no name for",
    r"bookie_ledger_dir_.*": "named by the directory",
    r"bookie_(read_entrylog_time|(rejected|throttled)_write_requests)": "Apache's tells them later",
}

ALL_AT_ONCE = r"bookie_throttled_write"
"""Our bookie holds adds back for all directories together, Apache's for each."""

THREADS = frozenset(("thread", "threadPool"))

FIXED = frozenset(
    (
        *("quantile", "le", "metric", "quota_type", "system_topic", "system_subscription"),
        *("success", "type", "status"),
    )
)
"""Labels whose values are the same at all brokers."""

_SAMPLE = re.compile(r"(?P<name>[\w:]+)(?:\{(?P<labels>.*)\})? \S+(?: \d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ENDS = ("_total", "_count", "_sum", "_bucket", "_created", "_info")


class Metric(NamedTuple):
    """What all samples of one name have in common."""

    kind: str
    labels: frozenset[frozenset[str]]
    """Sets of names of labels."""
    values: frozenset[tuple[str, str]]
    """Of labels that have fixed ones."""


def parsed(text: str) -> dict[str, Metric]:
    """By the samples' names. The text may have a metric's type under its name without an ending."""
    kinds: dict[str, str] = {}
    found: dict[str, list[dict[str, str]]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
        elif line and not line.startswith("#"):
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            found.setdefault(sample["name"], []).append(
                dict(_LABEL.findall(sample["labels"] or ""))
            )
    return {
        name: Metric(
            _kind(name, kinds),
            frozenset(frozenset(labels) for labels in samples),
            frozenset(pair for labels in samples for pair in labels.items() if pair[0] in FIXED),
        )
        for name, samples in found.items()
    }


def _kind(name: str, kinds: Mapping[str, str]) -> str:
    for end in ("", *_ENDS):
        if name.endswith(end) and (kind := kinds.get(name[: len(name) - len(end)])):
            return kind
    return "untyped"


def unexplained(names: set[str], table: Mapping[str, str]) -> list[str]:
    """Names that no pattern of the table explains."""
    return sorted(
        name for name in names if not any(re.fullmatch(pattern, name) for pattern in table)
    )


def unused(names: set[str], table: Mapping[str, str]) -> list[str]:
    """Patterns that explain nothing any more."""
    return [pattern for pattern in table if not any(re.fullmatch(pattern, name) for name in names)]


def get(url: str) -> str:
    """The page there."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def call(server: ServerProcess, method: str, path: str, body: object = None) -> None:
    """A call of the admin REST API."""
    request = urllib.request.Request(
        f"{server.web_url}/admin/v2/{path}",
        method=method,
        data=b"" if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def page_under_load(server: ServerProcess) -> str:
    """With topics of each kind, their producers and consumers."""
    call(server, "PUT", "persistent/public/default/split/partitions", 2)
    with closing(pulsar.Client(server.service_url)) as client:
        clients = []  # open until the page is made
        for name in ("persistent", "plain"), ("persistent", "split"), ("non-persistent", "passing"):
            topic = f"{name[0]}://public/default/{name[1]}"
            consumer = client.subscribe(topic, "sub", pulsar.ConsumerType.Shared)
            producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
            for number in range(20):
                producer.send(f"message {number}", partition_key=str(number % 3))
            for _ in range(10):
                consumer.acknowledge(consumer.receive(30_000))
            clients.append((consumer, producer))
        compaction = "persistent/public/default/plain/compaction"
        call(server, "PUT", compaction)
        # Figures of compaction are told of topics in which one has begun, behind the answer.
        wait_until(
            lambda: '"RUNNING"' not in get(f"{server.web_url}/admin/v2/{compaction}"),
            server.process,
            server.log_path,
            timeout_s=60,
        )
        call(server, "GET", "brokers/health")
        return get(f"{server.web_url}/metrics/")


@pytest.mark.parametrize("level", ["topics", "namespaces"])
def test_the_brokers_tell_the_same(level: str, tmp_path: Path) -> None:
    settings = {**SETTINGS, "exposeTopicLevelMetricsInPrometheus": str(level == "topics").lower()}
    pages: list[dict[str, Metric]] = []
    with skipped_without(APACHE):
        apache = start_apache(tmp_path / "work", settings=settings)
    try:
        pages.append(parsed(page_under_load(apache)))
    finally:
        apache.kill()
    ours = start_geminga(tmp_path / "data", settings=settings)
    try:
        pages.append(parsed(page_under_load(ours)))
    finally:
        ours.stop()
    apaches, found = pages
    lacking = apaches.keys() - found.keys()
    assert unexplained(lacking, LACKING) == []
    if level == "topics":
        assert unused(lacking, LACKING) == []
    assert unexplained(found.keys() - apaches.keys(), LATER) == []
    assert {name: metric for name, metric in found.items() if name in apaches} == {
        name: metric for name, metric in apaches.items() if name in found
    }


def test_the_brokers_tell_the_same_of_tokens_that_expire(tmp_path: Path) -> None:
    found: list[dict[str, Metric]] = []
    for kind in ("apache", "geminga"):
        keys = Keys(tmp_path / kind / "keys")
        server = start_broker(kind, tmp_path / kind, keys)
        try:
            request = urllib.request.Request(f"{server.web_url}/admin/v2/clusters")
            request.add_header("Authorization", f"Bearer {keys.token('admin', lasts_s=400)}")
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
            page = parsed(get(f"{server.web_url}/metrics/"))
        finally:
            server.kill()
        made = {f"pulsar_expiring_token_minutes_{end}" for end in ("bucket", "count", "sum")}
        found.append({name: page[name] for name in made})
    assert found[0] == found[1]


def as_one_pool(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Without labels of single threads, which our bookie doesn't tell apart."""
    return {
        name: metric._replace(labels=frozenset(each - THREADS for each in metric.labels))
        for name, metric in metrics.items()
    }


class Bookies(NamedTuple):
    """One of each, on the same ZooKeeper, and where they tell their metrics."""

    apache: ApacheBookie
    ours: OurBookie
    urls: tuple[str, str]


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[Bookies]:
    ports = free_port(), free_port()
    settings = {
        "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
        "prometheusStatsHttpEnable": "true",
        "prometheusStatsHttpAddress": "127.0.0.1",
        "prometheusStatsHttpPort": str(ports[0]),
        "enableTaskExecutionStats": "true",
    }
    with skipped_without(BOOKIE):
        apache = start_bookie(tmp_path / "apache", settings)
    web = {"httpServerHost": "127.0.0.1", "httpServerPort": str(ports[1])}
    ours = OurBookie(tmp_path / "ours", apache.zookeeper, {"httpServerEnabled": "true", **web})
    try:
        ours.start()
        ours.wait()
        urls = [f"http://127.0.0.1:{port}/metrics" for port in ports]
        yield Bookies(apache, ours, (urls[0], urls[1]))
    finally:
        ours.kill()
        apache.kill()


async def load_bookie(port_number: int) -> None:
    """Some of each request."""
    options = RemoteOptions(add_timeout_s=30, read_timeout_s=30, connect_timeout_s=30)
    async with open_remote("b", "127.0.0.1", port_number, options) as port:
        await add(port, 1, range(50))
        await read_all(port, 1, 0, 19)
        with pytest.raises(BookkeeperError):
            await port.read(1, 99, entries_max=1, bytes_max=1)
        await port.read_lac(1)
        await write_lac(port, 1, 3)
        await port.force(1)
        await port.info()
        await port.fence(1, KEY)


async def test_the_bookies_tell_the_same(bookies: Bookies) -> None:
    for bookie in (bookies.apache, bookies.ours):
        await load_bookie(bookie.port)
    apaches, found = (as_one_pool(parsed(get(url))) for url in bookies.urls)
    lacking = apaches.keys() - found.keys()
    assert unexplained(lacking, BOOKIES_LACKING) == []
    assert unused(lacking, BOOKIES_LACKING) == []
    assert unexplained(found.keys() - apaches.keys(), BOOKIES_OWN) == []
    shared = {name for name in found.keys() & apaches.keys() if not re.match(ALL_AT_ONCE, name)}
    assert {name: found[name] for name in shared} == {name: apaches[name] for name in shared}


def test_a_new_difference_is_found() -> None:
    """Of the comparison itself."""
    text = '# TYPE pulsar_a summary\npulsar_a{quantile="0.5",cluster="x"} 1.0\npulsar_a_sum 3 17\n'
    found = parsed(text)
    assert found["pulsar_a"].kind == found["pulsar_a_sum"].kind == "summary"
    assert found["pulsar_a"].values == {("quantile", "0.5")}
    assert found["pulsar_a"].labels == {frozenset(("quantile", "cluster"))}
    assert found["pulsar_a"] != parsed(text.replace("0.5", "0.50"))["pulsar_a"]
    assert found["pulsar_a"] != parsed(text.replace("summary", "gauge"))["pulsar_a"]
    assert unexplained({"pulsar_a", "jvm_a"}, {"jvm_.*": ""}) == ["pulsar_a"]
    assert unused({"pulsar_a"}, {"jvm_.*": "", "pulsar_.*": ""}) == ["jvm_.*"]
