"""Load balancing in a cluster of our broker and Apache's: each leads for a while, reads what the
other one reports, and gives it bundles (spec CL-07, CL-08, CL-16).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from compat_tests.apache.cluster import running_cluster
from compat_tests.apache.fleet import Fleet, fleet_of
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import ROOT

pytestmark = pytest.mark.java

OURS, APACHES = 0, 1
NAMESPACE = "public/spread"
TOPICS = [f"persistent://{NAMESPACE}/t{number}" for number in range(24)]
SETTINGS = {
    "metadataStoreSessionTimeoutMillis": "5000",
    "zooKeeperSessionTimeoutMillis": "5000",
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "loadBalancerReportUpdateThresholdPercentage": "0",
    "loadBalancerEnabled": "true",
    "statsUpdateFrequencyInSecs": "1",
    "statsUpdateInitialDelayInSecs": "1",
    # How busy the machine is doesn't matter here.
    "loadBalancerCPUResourceWeight": "0",
    "loadBalancerBandwidthInResourceWeight": "0",
    "loadBalancerBandwidthOutResourceWeight": "0",
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("balance")
    with (
        skipped_without(APACHE),
        running_cluster(folder, 2, ours=2) as cluster,
        fleet_of(cluster, 2, SETTINGS) as found,
    ):
        yield found


def _owners(fleet: Fleet, asked: int) -> Counter[int]:
    """How many topics each broker serves."""
    return Counter(fleet.owner(topic, asked) for topic in TOPICS)


def _monitored(fleet: Fleet) -> dict[str, dict[str, float]]:
    """What `geminga perf monitor-brokers` shows."""
    assert fleet.keeper is not None
    host = ",".join(f"{host}:{port}" for host, port in fleet.keeper.hosts)
    command = [sys.executable, "-m", "geminga.cli", "perf", "monitor-brokers"]
    done = subprocess.run(
        [*command, "--connect-string", host, "--json", "--once"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=60,
    )
    told = json.loads(done.stdout)
    leader = fleet.leader()
    assert leader is not None
    assert told["leader"] == fleet.seats[leader].broker_id
    found: dict[str, dict[str, float]] = told["brokers"]
    return found


def test_each_gives_the_other_its_part(fleet: Fleet) -> None:
    fleet.start(OURS)
    fleet.start(APACHES, apache=True)
    assert fleet.leader() == OURS
    fleet.until(lambda: len(fleet.registered()) == 2)
    fleet.rest(OURS, "PUT", f"/admin/v2/namespaces/{NAMESPACE}", {"bundles": {"numBundles": 8}})
    for topic in TOPICS:
        fleet.rest(OURS, "PUT", f"/admin/v2/{topic.replace('://', '/')}")
    by_us = _owners(fleet, OURS)
    assert min(by_us[OURS], by_us[APACHES]) >= 3, by_us
    assert _owners(fleet, APACHES) == by_us

    # The topics are loaded, so both report them; our leader has read Apache's report.
    ids = [seat.broker_id for seat in fleet.seats]
    fleet.until(lambda: all(_monitored(fleet)[each]["bundles"] for each in ids))
    shown = _monitored(fleet)
    assert all(shown[each]["max_percent"] <= 100 for each in ids)

    # Now Apache's broker leads.
    fleet.stop(OURS)
    fleet.until(lambda: fleet.leader() == APACHES)
    fleet.start(OURS)
    fleet.until(lambda: len(fleet.registered()) == 2)
    by_apache = Counter[int]()

    def has_given() -> bool:
        # It gives nothing to a broker that has just come, whose report it hasn't read yet.
        fleet.rest(APACHES, "PUT", f"/admin/v2/namespaces/{NAMESPACE}/unload")
        by_apache.clear()
        by_apache.update(_owners(fleet, APACHES))
        return min(by_apache[OURS], by_apache[APACHES]) >= 3

    fleet.until(has_given)
    assert _owners(fleet, OURS) == by_apache
    log = fleet.servers[APACHES].log_path.read_text()
    assert "Error reading broker data" not in log
    assert "can't be read" not in fleet.servers[OURS].log_path.read_text()
