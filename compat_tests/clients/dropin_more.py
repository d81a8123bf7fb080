"""More programs: schemas, encryption, listeners, table views, errors."""

from __future__ import annotations

import enum
import threading
import time
from datetime import timedelta
from typing import Any

from compat_tests.clients.conftest import WAIT_MS
from compat_tests.clients.dropin_world import World, until


def strings_and_json(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    schema = pulsar.schema

    class Color(enum.Enum):
        red = 1
        green = 2

    class Inner(schema.Record):
        name = schema.String(required=True)

    class Order(schema.Record):
        number = schema.Integer()
        price = schema.Double(default=1.5, required_default=True)
        color = Color
        inner = Inner()
        many = schema.Array(Inner())
        by_name = schema.Map(schema.Long())
        data = schema.Bytes()

    consumer = client.subscribe(topic, "sub", schema=schema.JsonSchema(Order))
    producer = client.create_producer(topic, schema=schema.JsonSchema(Order))
    sent = Order(
        number=1,
        color=Color.green,
        inner=Inner(name="a"),
        many=[Inner(name="b")],
        by_name={"x": 5},
        data=b"bytes",
    )
    producer.send(sent)
    message = consumer.receive(WAIT_MS)
    value = message.value()
    world.say(message.data())
    world.say(value == sent, value.many[0].name, value.color.name, value.data, value.price)
    world.say(message.schema_version())
    world.say(schema.JsonSchema(Order).schema_info().schema())
    world.error(lambda: producer.send("no order"))
    world.error(lambda: Order(number="one"))
    world.error(lambda: Order(unknown=1) and None)
    world.error(lambda: client.create_producer(topic, schema=schema.StringSchema()))
    world.error(lambda: client.subscribe(topic, "s2", schema=schema.StringSchema()))
    texts = client.create_producer(world.topic("texts"), schema=schema.StringSchema())
    reader = client.create_reader(
        world.topic("texts"), pulsar.MessageId.earliest, schema=schema.StringSchema()
    )
    texts.send("größer")
    world.say(reader.read_next(WAIT_MS).value())
    world.error(lambda: texts.send(b"bytes"))


def avro(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    schema = pulsar.schema

    class Old(schema.Record):
        a = schema.Integer(default=1, required=True, required_default=True)
        b = schema.String(default="-", required=True, required_default=True)

    class New(schema.Record):
        b = schema.String(default="-", required=True, required_default=True)
        c = schema.Long(default=9, required=True, required_default=True)

    client.create_producer(topic, schema=schema.AvroSchema(Old)).send(Old(a=1, b="old"))
    client.create_producer(topic, schema=schema.AvroSchema(New)).send(New(b="new", c=5))
    for kind in (New, Old):
        reader = client.create_reader(
            topic, pulsar.MessageId.earliest, schema=schema.AvroSchema(kind)
        )
        for _ in range(2):
            message = reader.read_next(WAIT_MS)
            world.say(message.data(), message.schema_version(), str(message.value()))
    plain = schema.AvroSchema(None, {"type": "record", "name": "N", "fields": [
        {"name": "n", "type": ["null", "int"]}]})  # fmt: skip
    consumer = client.subscribe(world.topic("plain"), "sub", schema=plain)
    client.create_producer(world.topic("plain"), schema=plain).send({"n": 3})
    world.say(consumer.receive(WAIT_MS).value())


def own_schema(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client

    class Numbers(pulsar.schema.BytesSchema):  # type: ignore[misc,name-defined]
        def encode(self, data: Any) -> bytes:
            return str(data).encode()

        def decode(self, data: bytes) -> int:
            return int(data)

    consumer = client.subscribe(topic, "sub", schema=Numbers())
    client.create_producer(topic, schema=Numbers()).send(42)
    world.say(consumer.receive(WAIT_MS).value())


def encryption(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    public, private = str(world.keys / "rsa-public.pem"), str(world.keys / "rsa-private.pem")
    reader = pulsar.CryptoKeyReader(public, private)
    consumer = client.subscribe(topic, "sub", crypto_key_reader=reader)
    producer = client.create_producer(topic, encryption_key="rsa", crypto_key_reader=reader)
    producer.send(b"secret")
    message = consumer.receive(WAIT_MS)
    context = message.encryption_context()
    keys = context.keys()
    world.say(message.data(), [key.key for key in keys], context.is_decryption_failed())
    world.say(context.batch_size(), context.uncompressed_message_size(), context.algorithm())
    world.say(context.compression_type(), len(context.param()), len(keys[0].value))
    world.say(keys[0].metadata)
    raw = client.create_reader(
        topic,
        pulsar.MessageId.earliest,
        crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
    ).read_next(WAIT_MS)
    world.say(raw.data() != b"secret", raw.encryption_context().is_decryption_failed())


def listeners(world: World) -> None:
    topic, client = world.topic(), world.client
    heard: list[bytes] = []
    threads: set[int] = set()

    def listener(consumer: Any, message: Any) -> None:
        threads.add(threading.get_ident())
        heard.append(message.data())
        if message.data() == b"bad":
            raise ValueError("an error of the program")
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "sub", message_listener=listener)
    producer = client.create_producer(topic)
    for number in range(5):
        producer.send(b"%d" % number)
    producer.send(b"bad")
    producer.send(b"end")
    until(lambda: len(heard) == 7)
    world.say(heard, len(threads))
    world.error(lambda: consumer.receive(100))
    world.error(consumer.receive)
    world.say(consumer.batch_receive())
    consumer.pause_message_listener()
    producer.send(b"later")
    time.sleep(0.3)
    world.say(len(heard))
    consumer.resume_message_listener()
    until(lambda: len(heard) == 8)
    consumer.close()
    rest = client.subscribe(topic, "sub")
    world.say(rest.receive(WAIT_MS).data())
    world.error(lambda: rest.receive(200))
    world.error(rest.pause_message_listener)
    world.error(rest.resume_message_listener)


def paused_listener(world: World) -> None:
    """A paused listener does not hold up the end."""
    topic = world.topic()
    client = world.new_client()
    heard: list[bytes] = []
    consumer = client.subscribe(
        topic, "sub", message_listener=lambda _, message: heard.append(message.data())
    )
    consumer.pause_message_listener()
    client.create_producer(topic).send(b"waits")
    time.sleep(0.2)
    client.close()
    world.say(heard)
    again = world.client.subscribe(topic, "sub")
    world.say(again.receive(WAIT_MS).data())


def one_listener_thread(world: World) -> None:
    """With one thread for listeners, those of two consumers take turns."""
    topics = [world.topic(letter) for letter in "ab"]
    running, most, done = 0, 0, 0

    def listener(consumer: Any, message: Any) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        done += 1

    for topic in topics:
        world.client.subscribe(topic, "sub", message_listener=listener)
    for _ in range(5):
        for topic in topics:
            world.client.create_producer(topic).send(b"")
    until(lambda: done == 10)
    world.say(most)


def table_view(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    schema = pulsar.schema.StringSchema()
    producer = client.create_producer(topic, schema=schema)
    producer.send("1", partition_key="a")
    producer.send("2", partition_key="b")
    producer.send("3", partition_key="a")
    view = client.create_table_view(topic, "its-name", schema)
    world.say(len(view), view.get("a"), view.get("b"), view.get("c"), str(view))
    world.say(world.subscriptions(topic))
    seen: list[tuple[str, str]] = []
    view.for_each(lambda key, value: seen.append((key, value)))
    world.say(sorted(seen))
    heard: list[tuple[str, str]] = []
    view.for_each_and_listen(lambda key, value: heard.append((key, value)))
    world.say(sorted(heard))
    producer.send("4", partition_key="c")
    producer.send(None, partition_key="a")
    until(lambda: len(heard) == 4)
    world.say(heard[2:], len(view), view.get("a"))
    view.close()
    world.error(view.close)


def full_queue(world: World) -> None:
    results: list[Any] = []
    producer = world.client.create_producer(
        world.topic(),
        max_pending_messages=1,
        batching_enabled=True,
        batching_max_publish_delay_ms=500,
    )
    for _ in range(200):
        producer.send_async(b"x", lambda result, sent: results.append((result, str(sent))))
    until(lambda: len(results) == 200)
    full = [each for each in results if each[0] == world.pulsar.Result.ProducerQueueIsFull]
    world.say(set(full), len(full) > 100, {str(result) for result, _ in results})
    producer = world.client.create_producer(world.topic())
    big = bytes(6 * 1024 * 1024)
    world.error(lambda: producer.send(big))
    producer.send_async(big, lambda result, sent: results.append((result, str(sent))))
    until(lambda: len(results) == 201)
    world.say(results[-1])


def access_modes(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    mode = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=mode.Exclusive)
    world.error(lambda: client.create_producer(topic, access_mode=mode.Exclusive))
    world.error(lambda: client.create_producer(topic))
    second = client.create_producer(topic, access_mode=mode.ExclusiveWithFencing)
    second.send(b"mine")
    world.error(lambda: first.send(b"not mine"))
    named = client.create_producer(world.topic("named"), producer_name="n", initial_sequence_id=41)
    named.send(b"")
    world.say(named.last_sequence_id())
    world.error(lambda: client.create_producer(world.topic("named"), producer_name="n"))


def closed(world: World) -> None:
    pulsar, topic = world.pulsar, world.topic()
    client = world.new_client()
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "sub")
    message_id = producer.send(b"")
    message = consumer.receive(WAIT_MS)
    producer.close()
    world.say(producer.is_connected())
    results: list[Any] = []
    producer.send_async(b"", lambda result, sent: results.append((str(result), str(sent))))
    until(lambda: bool(results))
    world.say(results)
    for call in (producer.close, producer.flush, lambda: producer.send(b"")):
        world.error(call)
    world.error(lambda: client.subscribe(topic, "sub"))
    consumer.close()
    world.say(consumer.is_connected())
    for call in (
        lambda: consumer.receive(50),
        consumer.receive,
        lambda: consumer.acknowledge(message),
        lambda: consumer.negative_acknowledge(message),
        lambda: consumer.seek(message_id),
        consumer.unsubscribe,
    ):
        world.error(call)
    client.close()
    for call in (
        client.close,
        lambda: client.create_producer(topic),
        lambda: client.subscribe(topic, "sub"),
        lambda: client.create_reader(topic, pulsar.MessageId.earliest),
        lambda: client.get_topic_partitions(topic),
        client.shutdown,
    ):
        world.error(call)
    shut = world.new_client()
    left = shut.create_producer(topic)
    shut.shutdown()
    world.error(lambda: left.send(b""))


def wrong_arguments(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    url = world.server.service_url
    text: Any = "text"
    for options in (
        {"authentication": text}, {"operation_timeout_seconds": text}, {"io_threads": text},
        {"message_listener_threads": text}, {"concurrent_lookup_requests": text},
        {"log_conf_file_path": 5}, {"stats_interval_in_seconds": text}, {"use_tls": text},
        {"tls_trust_certs_file_path": 5}, {"tls_allow_insecure_connection": text},
        {"tls_validate_hostname": text}, {"logger": 5}, {"connection_timeout_ms": text},
        {"listener_name": 5}, {"tls_private_key_file_path": 5},
    ):  # fmt: skip
        world.error(lambda options=options: pulsar.Client(url, **options))  # type: ignore[misc]
    for bad in (None, "fakeServiceUrl", "other://127.0.0.1:1", 5):
        world.error(lambda bad=bad: pulsar.Client(bad))  # type: ignore[misc]
    for options in (
        {"topic": None}, {"producer_name": 5}, {"schema": 5}, {"initial_sequence_id": text},
        {"send_timeout_millis": text}, {"compression_type": None}, {"max_pending_messages": text},
        {"max_pending_messages": -1}, {"block_if_queue_full": text}, {"batching_enabled": text},
        {"batching_max_messages": 1}, {"batching_max_allowed_size_in_bytes": text},
        {"batching_max_publish_delay_ms": text}, {"properties": text}, {"properties": {"a": 1}},
        {"chunking_enabled": True, "batching_enabled": True}, {"encryption_key": 5},
        {"crypto_key_reader": 5}, {"access_mode": 0}, {"batching_type": 1}, {"topic": "a://b"},
    ):  # fmt: skip
        given = {"topic": topic, **options}
        world.error(lambda given=given: client.create_producer(**given))  # type: ignore[misc]
    for options in (
        {"topic": None}, {"subscription_name": None}, {"consumer_type": None}, {"schema": 5},
        {"receiver_queue_size": text}, {"consumer_name": 5}, {"unacked_messages_timeout_ms": text},
        {"unacked_messages_timeout_ms": 500}, {"negative_ack_redelivery_delay_ms": text},
        {"broker_consumer_stats_cache_time_ms": text}, {"is_read_compacted": text},
        {"properties": text}, {"pattern_auto_discovery_period": text}, {"initial_position": 1},
        {"batch_receive_policy": 5}, {"key_shared_policy": 5}, {"crypto_failure_action": 0},
        {"topic": "persistent://a"}, {"topic": "persistent://no-tenant/ns/t"},
    ):  # fmt: skip
        given = {"topic": topic, "subscription_name": "s", **options}
        world.error(lambda given=given: client.subscribe(**given))  # type: ignore[misc]
    for options in (
        {"topic": None}, {"start_message_id": None}, {"start_message_id": 5}, {"schema": 5},
        {"receiver_queue_size": text}, {"reader_name": 5}, {"subscription_role_prefix": 5},
    ):  # fmt: skip
        given = {"topic": topic, "start_message_id": pulsar.MessageId.earliest, **options}
        world.error(lambda given=given: client.create_reader(**given))  # type: ignore[misc]


def wrong_arguments_of_others(world: World) -> None:
    pulsar, topic, client = world.pulsar, world.topic(), world.client
    url = world.server.service_url
    text: Any = "text"
    producer = client.create_producer(topic)
    world.error(lambda: producer.send(5))
    for options in (
        {"properties": text}, {"properties": {"a": 5}}, {"partition_key": 5}, {"ordering_key": 5},
        {"sequence_id": text}, {"sequence_id": -1}, {"replication_clusters": 5},
        {"disable_replication": text}, {"event_timestamp": text}, {"deliver_at": text},
        {"deliver_after": text}, {"deliver_at": 1, "deliver_after": timedelta(seconds=1)},
    ):  # fmt: skip
        world.error(lambda options=options: producer.send(b"", **options))  # type: ignore[misc]
    consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    for call in (
        lambda: consumer.receive("soon"), lambda: consumer.receive(1.5),
        lambda: consumer.acknowledge(5), lambda: consumer.negative_acknowledge(5),
        lambda: consumer.acknowledge_cumulative(pulsar.MessageId.earliest),
        lambda: pulsar.MessageId.deserialize(b"nothing"), lambda: pulsar.FileLogger(5, "f"),
        lambda: pulsar.ConsoleLogger(5), lambda: pulsar.AuthenticationToken(5),
        lambda: pulsar.AuthenticationBasic(), lambda: pulsar.CryptoKeyReader(1, 2),
        lambda: pulsar.AuthenticationTLS(1, 2), lambda: pulsar.ServiceInfo(5),
        lambda: pulsar.AuthenticationBasic(auth_params_string="{}"),
        lambda: pulsar.MessageBatch().with_message_id(5),
        lambda: client.create_table_view(5), lambda: client.get_topic_partitions(5),
        lambda: pulsar.AutoClusterFailover(pulsar.ServiceInfo(url), []),
    ):  # fmt: skip
        world.error(call)


def values(world: World) -> None:
    """What is known without a broker."""
    pulsar = world.pulsar
    for each in ((-1, -1, -1, -1), (0, 5, 6, -1), (-1, 5, 6, 2), (3, 5, 6, 2)):
        made = pulsar.MessageId(*each)
        world.say(str(made), made.serialize(), made.partition(), made.ledger_id())
        world.say(
            made.entry_id(), made.batch_index(), str(pulsar.MessageId.deserialize(made.serialize()))
        )
    world.say(str(pulsar.MessageId.earliest), str(pulsar.MessageId.latest))
    world.say(pulsar.MessageId.latest.serialize(), pulsar.MessageId() == pulsar.MessageId.wrap(
        pulsar.MessageId.earliest))  # fmt: skip
    for less, more in (((0, 1, 1, 0), (1, 1, 1, 0)), ((1, 1, 1, 5), (0, 1, 1, 6))):
        one, other = pulsar.MessageId(*less), pulsar.MessageId(*more)
        world.say(one < other, one <= other, one > other, one >= other, one == other)
    for name in ("Result", "CompressionType", "ConsumerType", "InitialPosition", "LoggerLevel",
                 "PartitionsRoutingMode", "BatchingType", "KeySharedMode", "ProducerAccessMode",
                 "RegexSubscriptionMode", "ConsumerCryptoFailureAction"):  # fmt: skip
        for member in getattr(pulsar, name).__members__.values():
            world.say(str(member), repr(member), member.name, member.value, int(member))
    failover = pulsar.AutoClusterFailover(
        pulsar.ServiceInfo("pulsar://a:1"), [pulsar.ServiceInfo("pulsar+ssl://b:1")]
    )
    world.say(repr(failover), issubclass(pulsar.Timeout, pulsar.PulsarException))
    info = world.client.get_service_info()
    world.say(info.use_tls, info.service_url == world.server.service_url)
