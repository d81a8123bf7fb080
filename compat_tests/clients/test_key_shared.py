"""Key_Shared as an operator sees it: ranges, draining hashes (PIP-379), overlaps refused."""

from __future__ import annotations

import time
from typing import Any

import pulsar
import pytest

from compat_tests.clients.conftest import PATIENCE_S, Peer, receive

KIND = pulsar.ConsumerType.KeyShared
DRAINING = ("drainingHashesCount", "drainingHashesUnackedMessages", "drainingHashesClearedTotal")


def subscription(peer: Peer, topic: str) -> Any:
    """What its statistics say."""
    return peer.admin("GET", topic.replace("://", "/") + "/stats")["subscriptions"]["sub"]


def of_consumers(peer: Peer, topic: str) -> dict[str, Any]:
    """Statistics of its consumers by name."""
    return {each["consumerName"]: each for each in subscription(peer, topic)["consumers"]}


def draining_of_a(peer: Peer, topic: str) -> Any:
    """The hashes that the consumer called a still holds."""
    return of_consumers(peer, topic)["a"]["drainingHashes"]


def counts(told: Any) -> tuple[int, ...]:
    """Hashes that drain, what is unacknowledged of them, and how many are done."""
    return tuple(told[name] for name in DRAINING)


def settled(peer: Peer, topic: str, expected: tuple[int, ...]) -> Any:
    """The subscription's statistics, when these counts have come or time is over."""
    deadline = time.monotonic() + PATIENCE_S
    while counts(told := subscription(peer, topic)) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return told


def test_hashes_that_drain_are_told(peer: Peer) -> None:
    topic = peer.topic("draining")
    first = peer.consumer(topic, KIND, consumer_name="a")
    producer = peer.producer(topic, batching_enabled=False)
    for number in range(40):
        producer.send(b"x", partition_key=f"k{number % 20}")
    taken = receive(first, 40)
    told = of_consumers(peer, topic)["a"]
    assert told["keyHashRangeArrays"] == [[1, 65535]]
    assert told["drainingHashes"] == []
    second = peer.consumer(topic, KIND, consumer_name="b")
    told = settled(peer, topic, (6, 12, 0))
    assert counts(told) == (6, 12, 0)
    assert told["keySharedMode"] == "AUTO_SPLIT"
    assert told["allowOutOfOrderDelivery"] is False
    by_name = {each["consumerName"]: each for each in told["consumers"]}
    assert by_name["a"]["keyHashRangeArrays"][:2] == [[79, 403], [638, 1535]]
    assert by_name["b"]["keyHashRangeArrays"][:2] == [[1, 78], [404, 637]]
    assert by_name["b"]["drainingHashes"] == []
    hashes = [17916, 19813, 47285, 51489, 55295, 57529]
    assert by_name["a"]["drainingHashes"] == [
        {"hash": each, "unackMsgs": 2, "blockedAttempts": 0} for each in hashes
    ]
    for number in range(20):
        producer.send(b"y", partition_key=f"k{number}")
    later = receive(first, 14)
    with pytest.raises(pulsar.Timeout):
        second.receive(500)
    deadline = time.monotonic() + PATIENCE_S
    while not all(each["blockedAttempts"] > 0 for each in draining_of_a(peer, topic)):
        assert time.monotonic() < deadline, draining_of_a(peer, topic)
        time.sleep(0.05)
    for message in taken[:20]:
        first.acknowledge(message)
    assert counts(settled(peer, topic, (6, 6, 0))) == (6, 6, 0)
    for message in [*taken[20:], *later]:
        first.acknowledge(message)
    assert len(receive(second, 6)) == 6
    assert counts(settled(peer, topic, (0, 0, 6))) == (0, 0, 6)
    assert counts(of_consumers(peer, topic)["a"]) == (0, 0, 6)
    first.close()
    second.close()


def sticky(*ranges: tuple[int, int]) -> pulsar.ConsumerKeySharedPolicy:
    """The policy of a consumer that takes these ranges."""
    mode = pulsar.KeySharedMode.Sticky
    return pulsar.ConsumerKeySharedPolicy(key_shared_mode=mode, sticky_ranges=list(ranges))


def test_ranges_that_overlap_are_refused(peer: Peer) -> None:
    topic = peer.topic("sticky")
    peer.consumer(topic, KIND, consumer_name="a", key_shared_policy=sticky((0, 100), (200, 300)))
    for taken in ((50, 150), (100, 100), (300, 400), (0, 65535)):
        with pytest.raises(pulsar.PulsarException, match="ConsumerAssignError"):
            peer.consumer(topic, KIND, key_shared_policy=sticky(taken))
    peer.consumer(topic, KIND, consumer_name="b", key_shared_policy=sticky((101, 199)))
    with pytest.raises(pulsar.ConsumerBusy):
        peer.consumer(topic, KIND)
    told = of_consumers(peer, topic)
    assert told["a"]["keyHashRangeArrays"] == [[0, 100], [200, 300]]
    assert told["b"]["keyHashRangeArrays"] == [[101, 199]]
    assert "drainingHashes" not in told["a"]
    assert subscription(peer, topic)["keySharedMode"] == "STICKY"


def test_fields_of_a_consumer_depend_on_its_type(peer: Peer) -> None:
    names = {}
    for kind in (KIND, pulsar.ConsumerType.Shared, pulsar.ConsumerType.Exclusive):
        topic = peer.topic("fields")
        peer.consumer(topic, kind, consumer_name="a")
        names[kind] = frozenset(of_consumers(peer, topic)["a"])
    assert names[KIND] - names[pulsar.ConsumerType.Shared] == {
        "drainingHashes",
        "keyHashRangeArrays",
    }
    assert names[pulsar.ConsumerType.Shared] == names[pulsar.ConsumerType.Exclusive]
