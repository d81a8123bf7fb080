"""Acknowledgements of parts of batches where parts are not kept (BR-06)."""

from __future__ import annotations

import pytest

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.log.api import Ack
from geminga_broker.topic.api import InitialPosition, SubType
from geminga_protocol import ack_set


@pytest.mark.parametrize("kind", [SubType.Exclusive, SubType.Failover])
@pytest.mark.parametrize("kept", [False, True])
async def test_a_part_acknowledged_cumulatively_leaves_its_batch(
    world: World, kind: int, kept: bool
) -> None:
    """All before the batch is done; the rest of it must come again after a restart."""
    topic = world.topic(batch_index_ack=kept)
    request = subscribe_request(
        FakeConnection(), 1, sub_type=kind, initial_position=InitialPosition.Earliest
    )
    consumer = await topic.subscribe(request)
    consumer.flow(100)
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n, batch=3) for n in range(3)])
    await world.settle()
    second = world.log.entries[1].position
    consumer.ack([Ack(second, ack_set.without(ack_set.full(3), 0), 3)], cumulative=True)
    cursor = world.log.cursors["sub"]
    assert cursor.mark_delete == world.log.entries[0].position
    assert not cursor.is_deleted(second)
    assert bool(cursor.ack_set(second)) == kept
    consumer.ack([Ack(second)], cumulative=True)
    assert cursor.mark_delete == second
