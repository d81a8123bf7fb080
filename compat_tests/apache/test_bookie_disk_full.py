"""The disk of one of our bookies is full, by other files, while the official client publishes: the
bookie turns read-only and is replaced, nothing is lost, and with room again it takes new ledgers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.apache.our_bookie import OurBookie
from compat_tests.apache.receipts import WAIT_S, Publisher, check_in_order, ledger_entries
from compat_tests.faults.conftest import small_disk as small_disk
from compat_tests.missing import ZOOKEEPER, skipped_without
from compat_tests.processes import wait_until
from geminga_bookie.client.metadata_store import decode
from geminga_protocol.bookkeeper import paths

pytestmark = [pytest.mark.java, pytest.mark.slow]

DISK = {"diskUsageThreshold": "0.95", "diskCheckInterval": "200"}
TWO = {
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
}
TOPICS_MAX = 40


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two bookies with room."""
    with ExitStack() as stack:
        with skipped_without(ZOOKEEPER):
            found = stack.enter_context(running_cluster(tmp_path, 2, ours=2))
        yield found


@pytest.fixture
def keeper(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def small(cluster: Cluster, small_disk: Path) -> Iterator[OurBookie]:
    """A third one, with little."""
    bookie = OurBookie(small_disk / "bookie", cluster.zookeeper, DISK)
    bookie.start()
    try:
        bookie.wait()
        yield bookie
    finally:
        bookie.kill()


def members(keeper: KazooClient, ledger_id: int) -> tuple[str, ...]:
    """The bookies that a ledger's next entries go to."""
    value, _ = keeper.get(paths.ledger(ledger_id, paths.Layout.HYBRID))
    ensembles = decode(ledger_id, value).ensembles
    return ensembles[max(ensembles)]


def publisher_on(cluster: Cluster, keeper: KazooClient, small: OurBookie) -> Publisher:
    """Of a topic whose ledger the small bookie has."""
    for _ in range(TOPICS_MAX):
        publisher = Publisher(cluster.url)
        publisher.wait_more()
        if small.bookie_id in members(keeper, publisher.ledger_id):
            return publisher
        publisher.finish()
    raise AssertionError("no ledger is on that bookie")


def fill(disk: Path) -> Path:
    """All that is left of it; deletion of the file makes room."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


def test_full_disk(
    cluster: Cluster, keeper: KazooClient, small: OurBookie, small_disk: Path, tmp_path: Path
) -> None:
    def until_in(parent: str) -> None:
        path = f"{parent}/{small.bookie_id}"
        assert small.process is not None
        wait_until(lambda: bool(keeper.exists(path)), small.process, small.log, timeout_s=WAIT_S)

    def check(publisher: Publisher) -> None:
        check_in_order(cluster.url, publisher.topic, publisher.receipts)
        apaches.check(publisher.receipts)

    with (
        ledger_entries(cluster.zookeeper.address, tmp_path / "apache.log") as apaches,
        ExitStack() as stack,
    ):
        server = cluster.start_ours(TWO)
        stack.callback(server.kill)
        publisher = publisher_on(cluster, keeper, small)
        stack.callback(publisher.finish)
        filler = fill(small_disk)
        until_in(paths.readonly())
        wait_until(
            lambda: small.bookie_id not in members(keeper, publisher.ledger_id),
            server.process,
            server.log_path,
            timeout_s=WAIT_S,
        )
        publisher.wait_more()
        assert publisher.failures == []
        other = Publisher(cluster.url)
        stack.callback(other.finish)
        other.wait_more()
        assert small.bookie_id not in members(keeper, other.ledger_id)
        publisher.finish()
        check(publisher)
        filler.unlink()
        until_in(paths.available())
        small.kill()
        small.start()
        small.wait()
        cluster.bookies[0].kill()  # what it had is read from the others
        check(publisher)
        last = publisher_on(cluster, keeper, small)
        last.finish()
        assert last.failures == []
        check(last)
