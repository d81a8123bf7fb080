"""Policies of topics in `__change_events`: a broker of ours and one of Apache's in a cluster. Each
reads what the other has written, whoever owns the topic, and keeps to it (BR-60).
"""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pulsar
import pytest

from compat_tests.apache.cluster import running_cluster
from compat_tests.apache.fleet import Fleet, fleet_of
from compat_tests.missing import ZOOKEEPER, skipped_without
from geminga_broker.change_events.avro_schema import EVENT_TEXT

pytestmark = pytest.mark.java

SETTINGS = {
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "defaultNumberOfNamespaceBundles": "4",
    "loadBalancerEnabled": "true",
    # The other broker's start takes all of a processor: that is not to count as its load.
    "loadBalancerBrokerOverloadedThresholdPercentage": "1000",
    "forceDeleteNamespaceAllowed": "true",
}
OURS, APACHES = 0, 1
VALUES: dict[str, object] = {
    "maxProducers": 2,
    "maxConsumers": 3,
    "maxConsumersPerSubscription": 4,
    "maxSubscriptionsPerTopic": 5,
    "maxUnackedMessagesOnConsumer": 6,
    "maxUnackedMessagesOnSubscription": 7,
    "deduplicationEnabled": True,
    "deduplicationSnapshotInterval": 8,
    "publishRate": {"publishThrottlingRateInMsg": 900, "publishThrottlingRateInByte": 90_000},
    "dispatchRate": {
        "dispatchThrottlingRateInMsg": 10,
        "dispatchThrottlingRateInByte": 1 << 40,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 2,
    },
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 11, "ratePeriodInSecond": 12},
    "compactionThreshold": 1 << 33,
    "delayedDelivery": {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 13},
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 14,
        "deleteWhileInactive": True,
    },
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
    "maxMessageSize": 1500,
    "subscriptionTypesEnabled": ["Shared"],
    "retention": {"retentionTimeInMinutes": 15, "retentionSizeInMB": 16},
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("policies")
    with skipped_without(ZOOKEEPER), ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(folder, 1, ours=1))
        fleet = stack.enter_context(fleet_of(cluster, 2, SETTINGS))
        fleet.start(OURS)
        fleet.start(APACHES, apache=True)
        fleet.until(lambda: len(fleet.registered()) == 2)
        yield fleet


@pytest.mark.parametrize(("writer", "reader"), [(OURS, APACHES), (APACHES, OURS)])
def test_each_reads_what_the_other_has_written(fleet: Fleet, writer: int, reader: int) -> None:
    # The one who writes owns the topic, so that the call is not sent on.
    topic = topics_of(fleet, f"public/by{writer}")[writer]

    def read(asked: int, path: str) -> object:
        return comparable(fleet.rest(asked, "GET", f"{at(topic)}/{path}"))

    every = {**VALUES, "messageTTL": 17}
    for path, value in every.items():
        if path == "messageTTL":
            fleet.rest(writer, "POST", f"{at(topic)}/messageTTL?messageTTL=17")
        else:
            fleet.rest(writer, "POST", f"{at(topic)}/{path}", value)
        if writer == APACHES:
            # It knows what it has written once it has read the event. What is set before that is
            # set in the policies of before.
            fleet.until(lambda path=path, value=value: read(writer, path) == value)
    assert {path: read(writer, path) for path in every} == every
    # At its new owner: it has read the events, and keeps to them.
    move(fleet, topic, reader)
    fleet.until(lambda: read(reader, "messageTTL") == 17)
    assert {path: read(reader, path) for path in every} == every
    with closing(pulsar.Client(fleet.seats[reader].url)) as client:
        producers = [client.create_producer(topic) for _ in range(2)]
        with pytest.raises(pulsar.ProducerBusy):
            client.create_producer(topic)
        for producer in producers:
            producer.close()
    # Removed by the other one.
    fleet.rest(reader, "DELETE", f"{at(topic)}/maxProducers")
    fleet.until(lambda: read(reader, "maxProducers") is None)
    move(fleet, topic, writer)
    fleet.until(lambda: read(writer, "maxProducers") is None)
    assert read(writer, "maxConsumers") == 3


@pytest.mark.parametrize(("deleter", "other"), [(OURS, APACHES), (APACHES, OURS)])
def test_policies_go_with_the_topic_whoever_deletes_it(
    fleet: Fleet, deleter: int, other: int
) -> None:
    topic = topics_of(fleet, f"public/gone{deleter}")[deleter]
    of_all = f"{at(topic)}/maxConsumers?isGlobal=true"
    fleet.rest(deleter, "POST", f"{at(topic)}/maxProducers", 1)
    fleet.rest(deleter, "POST", of_all, 2)
    if deleter == APACHES:
        fleet.until(lambda: fleet.rest(deleter, "GET", of_all) == 2)  # once it has read the event
    assert fleet.rest(deleter, "GET", of_all) == 2
    move(fleet, topic, other)
    fleet.until(lambda: fleet.rest(other, "GET", of_all) == 2)
    move(fleet, topic, deleter)
    fleet.rest(deleter, "DELETE", f"{at(topic)}?force=true")
    fleet.rest(deleter, "PUT", at(topic))
    move(fleet, topic, other)
    fleet.until(lambda: fleet.rest(other, "GET", f"{at(topic)}/maxProducers") is None)
    fleet.until(lambda: fleet.rest(other, "GET", of_all) is None)


def test_there_is_one_schema(fleet: Fleet) -> None:
    """Both register it to the byte, so that neither makes a version of its own."""
    namespace = "public/by0"
    path = f"/admin/v2/schemas/{namespace}/__change_events"
    for number in (OURS, APACHES):
        found = fleet.rest(number, "GET", f"{path}/schema")
        assert isinstance(found, dict)
        assert found["version"] == 0
        data = json.loads(str(found["data"]))
        assert data == json.loads(EVENT_TEXT)


def test_a_namespace_with_policies_is_deleted_as_an_empty_one(fleet: Fleet) -> None:
    """By Apache's broker, as long as it has bundles of it: it refuses calls of ours, once the
    namespace is marked.
    """
    namespace = "public/empty"
    topics = topics_of(fleet, namespace)
    fleet.rest(OURS, "POST", f"{at(topics[OURS])}/maxProducers", 1)
    with pytest.raises(urllib.error.HTTPError) as refused:
        fleet.rest(APACHES, "DELETE", f"/admin/v2/namespaces/{namespace}")
    assert refused.value.code == 409
    refused.value.close()
    for each in topics.values():
        fleet.rest(APACHES, "DELETE", f"{at(each)}?force=true")
    # Each broker hears of what the other one has deleted a moment later.
    fleet.until(lambda: fleet.rest(APACHES, "GET", f"/admin/v2/persistent/{namespace}") == [])
    fleet.rest(APACHES, "DELETE", f"/admin/v2/namespaces/{namespace}")
    fleet.until(lambda: namespace not in namespaces(fleet, OURS))
    assert fleet.keeper is not None
    assert not fleet.keeper.exists(f"/managed-ledgers/{namespace}/persistent/__change_events")


def namespaces(fleet: Fleet, asked: int) -> list[str]:
    """Those that this broker tells of."""
    found = fleet.rest(asked, "GET", "/admin/v2/namespaces/public")
    assert isinstance(found, list)
    return found


def topics_of(fleet: Fleet, namespace: str) -> dict[int, str]:
    """A topic for each broker, which owns it, in a new namespace."""
    fleet.rest(OURS, "PUT", f"/admin/v2/namespaces/{namespace}", {"bundles": {"numBundles": 8}})
    found: dict[int, str] = {}
    for number in range(100):
        topic = f"persistent://{namespace}/t{number}"
        owner = fleet.owner(topic)
        if owner not in found:
            fleet.rest(OURS, "PUT", at(topic))
            found[owner] = topic
        if len(found) == 2:
            return found
    raise AssertionError("one broker owns everything")


def move(fleet: Fleet, topic: str, to: int) -> None:
    """Move the topic's bundle to that broker."""
    path = f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle"
    bundle = str(fleet.rest(OURS, "GET", path, as_text=True))
    namespace = topic.partition("://")[2].rpartition("/")[0]
    owner = fleet.owner(topic)
    if owner != to:
        where = f"/admin/v2/namespaces/{namespace}/{bundle}/unload"
        fleet.rest(owner, "PUT", f"{where}?destinationBroker={fleet.seats[to].broker_id}")
    fleet.until(lambda: fleet.owner(topic) == to)


def at(topic: str) -> str:
    """The path of the topic's calls."""
    return f"/admin/v2/{topic.replace('://', '/')}"


def comparable(answer: object) -> object:
    """An answer, with lists in order."""
    return sorted(answer) if isinstance(answer, list) else answer
