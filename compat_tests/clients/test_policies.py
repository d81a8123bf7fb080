"""Policies of topics and namespaces as the official client meets them, on our server and on
Apache's.
"""

from __future__ import annotations

import time
import urllib.error
import uuid
from collections.abc import Callable
from typing import Any

import pulsar
import pytest
from pulsar import ConsumerType

import geminga
import geminga.blocking
from compat_tests.clients.conftest import (
    Peer,
    assert_nothing_more,
    new_client,
    numbered,
    receive,
    send_all,
    texts,
)

SETTLED_S = 60.0


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def wait_for(condition: Callable[[], bool]) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + SETTLED_S
    while not condition():
        assert time.monotonic() < deadline, "did not come to be"
        time.sleep(0.05)


def made(peer: Peer, name: str, subscription: str | None = None) -> str:
    topic = peer.topic(name)
    peer.admin("PUT", path_of(topic))
    if subscription is not None:
        peer.admin("PUT", f"{path_of(topic)}/subscription/{subscription}")
    return topic


def set_policy(peer: Peer, topic: str, policy: str, value: object) -> None:
    """Set a policy of the topic and wait until it is told; Apache's broker reads it from its
    system topic.
    """
    path = f"{path_of(topic)}/{policy}"
    peer.admin("POST", path, value)
    wait_for(lambda: peer.admin("GET", path) is not None)
    time.sleep(0.5 if peer.server.kind == "apache" else 0)


def set_quota(peer: Peer, topic: str, **quota: Any) -> None:
    path = path_of(topic)
    peer.admin("POST", f"{path}/backlogQuota", quota)
    wait_for(lambda: peer.admin("GET", f"{path}/backlogQuotaMap") != {})


def status(peer: Peer, method: str, path: str) -> int:
    """Of the answer, refused or not."""
    try:
        peer.admin(method, path)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    return 204


def stats(peer: Peer, topic: str) -> Any:
    return peer.admin("GET", f"{path_of(topic)}/stats")


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", pulsar.ProducerBlockedQuotaExceededError),
        ("producer_exception", pulsar.ProducerBlockedQuotaExceededException),
    ],
)
def test_backlog_above_its_quota_closes_producers(
    peer: Peer, policy: str, error: type[Exception]
) -> None:
    topic = made(peer, "quota", "sub")
    set_quota(peer, topic, limitSize=5000, policy=policy)
    producer = peer.producer(topic)
    send_all(producer, ["x" * 1000] * 5)
    told = stats(peer, topic)
    assert told["backlogQuotaLimitSize"] == 5000
    assert told["backlogSize"] == told["subscriptions"]["sub"]["backlogSize"] > 5000
    wait_for(lambda: stats(peer, topic)["publishers"] == [])
    with pytest.raises(error):
        peer.producer(topic)
    peer.admin("POST", f"{path_of(topic)}/subscription/sub/skip/2")
    again = peer.producer(topic)
    again.send(b"y")
    again.close()
    if policy == "producer_exception":
        producer.close()


def test_backlog_above_its_quota_is_evicted(peer: Peer) -> None:
    topic = made(peer, "evicted", "sub")
    set_quota(peer, topic, limitSize=5000, policy="consumer_backlog_eviction")
    send_all(peer.producer(topic), ["x" * 1000] * 12)
    wait_for(lambda: stats(peer, topic)["backlogSize"] < 5500)
    told = stats(peer, topic)
    assert 4 <= told["subscriptions"]["sub"]["msgBacklog"] <= 5
    assert len(told["publishers"]) == 1


def test_limits_of_a_topic(peer: Peer) -> None:
    topic = made(peer, "limits", "one")
    set_policy(peer, topic, "maxProducers", 1)
    set_policy(peer, topic, "maxSubscriptionsPerTopic", 1)
    set_policy(peer, topic, "maxConsumersPerSubscription", 1)
    peer.producer(topic)
    with pytest.raises(pulsar.ProducerBusy):
        peer.producer(topic)
    with pytest.raises(pulsar.PulsarException):
        peer.consumer(topic, subscription="two")
    peer.consumer(topic, ConsumerType.Shared, subscription="one")
    with pytest.raises(pulsar.ConsumerBusy):
        peer.consumer(topic, ConsumerType.Shared, subscription="one")
    peer.admin("DELETE", f"{path_of(topic)}/maxConsumersPerSubscription")
    set_policy(peer, topic, "maxConsumers", 1)
    with pytest.raises(pulsar.ConsumerBusy):
        peer.consumer(topic, ConsumerType.Shared, subscription="one")


def test_subscription_types_of_a_topic(peer: Peer) -> None:
    topic = made(peer, "types")
    set_policy(peer, topic, "subscriptionTypesEnabled", ["Shared"])
    with pytest.raises(pulsar.PulsarException):
        peer.consumer(topic, ConsumerType.Exclusive)
    peer.consumer(topic, ConsumerType.Shared)


def test_messages_above_a_topic_s_size_are_refused(peer: Peer) -> None:
    topic = made(peer, "size", "sub")
    set_policy(peer, topic, "maxMessageSize", 1000)
    # The official Python client sends it again and again, whatever the refusal says.
    with geminga.blocking.connect(peer.server.service_url) as client:
        producer = client.create_producer(topic)
        producer.send(b"x" * 500)
        with pytest.raises(geminga.NotAllowedError):
            producer.send(b"x" * 2000)
        producer.send(b"y")
    assert stats(peer, topic)["subscriptions"]["sub"]["msgBacklog"] == 2


def test_subscriptions_are_not_made_by_themselves(peer: Peer) -> None:
    topic = made(peer, "auto", "known")
    set_policy(peer, topic, "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    with (
        geminga.blocking.connect(peer.server.service_url) as client,
        pytest.raises(geminga.SubscriptionNotFoundError),
    ):
        client.subscribe(topic, "unknown")
    peer.consumer(topic, subscription="known")


def test_a_consumer_may_subscribe_so_often(peer: Peer) -> None:
    topic = made(peer, "rate", "sub")
    rate = {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 60}
    set_policy(peer, topic, "subscribeRate", rate)
    for turn in range(3):
        # Each client counts its consumers from zero, so that all are the same consumer.
        client = new_client(peer.server)
        try:
            if turn < 2:
                client.subscribe(topic, "sub", consumer_name="c")
            else:
                with pytest.raises(pulsar.PulsarException):
                    client.subscribe(topic, "sub", consumer_name="c")
        finally:
            client.close()


def test_unacknowledged_limits_change_under_a_consumer(peer: Peer) -> None:
    topic = made(peer, "unacked", "sub")
    set_policy(peer, topic, "maxUnackedMessagesOnConsumer", 5)
    consumer = peer.consumer(topic, ConsumerType.Shared)
    send_all(peer.producer(topic), numbered("", 0, 20))
    assert texts(receive(consumer, 5)) == numbered("", 0, 5)
    assert_nothing_more(consumer)
    peer.admin("DELETE", f"{path_of(topic)}/maxUnackedMessagesOnConsumer")
    if peer.server.kind == "apache":
        return  # it looks at the limit again when something is acknowledged
    assert texts(receive(consumer, 15)) == numbered("", 5, 20)


def test_delivery_is_not_delayed_where_that_is_switched_off(peer: Peer) -> None:
    topic = made(peer, "delay", "sub")
    set_policy(peer, topic, "delayedDelivery", {"active": False, "tickTime": 1000})
    consumer = peer.consumer(topic, ConsumerType.Shared)
    send_all(peer.producer(topic), ["now"], deliver_at=int(time.time() * 1000) + 60_000)
    assert texts(receive(consumer, 1)) == ["now"]


def test_dispatch_is_held_to_a_topic_s_rate(peer: Peer) -> None:
    topic = made(peer, "slow", "sub")
    rate = {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 1}
    set_policy(peer, topic, "dispatchRate", rate)
    send_all(peer.producer(topic), numbered("", 0, 40))
    began = time.monotonic()
    consumer = peer.consumer(topic, ConsumerType.Shared)
    assert texts(receive(consumer, 40)) == numbered("", 0, 40)
    assert 1.5 < time.monotonic() - began < 30


def test_limits_of_a_namespace(peer: Peer) -> None:
    tenant = f"limited-{uuid.uuid4().hex[:8]}"
    namespace = f"{tenant}/n"
    peer.admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"]})
    peer.admin("PUT", f"namespaces/{namespace}")
    topic = f"persistent://{namespace}/t"
    peer.admin("PUT", path_of(topic))
    peer.admin("POST", f"namespaces/{namespace}/maxProducersPerTopic", 1)
    peer.admin("POST", f"namespaces/{namespace}/maxTopicsPerNamespace", 2)
    first = peer.producer(topic)

    def is_busy() -> bool:
        try:
            peer.producer(topic).close()
        except pulsar.ProducerBusy:
            return True
        return False

    wait_for(is_busy)  # Apache's broker takes the policy a moment later
    first.close()
    peer.producer(f"persistent://{namespace}/u")
    assert status(peer, "PUT", f"persistent/{namespace}/v") >= 400


def test_truncate_leaves_nothing_behind(peer: Peer) -> None:
    topic = made(peer, "cut", "sub")
    producer = peer.producer(topic)
    send_all(producer, numbered("old", 0, 10))
    peer.admin("DELETE", f"{path_of(topic)}/truncate")
    wait_for(lambda: stats(peer, topic)["subscriptions"]["sub"]["msgBacklog"] == 0)
    if peer.server.kind == "geminga":  # Apache's broker keeps the ledger that it writes to
        wait_for(lambda: stats(peer, topic)["storageSize"] == 0)
    send_all(producer, ["new"])
    assert texts(receive(peer.consumer(topic), 1)) == ["new"]


def test_forced_deletion_of_what_is_in_use(peer: Peer) -> None:
    topic = made(peer, "forced", "sub")
    peer.consumer(topic, ConsumerType.Shared)
    path = path_of(topic)
    assert status(peer, "DELETE", f"{path}/subscription/sub") == 412
    peer.admin("DELETE", f"{path}/subscription/sub?force=true")

    def is_back() -> bool:
        """The consumer comes back and makes the subscription anew."""
        found = stats(peer, topic)["subscriptions"].get("sub")
        return found is not None and len(found["consumers"]) == 1

    wait_for(is_back)
    peer.producer(topic)
    assert status(peer, "DELETE", path) == 412
    peer.admin("DELETE", f"{path}?force=true")


def test_unsubscribing_by_force(peer: Peer) -> None:
    topic = made(peer, "unsubscribed")
    with geminga.blocking.connect(peer.server.service_url) as client:
        shared = geminga.ConsumerType.SHARED
        first, second = (client.subscribe(topic, "s", consumer_type=shared) for _ in range(2))
        with pytest.raises(geminga.BrokerError):
            first.unsubscribe()
        wait_for(lambda: len(stats(peer, topic)["subscriptions"]["s"]["consumers"]) == 2)
        second.unsubscribe(force=True)
        # The other comes back, to a subscription that is made anew.
        producer = client.create_producer(topic)

        def arrives() -> bool:
            producer.send(b"new")
            try:
                return first.receive(timeout_s=0.5).data == b"new"
            except geminga.OperationTimeoutError:
                return False

        wait_for(arrives)


def test_our_client_names_a_quota(peer: Peer) -> None:
    topic = made(peer, "named", "sub")
    set_quota(peer, topic, limitSize=100, policy="producer_exception")
    peer.producer(topic).send(b"x" * 200)
    # It tries again for as long as an operation may take.
    with (
        geminga.blocking.connect(peer.server.service_url, operation_timeout_s=4) as client,
        pytest.raises(geminga.QuotaExceededError),
    ):
        client.create_producer(topic)


def test_truncating_takes_what_retention_and_deduplication_keep(peer: Peer) -> None:
    topic = made(peer, "truncated", "sub")
    set_policy(peer, topic, "deduplicationEnabled", True)
    keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    set_policy(peer, topic, "retention", keep)
    producer = peer.producer(topic)
    send_all(producer, numbered("m", 0, 10))
    producer.close()
    # A new ledger is begun: Apache's broker never deletes the open one.
    peer.admin("PUT", f"{path_of(topic)}/unload")
    stats = f"{path_of(topic)}/internalStats"
    wait_for(lambda: peer.admin("GET", stats)["numberOfEntries"] == 10)
    peer.admin("DELETE", f"{path_of(topic)}/truncate")
    wait_for(lambda: peer.admin("GET", stats)["numberOfEntries"] == 0)
    assert peer.admin("GET", f"{path_of(topic)}/stats")["subscriptions"]["sub"]["msgBacklog"] == 0
