"""Our broker and Apache's serve one topic at once, each holding itself for its owner: who opened it
last has it, and what the other one acknowledges then changes nothing (decision 36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pulsar
import pytest

from compat_tests.apache.cluster import Cluster, running_cluster
from compat_tests.apache.test_broker_on_bookies import client_of, publish
from compat_tests.missing import APACHE, skipped_without
from compat_tests.processes import free_port, wait_until

pytestmark = pytest.mark.java

TOPIC = "persistent://public/default/split"
SUBSCRIPTION = "s"
STOPPED = (0, 130)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with skipped_without(APACHE), running_cluster(folder, 3) as found:
        yield found


def subscribed(client: pulsar.Client) -> pulsar.Consumer:
    return client.subscribe(TOPIC, SUBSCRIPTION, pulsar.ConsumerType.Shared)


def received(consumer: pulsar.Consumer, first: int, end: int) -> list[pulsar.Message]:
    """These messages, in order."""
    found = [consumer.receive(timeout_millis=60_000) for _ in range(first, end)]
    assert [message.data() for message in found] == [b"%d" % number for number in range(first, end)]
    return found


def acknowledge(consumer: pulsar.Consumer, messages: list[pulsar.Message]) -> None:
    for message in messages:
        consumer.acknowledge(message)


def test_the_one_that_opened_it_last_keeps_its_acknowledgements(cluster: Cluster) -> None:
    second = replace(cluster, folder=cluster.folder / "second", ports=(free_port(), free_port()))
    second.folder.mkdir()
    ours = cluster.start_ours()
    try:
        with client_of(cluster) as client:
            consumer = subscribed(client)
            publish(client, TOPIC, [str(number) for number in range(20)])
            held = received(consumer, 0, 20)
            acknowledge(consumer, held[:10])
            apache = second.start_apache()
            try:
                with client_of(second) as other:
                    other_consumer = subscribed(other)
                    taken = received(other_consumer, 10, 20)
                    # Apache's broker has claimed the log; it has not written the cursor's node yet.
                    acknowledge(consumer, held[15:])
                    consumer.close()
                    told = b"is fenced"
                    wait_until(
                        lambda: told in ours.log_path.read_bytes(),
                        ours.process,
                        ours.log_path,
                        timeout_s=60,
                    )
                    acknowledge(other_consumer, taken[:5])
                    other_consumer.close()
            finally:
                assert apache.stop() in STOPPED, apache.log_tail()
            consumer = subscribed(client)
            acknowledge(consumer, received(consumer, 15, 20)[:2])
            consumer.close()
    finally:
        assert ours.stop() in STOPPED, ours.log_tail()
    apache = second.start_apache()
    try:
        with client_of(second) as client:
            received(subscribed(client), 17, 20)
    finally:
        assert apache.stop() in STOPPED, apache.log_tail()
