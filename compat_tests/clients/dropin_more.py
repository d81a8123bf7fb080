"""More programs: schemas, encryption, listeners, table views."""

from __future__ import annotations

import enum
import threading
import time
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
        price = schema.Double(default=1.5, required=True, required_default=True)
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
        try:
            if message.data() == b"bad":
                raise ValueError("an error of the program")
            consumer.acknowledge(message)
        finally:
            heard.append(message.data())  # at the end: once all are heard, the consumer is closed

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
    time.sleep(0.3)  # that nothing comes shows in time only
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
    time.sleep(0.2)  # so that it has come, and waits behind the pause
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
        time.sleep(0.02)  # a listener that takes a while
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
    # The official client crashes at times if it ends while its view does; nothing tells when.
    time.sleep(0.2)
