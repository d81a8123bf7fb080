"""A broker of ours and one of Apache's in one ZooKeeper share a namespace: who leads, looks up and
owns may be either, and bundles go from one to the other under load (CL-16).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from compat_tests.apache.cluster import running_cluster
from compat_tests.apache.fleet import Fleet, Json, fleet_of
from compat_tests.apache.traffic import JavaTraffic, PythonTraffic, java_traffic, python_traffic
from compat_tests.missing import APACHE, skipped_without
from geminga_bookie.client.metadata_store import decode
from geminga_protocol.bookkeeper import paths

pytestmark = pytest.mark.java

SETTINGS = {
    "metadataStoreSessionTimeoutMillis": "5000",
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
    "brokerDeduplicationEnabled": "true",
    "loadBalancerEnabled": "true",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "loadBalancerReportUpdateThresholdPercentage": "1",
    "statsUpdateFrequencyInSecs": "1",
    "statsUpdateInitialDelayInSecs": "1",
}
OURS, APACHES = 0, 1
DERIVED = {"maxResourceUsage"}
"""Members that Apache's broker writes, and works out anew when it reads."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("both")
    with skipped_without(APACHE), ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(folder, 2, ours=2))
        found = stack.enter_context(fleet_of(cluster, 2, SETTINGS))
        found.start(OURS)
        found.start(APACHES, apache=True)
        yield found


def test_bundles_go_both_ways_whoever_leads(fleet: Fleet, tmp_path: Path) -> None:
    with (
        python_traffic(fleet.url, topics=2) as python,
        java_traffic(fleet.url, tmp_path / "java.log") as java,
    ):
        for leader in (OURS, APACHES):
            assert fleet.leader() == leader
            move_all(fleet, python, java)
            compare_records(fleet, java.topics[0])
            if leader == OURS:
                fleet.stop(OURS)
                fleet.until(lambda: fleet.leader() == APACHES)
                java.more()
                python.more()
                fleet.start(OURS)
        fleet.until(lambda: fleet.all_wait(java.alone))
        assert python.end() > 0
        assert java.end() > 0


def move_all(fleet: Fleet, python: PythonTraffic, java: JavaTraffic) -> None:
    """Each bundle to the other broker, by a call to either of them; then back."""
    for asked in (APACHES, OURS):
        for topic in java.topics:
            assert fleet.owner(topic, OURS) == fleet.owner(topic, APACHES)
        after = {bundle: 1 - owner for bundle, owner in fleet.bundles(java.topics).items()}
        for bundle, owner in after.items():
            fleet.unload(bundle, owner, asked)
            java.more(5)
        python.more(5)
        # Clients' lookups come in between: whoever leads knows by then where the bundle goes.
        assert fleet.bundles(java.topics) == after, (fleet.leader(), asked)


def compare_records(fleet: Fleet, topic: str) -> None:
    """What either writes to ZooKeeper has the same members, of the same kinds."""
    ((bundle, owner),) = fleet.bundles([topic]).items()
    reports = {}
    for number in (owner, 1 - owner):
        seat = fleet.seats[number]
        web_url = f"http://{seat.broker_id}"
        if number != owner:
            fleet.unload(bundle, number, asked=number)
        fleet.until(
            lambda seat=seat, web_url=web_url: (
                fleet.record(f"/namespace/public/default/{bundle}")
                == {
                    "nativeUrl": seat.url,
                    "httpUrl": web_url,
                    "disabled": False,
                    "advertisedListeners": {},
                }
            )
        )
        path = f"/loadbalance/brokers/{seat.broker_id}"
        fleet.until(lambda path=path: bool(fleet.record(path)["lastStats"]))
        reports[number] = fleet.record(path)
        assert reports[number]["pulsarServiceUrl"] == seat.url
        assert reports[number]["webServiceUrl"] == web_url
        if fleet.leader() == number:
            leader = {"brokerId": seat.broker_id, "serviceUrl": web_url}
            assert fleet.record("/loadbalance/leader") == leader
    assert kinds(reports[OURS]) == kinds(reports[APACHES])


def kinds(record: Mapping[str, object]) -> Json:
    """The members that are set, and what they are; of the load of bundles one for all."""
    found: Json = {}
    for name, value in record.items():
        if name == "lastStats":
            assert isinstance(value, dict)
            found[name] = [kinds(each) for each in [*value.values()][:1]]
        elif isinstance(value, dict):
            found[name] = kinds(value)
        elif value is not None and name not in DERIVED:
            found[name] = type(value)
    return found


NAMESPACE = "/admin/v2/namespaces/public/default"
NARROW: Json = {
    "bookkeeperEnsemble": 1,
    "bookkeeperWriteQuorum": 1,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 5.0,
}


def quorums(fleet: Fleet, topic: str) -> tuple[int, int, int]:
    """Of a new topic's ledger."""
    owner = fleet.owner(topic)
    path = f"/admin/v2/{topic.replace('://', '/')}"
    fleet.rest(owner, "PUT", path)
    stats = fleet.rest(owner, "GET", f"{path}/internalStats")
    assert isinstance(stats, dict)
    ledger_id = stats["ledgers"][-1]["ledgerId"]
    assert fleet.keeper is not None
    value, _ = fleet.keeper.get(paths.ledger(ledger_id, paths.Layout.HYBRID))
    found = decode(ledger_id, value)
    return found.ensemble_size, found.write_quorum, found.ack_quorum


def new_topics(fleet: Fleet, name: str) -> list[str]:
    """One at each broker."""
    found = []
    for owner in (OURS, APACHES):
        topic = f"persistent://public/default/{name}-{owner}"
        ((bundle, now),) = fleet.bundles([topic]).items()
        if now != owner:
            fleet.unload(bundle, owner, asked=now)
        fleet.until(lambda topic=topic, owner=owner: fleet.owner(topic) == owner)
        found.append(topic)
    return found


def test_what_either_sets_for_a_namespace_holds_at_both(fleet: Fleet) -> None:
    """Copies of new ledgers; and either writes the namespace's record as the other one does."""
    written: list[object] = []
    for setter in (OURS, APACHES):
        fleet.rest(setter, "POST", f"{NAMESPACE}/persistence", NARROW)
        fleet.rest(setter, "PUT", f"{NAMESPACE}/property/a/b")
        fleet.rest(setter, "PUT", f"{NAMESPACE}/offloadThreshold", 10)
        record = fleet.record("/admin/policies/public/default")
        # Apache's broker writes what holds without it, once somebody has read the policies.
        record.pop("is_allow_auto_update_schema", None)
        written.append(record)  # whose members stand in the order in which Java finds methods
        for asked in (OURS, APACHES):
            fleet.until(
                lambda asked=asked: fleet.rest(asked, "GET", f"{NAMESPACE}/persistence") == NARROW
            )
        for topic in new_topics(fleet, f"narrow-{setter}"):
            assert quorums(fleet, topic) == (1, 1, 1), topic
        fleet.rest(setter, "DELETE", f"{NAMESPACE}/persistence")
        for asked in (OURS, APACHES):
            fleet.until(
                lambda asked=asked: fleet.rest(asked, "GET", f"{NAMESPACE}/persistence") is None
            )
        for topic in new_topics(fleet, f"wide-{setter}"):
            assert quorums(fleet, topic) == (2, 2, 2), topic
    assert written[OURS] == written[APACHES]
