"""Three of our brokers on two of our bookies and a real ZooKeeper. The official Python and Java
clients send and receive while brokers are killed, paused, unloaded and restarted: nothing is lost,
and nothing is in a log twice or out of order (CL-04 to CL-13).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pulsar
import pytest

from compat_tests.apache.cluster import running_cluster
from compat_tests.apache.fleet import Fleet, ask, fleet_of
from compat_tests.apache.receipts import Publisher
from compat_tests.apache.traffic import (
    JavaTraffic,
    PythonTraffic,
    java_traffic,
    numbers,
    python_traffic,
)
from compat_tests.missing import ZOOKEEPER, skipped_without
from compat_tests.processes import ROOT, spawn, wait_until

pytestmark = pytest.mark.java

SESSION_S = 3.0
SETTINGS = {
    "metadataStoreSessionTimeoutMillis": str(int(SESSION_S * 1000)),
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
    "brokerDeduplicationEnabled": "true",
}
BROKERS = range(3)
SPACE = "/admin/v2/namespaces/public/default"
FAILOVER_S = SESSION_S + 3
SECOND = 1_000_000
"""The second publisher's first number."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("brokers")
    with skipped_without(ZOOKEEPER), ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(folder, 2, ours=2))
        fleet = stack.enter_context(fleet_of(cluster, len(BROKERS), SETTINGS))
        fleet.start(*BROKERS)
        yield fleet


@pytest.fixture
def fleet(running: Fleet) -> Fleet:
    """All three run, and have a session."""
    running.start(*(number for number in BROKERS if number not in running.servers))
    running.until(lambda: len(running.registered()) == len(BROKERS))
    return running


@contextmanager
def java(fleet: Fleet, folder: Path, url: str = "") -> Iterator[JavaTraffic]:
    """When the block ends it must go on, and then nothing may be lost."""
    with java_traffic(url or fleet.url, folder / "java.log") as traffic:
        traffic.more()
        yield traffic
        traffic.more()
        fleet.until(lambda: fleet.all_wait(traffic.alone))
        assert traffic.end() > 0


@contextmanager
def python(fleet: Fleet) -> Iterator[PythonTraffic]:
    """The same."""
    with python_traffic(fleet.url) as traffic:
        traffic.more()
        yield traffic
        traffic.more()
        assert traffic.end() > 0


def test_a_broker_is_paused_for_longer_than_its_session(fleet: Fleet) -> None:
    """Once it goes on, it confirms nothing that the next owner doesn't have, and its idle consumers
    go there, too.
    """
    with closing(pulsar.Client(fleet.url, operation_timeout_seconds=60)) as client:
        publisher = Publisher(fleet.url)
        publisher.wait_more()
        owner = fleet.owner(publisher.topic)
        alone = [f"persistent://public/default/alone-{number}" for number in range(8)]
        consumers = [client.subscribe(topic, "s") for topic in alone]
        alone = fleet.owned(alone).get(owner, [])
        asked = (owner + 1) % len(BROKERS)
        fleet.pause(owner)
        try:
            fleet.until(lambda: fleet.seats[owner].broker_id not in fleet.registered())
            fleet.until(lambda: fleet.owner(publisher.topic, asked) != owner)
            before = len(publisher.receipts)
            successor = Publisher(fleet.seats[asked].url, publisher.topic, begin=SECOND)
            successor.wait_more()
            assert len(publisher.receipts) == before
        finally:
            fleet.resume(owner)
        publisher.wait_more()
        successor.wait_more()
        # Without a session it answers no lookups, and may be the one who is asked.
        fleet.until(lambda: fleet.seats[owner].broker_id in fleet.registered())
        assert fleet.owner(publisher.topic) != owner
        fleet.until(lambda: fleet.all_wait(alone))
        for each in (publisher, successor):
            each.finish()
            assert each.failures == []
        found = numbers(client, publisher.topic)
        own = [number for number in found if number < SECOND]
        theirs = [number for number in found if number >= SECOND]
        for each, of_one in ((publisher, own), (successor, theirs)):
            assert of_one == sorted(set(of_one))
            assert each.receipts.keys() <= set(of_one)
        assert len(consumers) == 8


def test_bundles_are_unloaded(fleet: Fleet, tmp_path: Path) -> None:
    """Each goes twice to the next broker, whichever is asked."""
    with python(fleet) as other, java(fleet, tmp_path) as clients:
        topics = [*clients.topics, *clients.alone]
        for turn in range(2):
            found = fleet.bundles(topics)
            after = {bundle: (owner + 1) % len(BROKERS) for bundle, owner in found.items()}
            for bundle, owner in after.items():
                fleet.unload(bundle, owner, asked=turn)
                clients.more(5)
            other.more()
            assert fleet.bundles(topics) == after


def test_all_brokers_are_restarted(fleet: Fleet, tmp_path: Path) -> None:
    """One after the other. The Java client is behind a proxy, which finds them in ZooKeeper, also
    those that come again, and sends calls of the admin API to any of them.
    """
    with (
        proxied(fleet, tmp_path) as (url, web_url),
        python(fleet) as other,
        java(fleet, tmp_path, url) as clients,
    ):
        for number in BROKERS:
            fleet.stop(number)
            clients.more()
            other.more()
            fleet.start(number)
        for topic in clients.topics:
            stats = ask(web_url, "GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
            assert isinstance(stats, dict)
            assert len(stats["publishers"]) == 1


@contextmanager
def proxied(fleet: Fleet, folder: Path) -> Iterator[tuple[str, str]]:
    """URLs of our proxy, until the block ends."""
    log = folder / "proxy.log"
    command = [sys.executable, "-m", "geminga.cli", "proxy", "--host", "127.0.0.1"]
    options = ["--service-port", "0", "--web-port", "0"]
    store = ["--metadata-store", fleet.seats[0].zookeeper.url]
    process = spawn([*command, *options, *store], log_path=log, cwd=ROOT)
    try:
        wait_until(lambda: b"ready in" in log.read_bytes(), process, log, timeout_s=60)
        (url,) = re.findall(r"pulsar://127\.0\.0\.1:\d+", log.read_text())
        (web_url,) = re.findall(r"http://127\.0\.0\.1:\d+", log.read_text())
        yield url, web_url
    finally:
        process.kill()
        process.wait()


def test_a_broker_is_cut_off_from_zookeeper(fleet: Fleet, tmp_path: Path) -> None:
    """But from no client: it stops serving before another one may begin, and comes back."""
    with java(fleet, tmp_path) as clients:
        cut = fleet.owner(clients.topics[0])
        seat, link = fleet.seats[cut], fleet.links[cut]
        link.hold()
        try:
            fleet.until(lambda: seat.broker_id not in fleet.registered())
            clients.more()
        finally:
            link.release()
        fleet.until(lambda: seat.broker_id in fleet.registered())


def test_zookeeper_is_slow(fleet: Fleet, tmp_path: Path) -> None:
    """Half a second for each answer; a broker that dies is replaced all the same."""
    with java(fleet, tmp_path) as clients:
        for link in fleet.links:
            link.delay(0.5)
        try:
            clients.more()
            fleet.kill(fleet.owner(clients.topics[0]))
            clients.more()
        finally:
            for link in fleet.links:
                link.delay(0)


def test_zookeeper_is_away(fleet: Fleet, tmp_path: Path) -> None:
    """For longer than the sessions: no broker knows whether another one serves its topics, so that
    all wait; then all goes on.
    """
    zookeeper = fleet.seats[0].zookeeper
    with java(fleet, tmp_path) as clients:
        began = time.monotonic()
        zookeeper.kill()
        time.sleep(max(0.0, began + SESSION_S + 1 - time.monotonic()))
        zookeeper.start()
        clients.more()


def test_the_leader_dies_while_bundles_are_split_and_unloaded(fleet: Fleet, tmp_path: Path) -> None:
    """Each bundle is whole or split, and has an owner, whatever was under way."""
    with java(fleet, tmp_path) as clients:
        topics = [*clients.topics, *clients.alone]
        leader = fleet.leader()
        assert leader is not None
        before = boundaries(fleet)
        asked = (leader + 1) % len(BROKERS)
        found = fleet.bundles(topics)

        def change(bundle: str) -> None:
            with suppress(OSError, HTTPException):  # nobody answers for the one that dies
                fleet.rest(asked, "PUT", f"{SPACE}/{bundle}/split?unload=true")
                fleet.unload(bundle, asked, asked=asked)

        with ThreadPoolExecutor(len(found)) as pool:
            running = [pool.submit(change, bundle) for bundle in found]
            fleet.until(lambda: boundaries(fleet, asked) != before)  # one is split, others are not
            fleet.kill(leader)
            wait(running)
        clients.more()
        # What has a consumer only may be the dead one's for as long as its session lives.
        fleet.until(lambda: fleet.seats[leader].broker_id not in fleet.registered())
        after = boundaries(fleet)
        assert after == sorted(set(after))
        assert set(before) < set(after)
        assert fleet.owned(topics).keys() <= fleet.servers.keys()
        fleet.until(lambda: fleet.leader() in fleet.servers)


def boundaries(fleet: Fleet, asked: int | None = None) -> list[str]:
    """Those of the namespace's bundles."""
    number = next(iter(fleet.servers)) if asked is None else asked
    found = fleet.rest(number, "GET", f"{SPACE}/bundles")
    assert isinstance(found, dict)
    return list(found["boundaries"])


@pytest.mark.alone
def test_brokers_are_killed_and_stopped(fleet: Fleet, tmp_path: Path) -> None:
    """Others serve the topics of one that died as soon as its session has ended, and of one that is
    stopped at once. The last one leads alone. The Java client knows that one alone: its waits
    between attempts would be counted for each address at which nobody answers.
    """
    leader = fleet.leader()
    assert leader is not None
    last, second = ((leader + step) % len(BROKERS) for step in (1, 2))
    url = fleet.seats[last].url
    with python(fleet) as other, java(fleet, tmp_path, url) as clients:
        fleet.kill(leader)
        assert clients.more() < FAILOVER_S
        for bundle in fleet.bundles(clients.topics):
            fleet.unload(bundle, second, asked=last)
        clients.more()
        fleet.stop(second)
        assert clients.more() < SESSION_S
        fleet.until(lambda: [fleet.leader()] == [*fleet.servers])
        other.more()
