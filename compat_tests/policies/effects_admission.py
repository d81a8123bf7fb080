"""Probes of policies that let clients and messages in (spec BR-20, BR-22, BR-51)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count

from compat_tests.policies.effects import Effect
from compat_tests.policies.model import JSON
from compat_tests.policies.world import SPACE, Link, SubType, World
from geminga_protocol.commands import schemas
from geminga_protocol.pb.pulsar_api_pb2 import Schema

_NAMES = count(1)
TRIED = 8


async def _let_in(one: Callable[[Link], Awaitable[int | str]], world: World) -> JSON:
    """How many of some clients are let in."""
    async with world.link() as link:
        found = [await one(link) for _ in range(TRIED)]
        admitted = [each for each in found if isinstance(each, int)]
    return len(admitted)


producers = partial(_let_in, lambda link: link.produce())


async def consumers(world: World) -> JSON:
    """How many consumers one subscription may have."""
    async with world.link() as link:
        found = [await link.subscribe("s") for _ in range(TRIED)]
        admitted = [each for each in found if isinstance(each, int)]
        await link.unsubscribe(admitted[0])
    return len(admitted)


async def subscriptions(world: World) -> JSON:
    """How many subscriptions there may be."""
    async with world.link() as link:
        found = [await link.subscribe(f"s{number}") for number in range(TRIED)]
        admitted = [each for each in found if isinstance(each, int)]
        for each in admitted:
            await link.unsubscribe(each)
    return len(admitted)


async def topics(world: World) -> JSON:
    """How many topics there may be, with the one that is there."""
    paths = [f"persistent/{SPACE}/more{number}" for number in range(TRIED)]
    made = [path for path in paths if (await world.rest("PUT", path)).status == 204]
    for path in made:
        await world.done("DELETE", path)
    return 1 + len(made)


async def sizes(world: World) -> JSON:
    """Which sizes of messages are stored."""
    async with world.link() as link:
        producer = await link.produce()
        assert isinstance(producer, int)
        for size in (100, 400, 600):
            await link.publish(producer, size, b"x" * size)
        await link.answered(3)
        return [sequence_id for sequence_id, _ in link.receipts]


async def types(world: World) -> JSON:
    """Which types of subscriptions there may be."""
    found = []
    for kind in (SubType.Exclusive, SubType.Shared, SubType.Failover, SubType.Key_Shared):
        name = SubType.Name(kind)
        async with world.link() as link:
            consumer = await link.subscribe(f"of-{name}", kind)
            if isinstance(consumer, int):
                found.append(name)
                await link.unsubscribe(consumer)
    return found


async def new_topics(world: World) -> JSON:
    """Whether a producer makes a topic."""
    async with world.link() as link:
        found = await link.produce(f"persistent://{SPACE}/new{next(_NAMES)}")
    return isinstance(found, int)


async def new_subscriptions(world: World) -> JSON:
    """Whether a consumer makes a subscription."""
    async with world.link() as link:
        found = await link.subscribe(f"new{next(_NAMES)}")
        if isinstance(found, int):
            await link.unsubscribe(found)
    return found if isinstance(found, str) else "made"


async def encryption(world: World) -> JSON:
    """Whether a producer that doesn't encrypt is let in; see `test_effects` for those that are in
    already.
    """
    async with world.link() as link:
        return isinstance(await link.produce(), int)


async def subscribing(world: World) -> JSON:
    """How often a consumer may subscribe."""
    number, admitted = next(_NAMES) + 1_000_000, 0
    async with world.link() as link:
        for _ in range(TRIED):
            found = await link.subscribe("often", number=number)
            if isinstance(found, int):
                admitted += 1
                await link.close_consumer(number)
    return admitted


def record(*fields: str, optional: str | None = None) -> Schema:
    """A schema of a record with these fields."""
    told: list[JSON] = [{"name": name, "type": "string"} for name in fields]
    if optional is not None:
        told.append({"name": optional, "type": ["null", "string"], "default": None})
    text = json.dumps({"type": "record", "name": "R", "fields": told})
    return Schema(name="R", type=Schema.Avro, schema_data=text.encode())


async def _takes(world: World, schema: Schema) -> bool:
    """Whether the topic, which has a schema already, takes another version; without it after."""
    number = next(_NAMES)
    async with world.link() as link:
        first = schemas.get_or_create_schema(number, world.topic.name, record("a"))
        answer = await link.ask(first, number)
        number = next(_NAMES)
        other = schemas.get_or_create_schema(number, world.topic.name, schema)
        answer = await link.ask(other, number)
    taken = not answer.getOrCreateSchemaResponse.HasField("error_code")
    await world.done("DELETE", f"schemas/{SPACE}/t/schema?force=true")
    return taken


async def _with_first(world: World) -> None:
    """Give the topic its first version, whatever is allowed."""
    await world.done("POST", f"schemas/{SPACE}/t/schema", {
        "type": "AVRO", "schema": record("a").schema_data.decode(), "properties": {},
    })  # fmt: skip


async def incompatible(world: World) -> JSON:
    """Whether a version that fits nothing is taken."""
    return await _takes(world, record("b"))


async def compatible(world: World) -> JSON:
    """Whether any other version is taken."""
    return await _takes(world, record("a", optional="b"))


async def without_schema(world: World) -> JSON:
    """Whether a producer without a schema is let in where there is one."""
    async with world.link() as link:
        await link.produce(schema=record("a"))
    async with world.link() as link:
        return isinstance(await link.produce(), int)


EFFECTS = {
    "maxProducersPerTopic": Effect(
        producers, TRIED, 3, 5, {"maxProducersPerTopic": "4"}, 4
    ),
    "maxConsumersPerTopic": Effect(consumers, TRIED, 3, 5, {"maxConsumersPerTopic": "4"}, 4),
    "maxConsumersPerSubscription": Effect(
        consumers, TRIED, 3, 5, {"maxConsumersPerSubscription": "4"}, 4
    ),
    "maxSubscriptionsPerTopic": Effect(
        subscriptions, TRIED, 3, 5, {"maxSubscriptionsPerTopic": "4"}, 4
    ),
    "maxTopicsPerNamespace": Effect(
        topics, 1 + TRIED, 3, keys={"maxTopicsPerNamespace": "4"}, broker=4
    ),
    "maxMessageSize": Effect(sizes, [100, 400, 600], topic=[100, 400]),
    "subscriptionTypesEnabled": Effect(
        types, ["Exclusive", "Shared", "Failover", "Key_Shared"], ["Shared"], ["Failover"],
        {"subscriptionTypesEnabled": "Exclusive,Shared"}, ["Exclusive", "Shared"],
    ),
    "autoTopicCreation": Effect(
        new_topics, True, False, keys={"allowAutoTopicCreation": "false"}, broker=False
    ),
    "autoSubscriptionCreation": Effect(
        new_subscriptions, "made", "SubscriptionNotFound", "made",
        {"allowAutoSubscriptionCreation": "false"}, "SubscriptionNotFound",
    ),
    "encryptionRequired": Effect(encryption, True, False),
    "subscribeRate": Effect(
        subscribing, TRIED, 2, 3, {"subscribeThrottlingRatePerConsumer": "4"}, 4
    ),
    "schemaCompatibilityStrategy": Effect(
        incompatible, False, True, False, {"schemaCompatibilityStrategy": "ALWAYS_COMPATIBLE"}, True
    ),
    "schemaAutoUpdateCompatibilityStrategy": Effect(incompatible, False, True),
    "isAllowAutoUpdateSchema": Effect(
        compatible, True, False, keys={"isAllowAutoUpdateSchemaEnabled": "false"}, broker=False
    ),
    "schemaValidationEnforced": Effect(without_schema, True, False, True),
}  # fmt: skip
