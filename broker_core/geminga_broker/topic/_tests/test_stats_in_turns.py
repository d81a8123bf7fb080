"""Statistics of topics with many subscriptions, made with pauses."""

from __future__ import annotations

import msgspec
import pytest
import trio

from geminga_broker._tests.fake_client import FakeConnection, producer_request, subscribe_request
from geminga_broker._tests.topic_world import World
from geminga_broker.topic.api import SubType
from geminga_broker.topic.stats import as_json, encoded, json_in_turns
from geminga_broker.topic.topic import Topic
from geminga_runtime.background import Turns

MANY = 100


async def topic_with_many(world: World, kind: str) -> Topic:
    topic: Topic = world.topic() if kind == "persistent" else world.passing()
    connection = FakeConnection()
    await topic.add_producer(producer_request(connection))
    for number in range(MANY):
        request = subscribe_request(connection, number, f"s{number}", sub_type=SubType.Shared)
        await topic.subscribe(request)
    return topic


@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
async def test_others_run_in_between_and_the_numbers_are_the_same(world: World, kind: str) -> None:
    topic = await topic_with_many(world, kind)
    whole = as_json(topic.stats())
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.001)
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        found = await json_in_turns(topic.stats_steps(), Turns(), encoded)
        nursery.cancel_scope.cancel()
    assert turns >= 2 * MANY // 16
    assert len(whole["subscriptions"]) == MANY
    assert msgspec.json.decode(msgspec.json.encode(found)) == msgspec.json.decode(
        msgspec.json.encode(whole)
    )


async def test_a_topic_that_is_closed_meanwhile_is_told_to_its_end(world: World) -> None:
    topic = await topic_with_many(world, "persistent")
    steps = topic.stats_steps()
    for _ in range(10):
        next(steps)
    await topic.close()
    found = await json_in_turns(steps, Turns())
    assert len(found["subscriptions"]) == MANY
