"""The official Python client: subscriptions, batches, compression, acknowledgements."""

from __future__ import annotations

import time
from itertools import chain

import pulsar
import pytest
from pulsar import CompressionType, ConsumerType

from compat_tests.clients.conftest import (
    PATIENCE_S,
    WAIT_MS,
    Peer,
    assert_nothing_more,
    drain,
    new_client,
    numbered,
    receive,
    receive_after_change,
    send_all,
    settled_active,
    texts,
)


def test_exclusive(peer: Peer) -> None:
    topic = peer.topic("exclusive")
    consumer = peer.consumer(topic)
    with pytest.raises(pulsar.ConsumerBusy):
        peer.consumer(topic)
    send_all(peer.producer(topic), numbered("m", 0, 50))
    for number in range(50):
        message = consumer.receive(WAIT_MS)
        assert message.data() == b"m%d" % number
        consumer.acknowledge(message)
    consumer.close()
    assert_nothing_more(peer.consumer(topic))


def test_failover(peer: Peer) -> None:
    topic = peer.topic("failover")
    consumers = [
        peer.consumer(topic, ConsumerType.Failover, consumer_name=name) for name in ("a", "b")
    ]
    active = ["a", "b"].index(settled_active(peer.server, topic, "sub"))
    send_all(peer.producer(topic), numbered("m", 0, 20))
    got = drain(consumers, 20)
    assert texts(got[active]) == numbered("m", 0, 20)
    consumers[active].acknowledge_cumulative(got[active][9])
    consumers[active].close()
    rest = receive_after_change(peer, topic, consumers[1 - active], 10)
    assert texts(rest) == numbered("m", 10, 20)


def test_shared(peer: Peer) -> None:
    topic = peer.topic("shared")
    consumers = [peer.consumer(topic, ConsumerType.Shared, receiver_queue_size=10) for _ in "abc"]
    send_all(peer.producer(topic), numbered("m", 0, 90))
    got = drain(consumers, 90)
    assert all(got)
    assert sorted(texts(list(chain(*got)))) == sorted(numbered("m", 0, 90))
    for consumer, messages in zip(consumers[1:], got[1:], strict=True):
        for message in messages:
            consumer.acknowledge(message)
    consumers[0].close()
    again = drain(consumers[1:], len(got[0]))
    assert sorted(texts(list(chain(*again)))) == sorted(texts(got[0]))


def test_key_shared(peer: Peer) -> None:
    topic = peer.topic("key-shared")
    consumers = [peer.consumer(topic, ConsumerType.KeyShared) for _ in "abc"]
    producer = peer.producer(topic)
    for number in range(120):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 30}")
    producer.flush()
    got = drain(consumers, 120)
    owners = [{message.partition_key() for message in messages} for messages in got]
    assert sum(map(len, owners)) == 30, "a key went to two consumers"
    assert sum(map(bool, owners)) >= 2
    for messages in got:
        last: dict[str, int] = {}
        for message in messages:
            assert last.get(message.partition_key(), -1) < int(message.data())
            last[message.partition_key()] = int(message.data())


def test_batching(peer: Peer) -> None:
    topic = peer.topic("batching")
    consumer = peer.consumer(topic)
    producer = peer.producer(
        topic, batching_enabled=True, batching_max_messages=50, batching_max_publish_delay_ms=60_000
    )
    ids = send_all(producer, numbered("m", 0, 100))
    got = receive(consumer, 100)
    assert texts(got) == numbered("m", 0, 100)
    positions = [(m.message_id().entry_id(), m.message_id().batch_index()) for m in got]
    assert positions == [(n // 50, n % 50) for n in range(100)]
    assert [(i.entry_id(), i.batch_index()) for i in ids] == positions
    for message in got:
        consumer.acknowledge(message)
    consumer.close()
    assert_nothing_more(peer.consumer(topic))


@pytest.mark.parametrize("name", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compression(peer: Peer, name: str) -> None:
    topic = peer.topic("compression")
    consumer = peer.consumer(topic)
    kind = getattr(CompressionType, name)
    single = peer.producer(topic, compression_type=kind)
    batch = peer.producer(topic, compression_type=kind, batching_enabled=True)
    payloads = numbered("geminga " * 500, 0, 10)
    send_all(single, payloads)
    send_all(batch, payloads)
    assert texts(receive(consumer, 20)) == payloads * 2


def test_nack(peer: Peer) -> None:
    topic = peer.topic("nack")
    consumer = peer.consumer(topic, ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    send_all(peer.producer(topic), numbered("m", 0, 10))
    for message in receive(consumer, 10):
        assert message.redelivery_count() == 0
        if message.data() >= b"m5":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    again = receive(consumer, 5)
    assert sorted(texts(again)) == numbered("m", 5, 10)
    assert {message.redelivery_count() for message in again} == {1}
    for message in again:
        consumer.acknowledge(message)
    assert_nothing_more(consumer)


def test_unacknowledged_messages_come_again_after_their_timeout(peer: Peer) -> None:
    topic = peer.topic("ack-timeout")
    consumer = peer.consumer(topic, ConsumerType.Shared, unacked_messages_timeout_ms=10_000)
    send_all(peer.producer(topic), numbered("m", 0, 3))
    receive(consumer, 3)
    consumer.redeliver_unacknowledged_messages()
    again = receive(consumer, 3)
    assert sorted(texts(again)) == numbered("m", 0, 3)


def test_cumulative_ack(peer: Peer) -> None:
    topic = peer.topic("cumulative")
    consumer = peer.consumer(topic)
    send_all(peer.producer(topic), numbered("m", 0, 20))
    consumer.acknowledge_cumulative(receive(consumer, 15)[14])
    consumer.close()
    assert texts(receive(peer.consumer(topic), 5)) == numbered("m", 15, 20)


def test_batch_index_ack(peer: Peer) -> None:
    topic = peer.topic("batch-index")
    options = {"batch_index_ack_enabled": True}
    consumer = peer.consumer(topic, ConsumerType.Shared, **options)
    producer = peer.producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    send_all(producer, numbered("m", 0, 10))
    for message in receive(consumer, 10)[::2]:
        consumer.acknowledge(message)
    consumer.close()
    again = peer.consumer(topic, ConsumerType.Shared, **options)
    assert texts(receive(again, 5)) == ["m1", "m3", "m5", "m7", "m9"]
    assert_nothing_more(again)


def test_two_clients_and_a_late_subscription(peer: Peer) -> None:
    topic = peer.topic("two-clients")
    kept = peer.consumer(topic)
    send_all(peer.producer(topic), numbered("early", 0, 5))
    other = new_client(peer.server)
    try:
        latest = other.subscribe(topic, "late")
        earliest = other.subscribe(topic, "first", initial_position=pulsar.InitialPosition.Earliest)
        send_all(other.create_producer(topic), numbered("late", 0, 5))
        assert texts(receive(latest, 5)) == numbered("late", 0, 5)
        everything = numbered("early", 0, 5) + numbered("late", 0, 5)
        assert texts(receive(earliest, 10)) == everything
        assert texts(receive(kept, 10)) == everything
    finally:
        other.close()


def test_batch_receive_and_listener(peer: Peer) -> None:
    topic = peer.topic("listener")
    heard: list[bytes] = []

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        heard.append(message.data())
        consumer.acknowledge(message)

    peer.consumer(topic, message_listener=listen, subscription="listening")
    many = peer.consumer(
        topic, batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(10, 1024 * 1024, WAIT_MS)
    )
    send_all(peer.producer(topic), numbered("m", 0, 10))
    assert texts(list(many.batch_receive())) == numbered("m", 0, 10)
    assert_nothing_more(many)
    deadline = time.monotonic() + PATIENCE_S
    while len(heard) < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard == [f"m{number}".encode() for number in range(10)]
