"""Little programs as users of the official Python client write them: what they say must not depend
on the module that they are given (spec SDK-45).
"""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

from compat_tests.clients.conftest import WAIT_MS
from compat_tests.clients.dropin_world import World, until


def a_message(world: World) -> None:
    topic, client = world.topic(), world.client
    consumer = client.subscribe(topic, "sub", consumer_name="me", properties={"a": "b"})
    world.say(consumer.topic(), consumer.subscription_name(), consumer.consumer_name())
    world.say(consumer.is_connected())
    producer = client.create_producer(topic, producer_name="its-name", properties={"c": "d"})
    world.say(producer.topic(), producer.producer_name(), producer.last_sequence_id())
    sent = producer.send(
        b"hello",
        properties={"k": "v", "k2": ""},
        partition_key="key",
        ordering_key="order",
        event_timestamp=1234,
    )
    message = consumer.receive(WAIT_MS)
    world.say(message.data(), message.value(), message.properties(), message.partition_key())
    world.say(message.ordering_key(), message.event_timestamp(), message.topic_name())
    world.say(message.redelivery_count(), message.schema_version(), message.producer_name())
    world.say(message.has_null_value(), message.encryption_context())
    world.say(abs(message.publish_timestamp() / 1000 - time.time()) < 60)
    world.say(sent == message.message_id(), producer.last_sequence_id())
    world.say(consumer.acknowledge(message), consumer.acknowledge(message))
    producer.send(b"plain")
    plain = consumer.receive(WAIT_MS)
    world.say(plain.partition_key(), plain.ordering_key(), plain.event_timestamp())
    world.say(plain.properties(), producer.last_sequence_id())
    world.say(consumer.get_last_message_id() == plain.message_id())
    consumer.acknowledge_cumulative(plain.message_id())
    producer.send(None, partition_key="key")
    null = consumer.receive(WAIT_MS)
    world.say(null.data(), null.value(), null.has_null_value())
    world.error(lambda: consumer.receive(50))
    world.error(lambda: consumer.receive(timeout_millis=0))
    consumer.unsubscribe()


def batches(world: World) -> None:
    topic, client = world.topic(), world.client
    consumer = client.subscribe(topic, "sub")
    results: list[Any] = []
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=5,
        batching_max_publish_delay_ms=1000,
        block_if_queue_full=True,
    )
    for number in range(20):
        producer.send_async(
            b"m%d" % number, lambda result, sent: results.append((result, sent)), properties={}
        )
    producer.send_async(b"last", None)
    producer.flush()
    until(lambda: len(results) == 20)
    world.say({str(result) for result, _ in results})
    messages = world.take(consumer, 21)
    world.say([message.data() for message in messages])
    world.say([m.message_id() == sent for m, (_, sent) in zip(messages, results, strict=False)])
    first, second = results[0][1], results[1][1]
    world.say(first < second, first <= first, second > first, first != second)
    world.say(consumer.get_last_message_id() >= results[19][1])


def batch_receive(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    policy = pulsar.ConsumerBatchReceivePolicy(10, -1, 2000)
    world.say(policy.policy().getMaxNumMessages(), policy.policy().getTimeoutMs())
    consumer = client.subscribe(topic, "sub", batch_receive_policy=policy)
    producer = client.create_producer(topic)
    for number in range(25):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    for _ in range(3):
        messages = consumer.batch_receive()
        world.say([message.data() for message in messages])
        for message in messages:
            consumer.acknowledge(message)
    world.say(client.subscribe(topic, "other").batch_receive())


def readers(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    producer = client.create_producer(topic, batching_enabled=True)
    for number in range(10):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    world.say(reader.topic(), reader.is_connected(), reader.has_message_available())
    read = [reader.read_next(WAIT_MS) for _ in range(10)]
    world.say([message.data() for message in read], reader.has_message_available())
    world.error(lambda: reader.read_next(50))
    middle = read[4].message_id()
    world.say(client.create_reader(topic, middle).read_next(WAIT_MS).data())
    at = client.create_reader(topic, middle, start_message_id_inclusive=True)
    world.say(at.read_next(WAIT_MS).data())
    stored = pulsar.MessageId.deserialize(middle.serialize())
    world.say(stored == middle, client.create_reader(topic, stored).read_next(WAIT_MS).data())
    latest = client.create_reader(topic, pulsar.MessageId.latest, reader_name="r")
    world.say(latest.has_message_available())
    producer.send(b"new")
    world.say(latest.has_message_available(), latest.read_next().data())
    reader.seek(pulsar.MessageId.earliest)
    world.say(reader.read_next(WAIT_MS).data())
    reader.seek(read[7].message_id())
    world.say(reader.read_next(WAIT_MS).data())
    heard: list[bytes] = []
    client.create_reader(
        topic,
        pulsar.MessageId.earliest,
        reader_listener=lambda _, message: heard.append(message.data()),
    )
    until(lambda: len(heard) == 11)
    world.say(heard)
    reader.close()
    world.say(reader.is_connected())
    world.error(lambda: reader.read_next(50))


def seek(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    ids = []
    for number in range(5):
        ids.append(producer.send(b"%d" % number))
        time.sleep(0.02)  # publish times, which it seeks, differ
    messages = world.take(consumer, 5)
    for place in (
        pulsar.MessageId.earliest,
        ids[2],
        messages[2].message_id(),
        messages[3].publish_timestamp(),
        pulsar.MessageId.deserialize(ids[0].serialize()),
    ):
        consumer.seek(place)
        world.say(consumer.receive(WAIT_MS).data())
    consumer.seek(pulsar.MessageId.latest)
    world.error(lambda: consumer.receive(300))
    world.error(lambda: consumer.seek("yesterday"))


def redelivery(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    consumer = client.subscribe(
        topic,
        "sub",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=200,
        schema=pulsar.schema.StringSchema(),
    )
    producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
    producer.send("again")
    for _ in range(3):
        message = consumer.receive(WAIT_MS)
        world.say(message.value(), message.redelivery_count())
        consumer.negative_acknowledge(message)
    message = consumer.receive(WAIT_MS)
    world.say(message.redelivery_count())
    consumer.redeliver_unacknowledged_messages()
    message = consumer.receive(WAIT_MS)
    world.say(message.value())
    consumer.negative_acknowledge(message.message_id())
    world.take(consumer, 1)
    world.error(lambda: consumer.receive(400))


def dead_letters(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    policy = pulsar.ConsumerDeadLetterPolicy(2, world.topic("dead"), "first")
    world.say(policy.max_redeliver_count, policy.dead_letter_topic)
    world.say(
        policy.initial_subscription_name, pulsar.ConsumerDeadLetterPolicy(1).dead_letter_topic
    )
    world.error(lambda: pulsar.ConsumerDeadLetterPolicy(0))
    dead = client.subscribe(world.topic("dead"), "sub")
    consumer = client.subscribe(
        topic,
        "sub",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=policy,
    )
    client.create_producer(topic).send(b"bad", properties={"p": "q"})
    for _ in range(3):
        message = consumer.receive(WAIT_MS)
        world.say(message.data(), message.redelivery_count())
        consumer.negative_acknowledge(message)
    letter = dead.receive(WAIT_MS)
    world.say(letter.data(), letter.properties()["p"])
    world.error(lambda: consumer.receive(400))


def key_shared(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    halves = [(0, 32767), (32768, 65535)]
    consumers = []
    for half in halves:
        policy = pulsar.ConsumerKeySharedPolicy(
            key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=[half]
        )
        world.say(policy.key_shared_mode, policy.sticky_ranges, policy.allow_out_of_order_delivery)
        consumers.append(
            client.subscribe(
                topic,
                "sub",
                consumer_type=pulsar.ConsumerType.KeyShared,
                key_shared_policy=policy,
            )
        )
    producer = client.create_producer(
        topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased
    )
    for number in range(40):
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number % 8}")
    producer.flush()
    got: list[list[tuple[str, bytes]]] = [[], []]
    while sum(map(len, got)) < 40:
        for consumer, messages in zip(consumers, got, strict=True):
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            messages.append((message.partition_key(), message.data()))
            consumer.acknowledge(message)
    world.say([sorted(messages) for messages in got])
    world.error(lambda: pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky))
    world.error(lambda: consumers[0].acknowledge_cumulative(pulsar.MessageId.earliest))


def topics_and_patterns(world: World) -> None:
    pulsar, client = world.pulsar, world.client
    names = [world.topic(f"several-{letter}") for letter in "ab"]
    producers = [client.create_producer(name) for name in names]
    several = client.subscribe(names, "sub")
    pattern = re.compile(world.topic("several-.*"))
    matching = client.subscribe(
        pattern,
        "pattern",
        consumer_type=pulsar.ConsumerType.Shared,
        pattern_auto_discovery_period=1,  # the official client waits 60 s for new ones all the same
        initial_position=pulsar.InitialPosition.Earliest,
    )
    world.say(matching.topic())
    for producer in producers:
        producer.send(producer.topic().encode())
    messages = world.take(several, 2)
    world.say(sorted(message.topic_name() for message in messages))
    world.say(len(world.take(matching, 2)))
    world.error(several.get_last_message_id)
    stored = messages[0].message_id().serialize()
    several.acknowledge(pulsar.MessageId.deserialize(stored, messages[0].topic_name()))
    several.acknowledge(messages[1].message_id())
    world.error(lambda: several.acknowledge(pulsar.MessageId.deserialize(stored)))
    several.seek(pulsar.MessageId.earliest)
    world.say(sorted(message.topic_name() for message in world.take(several, 2)))


def partitions(world: World) -> None:
    pulsar, client = world.pulsar, world.client
    topic = world.partitioned("parts", 7)
    world.say(client.get_topic_partitions(topic))
    world.say(client.get_topic_partitions(world.topic("alone")))
    consumer = client.subscribe(topic, "sub")
    world.say(consumer.topic())
    producer = client.create_producer(topic)
    keys = ["a", "key", "key-17", "a longer key of many letters", "ключ", "x" * 100]
    world.say([producer.send(b"", partition_key=key).partition() for key in keys])
    world.say(sorted(producer.send(b"").partition() for _ in range(7)))
    one = client.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.UseSinglePartition
    )
    world.say(len({one.send(b"").partition() for _ in range(7)}))
    seen: list[object] = []

    def router(message: Any, count: int) -> int:
        seen.append((message.data(), message.properties(), message.partition_key(), count))
        return 3

    routed = client.create_producer(topic, message_router=router)
    world.say(routed.send(b"r", properties={"a": "b"}, partition_key="k").partition(), seen)
    messages = world.take(consumer, 21)
    world.say(sorted({message.topic_name() for message in messages}))
    world.say({message.message_id().partition() for message in messages} <= set(range(7)))


def compression_and_chunks(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    consumer = client.subscribe(topic, "sub", max_pending_chunked_message=2)
    for kind in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"):
        compression = getattr(pulsar.CompressionType, kind)
        client.create_producer(topic, compression_type=compression).send(kind.encode() * 50)
    world.say([message.data() for message in world.take(consumer, 5)])
    producer = client.create_producer(topic, chunking_enabled=True)
    sent = producer.send(bytes(6 * 1024 * 1024))
    (message,) = world.take(consumer, 1)
    world.say(len(message.data()), sent == message.message_id(), len(sent.serialize()))
    again = pulsar.MessageId.deserialize(sent.serialize())
    world.say(again.serialize() == sent.serialize(), str(sent).count(";"))


def delayed(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    producer.send(b"at", deliver_at=int(time.time() * 1000) + 1500)
    producer.send(b"after", deliver_after=timedelta(milliseconds=1500))
    world.error(lambda: consumer.receive(300))
    world.say(sorted(message.data() for message in world.take(consumer, 2)))


def failover(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    first = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Failover)
    producer = client.create_producer(topic)
    for number in range(6):
        producer.send(b"%d" % number)
    messages = [first.receive(WAIT_MS) for _ in range(6)]
    first.acknowledge_cumulative(messages[2])
    first.close()
    second = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Failover)
    world.say([second.receive(WAIT_MS).data() for _ in range(3)])
    compacted = client.subscribe(topic, "compacted", is_read_compacted=True)
    world.say(compacted.is_connected())
    zero = client.subscribe(
        topic,
        "zero",
        consumer_type=pulsar.ConsumerType.Shared,
        receiver_queue_size=0,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    world.say(zero.receive().data())
    world.error(lambda: zero.receive(100))
    world.say(zero.batch_receive())
