"""Deduplication: what becomes of duplicates whose originals are lost, and of what is sent again."""

from __future__ import annotations

from typing import Any

import pytest

from geminga_broker._tests.fake_client import FakeConnection, item
from geminga_broker._tests.topic_world import World
from geminga_broker.log.api import LogError, LogTerminated, LogWriteFailed
from geminga_broker.policies.apply import apply_policies
from geminga_broker.policies.model import TopicPolicies
from geminga_broker.topic._tests.test_deduplication import ON, places, producer_of, topic_with
from geminga_broker.topic.persistent import PersistentTopic


async def topic_with_a_duplicate(
    world: World, connection: FakeConnection, **more: Any
) -> PersistentTopic:
    """Its original is not stored yet, and came by another connection."""
    topic = await topic_with(world)
    world.log.hold = True
    old = await producer_of(topic, FakeConnection("a"))
    old.publish([item(1)])
    old.close()
    (await producer_of(topic, connection, **more)).publish([item(1)])
    return topic


async def test_a_lost_original_disconnects_the_duplicates_producer(world: World):
    connection = FakeConnection("b")
    pending = []
    topic = await topic_with_a_duplicate(
        world, connection, publish_pending=lambda *d: pending.append(d)
    )
    world.log.fail = LogWriteFailed("disk")
    world.log.complete()
    assert connection.receipts == connection.errors == []
    assert connection.dropped_producers == [1]
    assert [sum(delta) for delta in zip(*pending, strict=True)] == [0, 0]
    world.log.fail = None
    world.log.hold = False
    again = FakeConnection("c")
    (await producer_of(topic, again)).publish([item(1)])
    assert places(again) == [(1, 0)]


@pytest.mark.parametrize("policies", [ON, TopicPolicies()], ids=["on", "turned off"])
@pytest.mark.parametrize("error", [LogWriteFailed("disk"), LogTerminated("the end")], ids=repr)
async def test_duplicates_behind_what_failed_wait_for_nothing(
    world: World, policies: TopicPolicies, error: LogError
) -> None:
    """They would count as pending of the connection for ever; nor are they told to be stored."""
    topic = await topic_with(world)
    world.log.hold = True
    connection = FakeConnection()
    pending: list[tuple[int, int]] = []
    producer = await producer_of(topic, connection, publish_pending=lambda *d: pending.append(d))
    producer.publish([item(1), item(2), item(2), item(1)])
    await apply_policies(topic, policies)
    world.log.fail = error
    world.log.complete()
    assert connection.receipts == []
    assert bool(connection.errors) == isinstance(error, LogTerminated)
    assert set(connection.dropped_producers) == {1}
    assert not producer._pending
    assert [sum(delta) for delta in zip(*pending, strict=True)] == [0, 0]


async def test_after_a_failed_write_its_messages_can_be_resent(world: World):
    topic = await topic_with(world)
    world.log.hold = True
    connection = FakeConnection()
    producer = await producer_of(topic, connection)
    producer.publish([item(1)])
    producer.publish([item(2)])
    world.log.fail = LogWriteFailed("disk")
    world.log.complete()
    world.log.fail = None
    world.log.complete()  # a later one comes through nevertheless
    producer.publish([item(3)])
    assert connection.dropped_producers == [1]
    assert connection.receipts == connection.errors == []
    world.log.hold = False
    again = FakeConnection("b")
    (await producer_of(topic, again)).publish([item(1), item(2), item(3)])
    stored = [e.metadata.sequence_id for e in world.log.entries]
    assert [n for n, _ in places(again)] == [1, 2, 3]
    assert sorted(set(stored)) == [1, 2, 3]


async def test_it_is_turned_off_while_duplicates_wait(world: World) -> None:
    """Their originals may still fail: they are not told to be stored, and come again."""
    connection = FakeConnection("b")
    topic = await topic_with_a_duplicate(world, connection)
    await apply_policies(topic, TopicPolicies())
    assert connection.receipts == connection.errors == []
    assert connection.dropped_producers == [1]
    world.log.hold = False
    world.log.complete()
    again = FakeConnection("c")
    (await producer_of(topic, again)).publish([item(1)])
    assert places(again) == [(1, 1)]
