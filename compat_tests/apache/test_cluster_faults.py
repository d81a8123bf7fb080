"""Our broker on three of our bookies and a real ZooKeeper, with the official Python client: what is
killed, stopped or away meanwhile loses no receipt, and every receipt is read again in order.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pulsar
import pytest
from kazoo.client import KazooClient

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.apache.receipts import PAUSE_S
from compat_tests.missing import ZOOKEEPER, skipped_without
from compat_tests.processes import (
    ROOT,
    ServerProcess,
    free_port,
    spawn,
    wait_until,
)

pytestmark = pytest.mark.java

SESSION_MS = 3000
SETTINGS = {
    "metadataStoreSessionTimeoutMillis": str(SESSION_MS),
    "bookkeeperClientTimeoutInSeconds": "3",
}
SMALL = {
    **SETTINGS,
    "managedLedgerMaxEntriesPerLedger": "20",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
WAIT_S = 60.0
LAST_S = 10.0
"""For the message that is under way at the end."""
_topics = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with skipped_without(ZOOKEEPER), running_cluster(folder, 3, ours=3) as found:
        yield found


class Writer:
    """Sends one message after the other until it is told to stop; failed ones are not counted."""

    def __init__(self, url: str) -> None:
        self.topic = f"persistent://public/default/faults-{next(_topics)}"
        self.receipts: list[int] = []
        self.failures: list[str] = []
        self._client = pulsar.Client(url, operation_timeout_seconds=int(WAIT_S))
        self._client.subscribe(self.topic, "s").close()
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = self._client.create_producer(self.topic, send_timeout_millis=int(WAIT_S * 1000))
        for number in count():
            if self._stop.is_set():
                return
            try:
                producer.send(b"%d" % number)
            except pulsar.PulsarException as error:
                self.failures.append(str(error))
                continue
            with self._moved:
                self.receipts.append(number)
                self._moved.notify_all()
            self._stop.wait(PAUSE_S)

    def wait_more(self, messages: int = 50) -> None:
        """Until so many more have their receipts."""
        wanted = len(self.receipts) + messages
        with self._moved:
            came = self._moved.wait_for(lambda: len(self.receipts) >= wanted, WAIT_S)
        assert came, (len(self.receipts), wanted, self.failures[-3:])

    def finish(self) -> None:
        """What has no receipt soon is given up."""
        if not self._stop.is_set():
            self._stop.set()
            # A message that is under way while its client is closed may never be answered.
            self._thread.join(LAST_S)
            self._client.close()
            self._thread.join(WAIT_S)


@contextmanager
def writing(cluster: Cluster) -> Iterator[Writer]:
    """At the end every receipt is read again, in order."""
    writer = Writer(cluster.url)
    try:
        writer.wait_more()
        yield writer
        writer.wait_more()
    finally:
        writer.finish()
    found = numbers(cluster, writer.topic, writer.receipts)
    assert found == sorted(found)


def numbers(cluster: Cluster, topic: str, wanted: list[int]) -> list[int]:
    """What is read until all that is wanted has come, each where it came first."""
    client = pulsar.Client(cluster.url, operation_timeout_seconds=int(WAIT_S))
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        missing, found = set(wanted), dict[int, None]()
        while missing:
            number = int(reader.read_next(timeout_millis=int(WAIT_S * 1000)).data())
            found.setdefault(number)
            missing.discard(number)
        return [*found]
    finally:
        client.close()


@contextmanager
def serving(cluster: Cluster, settings: Mapping[str, str] = SETTINGS) -> Iterator[ServerProcess]:
    """Our broker, once the bookies that the test before left without a session are back."""
    server = cluster.start_ours(settings)
    try:
        subscribed_at_last(cluster.url)
        yield server
    finally:
        server.kill()


def test_bookies_killed_and_stopped(cluster: Cluster) -> None:
    """One after the other: with two of three left nothing waits for longer than a moment."""
    with serving(cluster), writing(cluster) as writer:
        for bookie in cluster.bookies:
            assert isinstance(bookie, OurBookie)
            bookie.signal(signal.SIGSTOP)
            writer.wait_more()
            bookie.signal(signal.SIGCONT)
            bookie.kill()
            writer.wait_more()
            bookie.start()
            bookie.wait()
            writer.wait_more()


def test_zookeeper_away(cluster: Cluster) -> None:
    """Stopped for longer than its sessions live, then killed: loaded topics go on meanwhile."""
    with serving(cluster), writing(cluster) as writer:
        cluster.zookeeper.pause()
        began = time.monotonic()
        while time.monotonic() < began + SESSION_MS / 1000 + 2:
            writer.wait_more()
        cluster.zookeeper.resume()
        writer.wait_more()
        cluster.zookeeper.kill()
        writer.wait_more()
        cluster.zookeeper.start()
        writer.wait_more()
        assert writer.failures == []
        subscribed_at_last(cluster.url)  # a new topic, once there are a session and bookies again


def test_rollovers_and_deletions_wait_for_zookeeper(cluster: Cluster) -> None:
    """Ledgers that are full stay open while it is away; a deletion is not begun."""
    topic, other = (f"persistent://public/default/{each}-{next(_topics)}" for each in "ab")
    with serving(cluster, SMALL) as server:
        client = pulsar.Client(cluster.url, operation_timeout_seconds=int(WAIT_S))
        try:
            for each in (topic, other):
                client.subscribe(each, "s").close()
            publish(cluster.url, other, range(30))
            producer = client.create_producer(topic, send_timeout_millis=int(WAIT_S * 1000))
            for number in range(30):
                producer.send(b"%d" % number)
            assert len(before := ledgers(server, topic)) == 2
            cluster.zookeeper.kill()
            assert http_status(server, "DELETE", other) >= 500  # the session has ended by now
            for number in range(30, 230):
                producer.send(b"%d" % number)
            cluster.zookeeper.start()
            wait_for(server, lambda: http_status(server, "GET", other, "/stats") == 200)
            assert len(ledgers(server, topic)) <= len(before) + 1
            for number in range(230, 300):
                producer.send(b"%d" % number)
            assert len(ledgers(server, topic)) >= len(before) + 3
        finally:
            client.close()
    with serving(cluster):
        assert numbers(cluster, topic, [*range(300)]) == [*range(300)]
        assert numbers(cluster, other, [*range(30)]) == [*range(30)]


def test_a_rollover_under_way_waits_for_zookeeper(cluster: Cluster) -> None:
    """It can't be taken back: publishes wait for it."""
    with serving(cluster, SMALL) as server, writing(cluster) as writer:
        others = [f"persistent://public/default/other-{next(_topics)}" for _ in range(3)]
        for other in others:
            publish(cluster.url, other, range(1))
        for other in others:
            cluster.zookeeper.pause()
            assert http_status(server, "DELETE", other) >= 500  # the session has ended by now
            cluster.zookeeper.resume()
            writer.wait_more(60)
        assert writer.failures == []


def test_policies_that_another_process_changes(cluster: Cluster) -> None:
    """What the broker remembers of the metadata store is that of now."""
    store = KazooClient(f"127.0.0.1:{cluster.zookeeper.port}")
    store.start()
    try:
        with serving(cluster) as server:
            url = f"{server.web_url}/admin/v2/namespaces/public/default/messageTTL"
            for seconds in (10, 20):
                value, stat = store.get("/admin/policies/public/default")
                changed = {**json.loads(value), "message_ttl_in_seconds": seconds}
                text = json.dumps(changed).encode()
                store.set("/admin/policies/public/default", text, stat.version)

                def is_seen(wanted: int = seconds) -> bool:
                    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
                        return bool(answer.read() == b"%d" % wanted)  # empty: unset as yet

                wait_for(server, is_seen)
    finally:
        store.stop()
        store.close()


def ledgers(server: ServerProcess, topic: str) -> list[int]:
    """Those of the log."""
    url = f"{server.web_url}/admin/v2/{topic.replace('://', '/')}/internalStats"
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        return [each["ledgerId"] for each in json.load(answer)["ledgers"]]


def http_status(server: ServerProcess, method: str, topic: str, rest: str = "") -> int:
    """Of one admin call, 503 if it isn't answered in time."""
    url = f"{server.web_url}/admin/v2/{topic.replace('://', '/')}{rest}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as done:
            return int(done.status)
    except urllib.error.HTTPError as error:
        return error.code
    except TimeoutError:
        return 503


def wait_for(server: ServerProcess, condition: Callable[[], bool]) -> None:
    wait_until(condition, server.process, server.log_path, timeout_s=WAIT_S)


def subscribed_at_last(url: str) -> None:
    """The official client doesn't come back to a consumer whose first attempt was refused, so that
    each attempt is a new client's.
    """
    deadline = time.monotonic() + WAIT_S
    while True:
        client = pulsar.Client(url, operation_timeout_seconds=3)
        try:
            client.subscribe(f"persistent://public/default/faults-{next(_topics)}", "s")
        except pulsar.PulsarException:
            assert time.monotonic() < deadline
        else:
            return
        finally:
            client.close()


def test_a_proxy_finds_its_broker_in_zookeeper(cluster: Cluster, tmp_path: Path) -> None:
    """Also one that comes later, or comes again elsewhere."""
    log = tmp_path / "proxy.log"
    command = [sys.executable, "-m", "geminga.cli", "proxy", "--service-port", "0"]
    options = ["--metadata-store", cluster.zookeeper.url, "--web-port", "0", "--host", "127.0.0.1"]
    process = spawn([*command, *options], log_path=log, cwd=ROOT)
    try:
        wait_until(lambda: b"ready in" in log.read_bytes(), process, log, timeout_s=WAIT_S)
        (url,) = re.findall(r"pulsar://127\.0\.0\.1:\d+", log.read_text())
        ports = cluster.ports
        for first in (0, 50):
            with serving(cluster) as server:
                publish(url, "persistent://public/default/proxied", range(first, first + 50))
                server.stop()
            cluster.ports = free_port(), free_port()
        cluster.ports = ports
    finally:
        process.kill()
        process.wait()


def publish(url: str, topic: str, found: range) -> None:
    """Each has its receipt."""
    client = pulsar.Client(url, operation_timeout_seconds=int(WAIT_S))
    try:
        producer = client.create_producer(topic)
        for number in found:
            producer.send(b"%d" % number)
    finally:
        client.close()
