"""Programs of the official client's asyncio module."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from compat_tests.clients.conftest import PATIENCE_S
from compat_tests.clients.dropin_world import World


async def error(world: World, awaitable: Awaitable[object]) -> None:
    """Say which result an awaited call fails with."""
    try:
        await awaitable
    except Exception as failure:
        told = getattr(failure, "error", None)
        world.say(type(failure).__name__, str(told()) if told else None)
    else:
        world.say("no error")


async def sending_and_receiving(world: World, pulsar: Any, client: Any) -> None:
    topic = world.topic("async")
    consumer = await client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    world.say(consumer.topic(), consumer.subscription_name(), bool(consumer.consumer_name()))
    producer = await client.create_producer(topic, producer_name="p")
    world.say(producer.topic(), producer.producer_name(), producer.is_connected())
    sent = await asyncio.gather(
        *(
            producer.send(b"%d" % n, properties={"n": str(n)}, partition_key="k", event_timestamp=n)
            for n in range(10)
        )
    )
    got = {}
    for _ in range(10):
        message = await consumer.receive()
        got[message.data()] = message.properties(), message.partition_key()
        await consumer.acknowledge(message)
    world.say(sorted(got.items()), producer.last_sequence_id(), len({str(each) for each in sent}))
    await producer.flush()
    last = await consumer.get_last_message_id()
    world.say(last.entry_id() == max(each.entry_id() for each in sent))
    await consumer.seek(pulsar.MessageId.wrap(pulsar.MessageId.earliest))
    message = await consumer.receive()
    world.say(message.data())
    await consumer.negative_acknowledge(message)
    await consumer.acknowledge(message.message_id())
    await error(world, consumer.acknowledge_cumulative(message))
    await error(world, client.subscribe(topic, "sub"))
    await error(world, client.create_producer(topic, producer_name="p"))
    await error(world, client.create_producer(topic, chunking_enabled=True))
    await error(world, client.subscribe(5, "sub"))
    await error(world, client.create_producer("persistent://a"))
    await producer.close()
    world.say(producer.is_connected())
    await error(world, producer.send(b""))
    await error(world, producer.close())
    await consumer.unsubscribe()
    await error(world, consumer.receive())


async def reading(world: World, pulsar: Any, client: Any) -> None:
    schema = pulsar.schema

    class Old(schema.Record):  # type: ignore[misc,name-defined]
        a = schema.Integer(required=True)

    class New(schema.Record):  # type: ignore[misc,name-defined]
        a = schema.Integer(required=True)
        b = schema.String(default="-", required=True, required_default=True)

    topic = world.topic("avro")
    for kind, value in ((Old, Old(a=1)), (New, New(a=2, b="x"))):
        producer = await client.create_producer(topic, schema=schema.AvroSchema(kind))
        await producer.send(value)
    reader = await client.create_reader(
        topic, pulsar.MessageId.earliest, schema=schema.AvroSchema(New)
    )
    world.say(reader.topic(), reader.is_connected(), await reader.has_message_available())
    for _ in range(2):
        message = await reader.read_next()
        world.say(str(message.value()))
    world.say(await reader.has_message_available())
    await reader.seek(pulsar.MessageId.wrap(pulsar.MessageId.earliest))
    world.say((await reader.read_next()).value().a)
    await reader.close()
    world.say(reader.is_connected())
    world.say(await client.get_topic_partitions(topic))
    parts = world.partitioned("async-parts", 3)
    world.say(await client.get_topic_partitions(parts))
    pattern = await client.subscribe(parts + ".*", "sub", is_pattern_topic=True)
    producer = await client.create_producer(parts)
    await producer.send(b"found")
    world.say(pattern.topic(), (await pattern.receive()).data())


async def closing(world: World, pulsar: Any, client: Any) -> None:
    await client.close()
    await error(world, client.create_producer(world.topic("closed")))


async def run(program: Any, world: World, pulsar: Any, module: Any) -> None:
    """One program with a client of its own."""
    client = module.Client(
        world.server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    async with asyncio.timeout(2 * PATIENCE_S):
        await program(world, pulsar, client)
        if program is not closing:
            await client.close()
