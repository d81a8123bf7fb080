"""Groups of bookies that the admin API sets, through our proxy: a namespace's new ledgers get those
bookies, on our broker with registered bookies of ours in a real ZooKeeper (spec BK-25).
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pulsar
import pytest
from kazoo.client import KazooClient

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.missing import ZOOKEEPER, skipped_without
from compat_tests.processes import ROOT, spawn, wait_until
from geminga_bookie.client.metadata_store import decode
from geminga_protocol.bookkeeper import paths

pytestmark = pytest.mark.java

ONE = {
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
}
WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("affinity")
    with skipped_without(ZOOKEEPER), running_cluster(folder, 3, ours=3) as found:
        yield found


class Admin:
    """The admin API, and the ledgers' metadata in ZooKeeper."""

    def __init__(self, web_url: str, keeper: KazooClient) -> None:
        self._web_url = web_url
        self._keeper = keeper

    def call(self, method: str, path: str, body: object = None) -> object:
        request = urllib.request.Request(
            f"{self._web_url}/admin/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def bookies_of(self, topic: str) -> set[str]:
        """Those of the topic's last ledger."""
        stats = self.call("GET", f"{topic.replace('://', '/')}/internalStats")
        assert isinstance(stats, dict)
        ledger_id = stats["ledgers"][-1]["ledgerId"]
        value, _ = self._keeper.get(paths.ledger(ledger_id, paths.Layout.HYBRID))
        return {each for one in decode(ledger_id, value).ensembles.values() for each in one}


@contextmanager
def proxied(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Our proxy's web URL."""
    log = folder / "proxy.log"
    command = [sys.executable, "-m", "geminga.cli", "proxy", "--service-port", "0"]
    options = ["--metadata-store", cluster.zookeeper.url, "--web-port", "0", "--host", "127.0.0.1"]
    process = spawn([*command, *options], log_path=log, cwd=ROOT)
    try:
        wait_until(lambda: b"ready in" in log.read_bytes(), process, log, timeout_s=WAIT_S)
        yield re.findall(r"http://127\.0\.0\.1:\d+", log.read_text())[0]
    finally:
        process.kill()
        process.wait()


@contextmanager
def world(cluster: Cluster, folder: Path) -> Iterator[tuple[Admin, pulsar.Client]]:
    with ExitStack() as stack:
        server = cluster.start_ours(ONE)
        stack.callback(server.kill)
        web_url = stack.enter_context(proxied(cluster, folder))
        keeper = KazooClient(f"127.0.0.1:{cluster.zookeeper.port}")
        keeper.start()
        stack.callback(keeper.close)
        stack.callback(keeper.stop)
        client = pulsar.Client(cluster.url, operation_timeout_seconds=int(WAIT_S))
        stack.callback(client.close)
        yield Admin(web_url, keeper), client


def on_next_ledgers(admin: Admin, client: pulsar.Client, prefix: str, wanted: set[str]) -> None:
    """The broker hears of new racks a moment after they are set: from some topic on all ledgers
    are where they should be.
    """
    deadline = time.monotonic() + WAIT_S
    number = 0
    in_a_row = 0
    while in_a_row < 8:
        topic = f"{prefix}-{number}"
        client.create_producer(topic).close()
        in_a_row = in_a_row + 1 if admin.bookies_of(topic) <= wanted else 0
        number += 1
        assert time.monotonic() < deadline, (admin.bookies_of(topic), wanted)


def test_groups_that_are_set_count_for_new_ledgers(cluster: Cluster, tmp_path: Path) -> None:
    with world(cluster, tmp_path) as (admin, client):
        told = admin.call("GET", "bookies/all")
        assert isinstance(told, dict)
        red, blue, free = sorted(each["bookieId"] for each in told["bookies"])
        admin.call("PUT", "namespaces/public/shop")
        for bookie, group in ((red, "red"), (blue, "blue")):
            path = f"bookies/racks-info/{bookie}?group={group}"
            admin.call("POST", path, {"rack": f"/{group}", "hostname": "h"})
        affinity = "namespaces/public/shop/persistence/bookieAffinity"
        shop = "persistent://public/shop"
        for turn, (group, bookie) in enumerate((("red", red), ("blue", blue), ("red", red))):
            admin.call("POST", affinity, {"bookkeeperAffinityGroupPrimary": group})
            on_next_ledgers(admin, client, f"{shop}/{group}-{turn}", {bookie})
        moved = f"{shop}/red-0-0"
        admin.call("POST", affinity, {"bookkeeperAffinityGroupPrimary": "blue"})
        admin.call("PUT", f"{moved.replace('://', '/')}/unload")
        client.create_producer(moved).close()
        assert admin.bookies_of(moved) == {blue}
        admin.call("POST", f"bookies/racks-info/{free}?group=blue", {"rack": "/free"})
        admin.call("DELETE", f"bookies/racks-info/{blue}")
        on_next_ledgers(admin, client, f"{shop}/moved", {free})
        admin.call("DELETE", affinity)
        found: set[str] = set()
        for number in range(60):
            client.create_producer(f"{shop}/any-{number}").close()
            found |= admin.bookies_of(f"{shop}/any-{number}")
        assert found == {red, blue, free}
