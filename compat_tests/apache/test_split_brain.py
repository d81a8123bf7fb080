"""A broker that is stopped past its session and goes on when the other kind of broker has its
topics: one of ours and one of Apache's, either of them stopped. What it still has in its buffers,
publishes and acknowledgements of before, changes nothing; its clients move; nothing that was
confirmed is lost (CL-04, CL-13, CL-16).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from urllib.error import HTTPError

import pulsar
import pytest

from compat_tests.apache.cluster import running_cluster
from compat_tests.apache.fleet import Fleet, fleet_of
from compat_tests.apache.receipts import Publisher, Unanswered
from compat_tests.apache.traffic import numbers
from compat_tests.missing import APACHE, skipped_without

pytestmark = pytest.mark.java

SETTINGS = {
    "metadataStoreSessionTimeoutMillis": "6000",
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
    "brokerDeduplicationEnabled": "true",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
}
OURS, APACHES = 0, 1
SECOND = 1_000_000
"""The first number of the publisher at the next owner."""
ACKED, LATE = 10, 30
"""So many messages are acknowledged before the stop, and while the broker is stopped."""
WAIT_MS = 30_000
LOADED = "it is being loaded"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("split")
    with skipped_without(APACHE), ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(folder, 2, ours=2))
        found = stack.enter_context(fleet_of(cluster, 2, SETTINGS))
        found.start(APACHES, apache=True)
        found.start(OURS)
        yield found


@pytest.mark.parametrize("stopped", [OURS, APACHES], ids=["ours", "apaches"])
def test_it_goes_on_when_the_other_one_has_its_topic(fleet: Fleet, stopped: int) -> None:
    # Of Apache's broker a message is now and then not answered while a consumer is connected to the
    # topic that it has lost: seen once in some hundred runs, so it may be so once.
    assert went_on(fleet, stopped) or (stopped == APACHES and went_on(fleet, stopped))


def went_on(fleet: Fleet, stopped: int) -> bool:
    """False if what was sent to the stopped broker is not answered once it goes on."""
    other, gone = 1 - stopped, fleet.seats[stopped].broker_id
    fleet.until(lambda: len(fleet.registered()) == 2)
    publisher = Publisher(fleet.url)
    topic = publisher.topic
    bundle = moved_to(fleet, topic, stopped)
    publisher.wait_more()
    with (
        closing(pulsar.Client(fleet.url, operation_timeout_seconds=60)) as stale,
        closing(pulsar.Client(fleet.seats[other].url, operation_timeout_seconds=60)) as fresh,
    ):
        consumer = stale.subscribe(
            topic,
            "acks",
            pulsar.ConsumerType.Failover,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        taken = [consumer.receive(WAIT_MS) for _ in range(LATE)]
        before = cursor(fleet, topic, stopped)
        consumer.acknowledge_cumulative(taken[ACKED - 1])
        last = taken[ACKED - 1].message_id()
        place = f"{last.ledger_id()}:{last.entry_id()}"
        fleet.until(lambda: acknowledged(fleet, topic, stopped) == place)
        # Either broker stores it within a second, as an entry of the cursor's ledger.
        fleet.until(lambda: stored(cursor(fleet, topic, stopped)) != stored(before))
        fleet.pause(stopped)
        try:
            consumer.acknowledge_cumulative(taken[-1])  # waits in the broker's buffers, with a SEND
            fleet.until(lambda: gone not in fleet.registered())
            fleet.until(lambda: not fleet.record(f"/namespace/{bundle}"))
            fleet.until(lambda: is_served(fresh, topic))
            confirmed = len(publisher.receipts)
            successor = Publisher(fleet.seats[other].url, topic, begin=SECOND)
            successor.wait_more()
            assert fleet.owner(topic, other) == other
            assert len(publisher.receipts) == confirmed
        finally:
            fleet.resume(stopped)
        try:
            publisher.wait_more()
        except Unanswered:
            publisher.finish()
            successor.finish()
            return False
        successor.wait_more()
        fleet.until(lambda: gone in fleet.registered())
        fleet.until(lambda: fleet.consumers(topic, "acks") == 1)
        assert {fleet.owner(topic, asked) for asked in (OURS, APACHES)} == {other}
        assert acknowledged(fleet, topic, other) == place
        moved_to(fleet, topic, stopped)
        fleet.until(lambda: acknowledged(fleet, topic, stopped) != LOADED)
        assert acknowledged(fleet, topic, stopped) == place, "so it is stored"
        publisher.wait_more()
        check_log(fresh, publisher, successor)
    return True


def moved_to(fleet: Fleet, topic: str, number: int) -> str:
    """The topic's bundle, once that broker owns it."""

    def is_there() -> bool:
        ((bundle, owner),) = fleet.bundles([topic]).items()
        if owner != number:
            # Apache's leader places it by load while it hasn't read the report of a new broker.
            fleet.unload(bundle, number, asked=number)
        return owner == number

    fleet.until(is_there)
    ((bundle, _owner),) = fleet.bundles([topic]).items()
    return f"public/default/{bundle}"


def acknowledged(fleet: Fleet, topic: str, asked: int) -> str:
    """Up to where the subscription's messages are, as ledger:entry."""
    try:
        return str(cursor(fleet, topic, asked)["markDeletePosition"])
    except HTTPError as error:
        error.close()
        return LOADED


def cursor(fleet: Fleet, topic: str, asked: int) -> Mapping[str, object]:
    """What the broker says of the subscription's cursor. Raises HTTPError."""
    found = fleet.rest(asked, "GET", f"/admin/v2/{topic.replace('://', '/')}/internalStats")
    assert isinstance(found, dict)
    told: Mapping[str, object] = found["cursors"]["acks"]
    return told


def stored(told: Mapping[str, object]) -> tuple[object, object]:
    """The last entry that a cursor has written."""
    return told["cursorLedger"], told["cursorLedgerLastEntry"]


def is_served(client: pulsar.Client, topic: str) -> bool:
    """The next owner refuses, until it knows that the last one has gone."""
    try:
        client.subscribe(topic, "s").close()
    except pulsar.PulsarException:
        return False
    return True


def check_log(client: pulsar.Client, *publishers: Publisher) -> None:
    """The log has each one's messages once and in order, all that were confirmed among them."""
    for each in publishers:
        each.finish()
        assert each.failures == []
    found = numbers(client, publishers[0].topic)
    own = [number for number in found if number < SECOND]
    theirs = [number for number in found if number >= SECOND]
    for publisher, of_one in zip(publishers, (own, theirs), strict=True):
        assert of_one == sorted(set(of_one))
        assert publisher.receipts.keys() <= set(of_one)
