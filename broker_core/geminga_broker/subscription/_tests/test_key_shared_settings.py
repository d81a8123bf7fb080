"""Key_Shared's settings and statistics (BR-31, PIP-379)."""

from __future__ import annotations

import pytest

from geminga_broker._tests.fake_client import position
from geminga_broker._tests.topic_world import World
from geminga_broker.config import load_config
from geminga_broker.log.api import Ack
from geminga_broker.policies.broker_options import broker_options
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription._tests.test_key_shared import join, publish_keys
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.effects import Effect
from geminga_broker.subscription.events import EntriesRead, Event, RoundBegun
from geminga_broker.subscription.strategies.key_shared import (
    LOOK_AHEAD_ENTRIES,
    look_ahead,
)
from geminga_protocol.keys import key_slot


async def test_statistics_have_draining_hashes(world: World) -> None:
    topic = world.topic(consistent_hashing=False)
    one, connection = await join(topic, 1)
    one.flow(1000)
    keys = [f"k{n}" for n in range(40)]
    await publish_keys(topic, keys * 2)
    await world.settle()
    await join(topic, 2)
    moved = sorted(slot for key in keys if (slot := key_slot(key.encode())) <= 32768)
    told = topic.stats().subscriptions["sub"]
    first, second = told.consumers
    assert (first.key_hash_range_arrays, second.key_hash_range_arrays) == (
        [(32769, 65536)],
        [(0, 32768)],
    )
    assert [each.hash for each in first.draining_hashes or ()] == moved
    assert {(each.unack_msgs, each.blocked_attempts) for each in first.draining_hashes or ()} == {
        (2, 0)
    }
    assert second.draining_hashes == []
    assert told.draining_hashes_count == first.draining_hashes_count == len(moved)
    assert told.draining_hashes_unacked_messages == 2 * len(moved)
    one.ack([Ack(position(n)) for n in range(80)])
    told = topic.stats().subscriptions["sub"]
    assert told.draining_hashes_cleared_total == len(moved)
    assert told.draining_hashes_count == 0
    assert len(connection.entries()) == 80


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((2000, 20_000, 0, 0), 6000),
        ((0, 20_000, 5, 5), 20_000),
        ((2000, 0, 5, 5), 6000),
        ((2000, 500, 5, 5), 500),
        ((0, 0, 5, 100), 15),
        ((0, 0, 0, 100), 100),
        ((0, 0, 0, 0), LOOK_AHEAD_ENTRIES),
    ],
)
def test_look_ahead_of_three_consumers(limits: tuple[int, int, int, int], expected: int) -> None:
    options = TopicOptions(
        look_ahead_per_consumer_entries=limits[0],
        look_ahead_entries_max=limits[1],
        unacked_per_consumer_max=limits[2],
        unacked_per_subscription_max=limits[3],
    )
    assert look_ahead(options, 3) == expected


def test_settings_come_from_the_configuration() -> None:
    keys = {
        "subscriptionKeySharedUseConsistentHashing": "false",
        "subscriptionKeySharedConsistentHashingReplicaPoints": "7",
        "keySharedLookAheadMsgInReplayThresholdPerConsumer": "8",
        "keySharedLookAheadMsgInReplayThresholdPerSubscription": "9",
    }
    options = broker_options(load_config(None, {}, keys))
    assert not options.consistent_hashing
    assert options.hash_points == 7
    assert options.look_ahead_per_consumer_entries == 8
    assert options.look_ahead_entries_max == 9


async def test_many_consumers_get_more_in_a_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = world.topic(dispatch_entries_max=10)
    members = [await join(topic, number) for number in range(60)]
    for consumer, _ in members:
        consumer.flow(10)
    machine = topic.subscriptions["sub"].machine
    assert machine is not None
    reads: list[int] = []
    step = machine.step

    def counted(event: Event[Consumer]) -> list[Effect[Consumer]]:
        if isinstance(event, RoundBegun):
            reads.append(0)
        elif isinstance(event, EntriesRead) and event.entries:
            reads[-1] += 1
        return step(event)

    monkeypatch.setattr(machine, "step", counted)
    await publish_keys(topic, [f"k{n}" for n in range(30)])
    await world.settle()
    assert sum(len(connection.entries()) for _, connection in members) == 30
    assert [count for count in reads if count] == [3]
