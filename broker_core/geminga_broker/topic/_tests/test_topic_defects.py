"""Defects in a topic's background work are logged, and the broker continues."""

from __future__ import annotations

from unittest import mock

import pytest

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.topic import persistent as topics
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode


async def broken(*_args: object) -> None:
    raise AssertionError("a defect")


async def test_the_end_of_a_reader(world: World, caplog: pytest.LogCaptureFixture) -> None:
    topic = world.topic()
    client = FakeConnection()
    reader = await topic.subscribe(subscribe_request(client, 1, "reader", durable=False))
    with mock.patch.object(PersistentTopic, "_delete_cursor", broken):
        reader.close()
        await world.settle()
    assert "a defect" in caplog.text
    await _publishes(world, topic)


async def test_a_defect_in_granting_access_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    topic = world.topic()
    first = await topic.add_producer(producer_request(FakeConnection(), "first"))
    waiting = producer_request(
        FakeConnection(), "second", access_mode=ProducerAccessMode.WaitForExclusive
    )
    second = await topic.add_producer(waiting)
    with mock.patch.object(topics, "grant_exclusive_access", broken):
        first.close()
        await world.settle()
    assert "a defect" in caplog.text
    second.close()
    await _publishes(world, topic)


async def _publishes(world: World, topic: PersistentTopic) -> None:
    connection = FakeConnection()
    producer = await topic.add_producer(producer_request(connection, "p"))
    producer.publish([item(1)])
    await world.settle()
    assert connection.receipts == [(1, 0)]
