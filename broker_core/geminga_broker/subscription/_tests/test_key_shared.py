"""Key_Shared: one key, one consumer, in order, under joins, leaves and redelivery (BR-31)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    key_of,
    position,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.strategies.key_shared import assign_by_hash
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_broker.topic.api import InitialPosition, KeySharedPolicy, SubType
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.keys import key_slot
from geminga_protocol.pb.pulsar_api_pb2 import KeySharedMode, ServerError


async def join(
    topic: PersistentTopic, number: int, policy: KeySharedPolicy | None = None, name: str = ""
) -> tuple[Consumer, FakeConnection]:
    connection = FakeConnection(f"c{number}")
    request = subscribe_request(
        connection,
        number,
        sub_type=SubType.Key_Shared,
        key_shared=policy,
        consumer_name=name or f"c{number}",
        initial_position=InitialPosition.Earliest,
    )
    return await topic.subscribe(request), connection


async def publish_keys(topic: PersistentTopic, keys: list[str]) -> None:
    producer = await topic.add_producer(producer_request(FakeConnection(), "p"))
    producer.publish([item(n, key=key) for n, key in enumerate(keys)])
    producer.close()


def keys_of(connection: FakeConnection) -> list[str]:
    return [key_of(data) for data in connection.payloads()]


class Batch:
    messages = 1


class Taker:
    def __init__(self, permits: int) -> None:
        self.permits = self.room = permits
        self.ready = True


def test_assignment_stops_a_hash_at_its_first_waiting_entry() -> None:
    rich, poor = Taker(10), Taker(1)
    owners = {1: rich, 2: poor, 3: None, 4: rich}
    items = [(Batch(), key_hash) for key_hash in (1, 2, 3, 2, 1, 4)]
    given, waiting = assign_by_hash(items, owners.get, {4})
    assert given == {rich: [items[0], items[4]], poor: [items[1]]}
    assert waiting == [items[2], items[3], items[5]]


async def test_keys_stay_with_one_consumer(world: World) -> None:
    topic = world.topic()
    members = [await join(topic, n) for n in range(3)]
    for consumer, _ in members:
        consumer.flow(1000)
    keys = [f"k{n % 30}" for n in range(300)]
    await publish_keys(topic, keys)
    await world.settle()
    seen = [keys_of(connection) for _, connection in members]
    assert sum(map(len, seen)) == 300
    assert all(seen)
    for first in range(3):
        for second in range(first):
            assert not set(seen[first]) & set(seen[second])


async def test_a_stuck_consumer_blocks_only_its_own_keys(world: World) -> None:
    topic = world.topic()
    one, one_connection = await join(topic, 1)
    _, _ = await join(topic, 2)
    one.flow(10_000)
    await publish_keys(topic, [f"k{n % 50}" for n in range(1000)])
    await world.settle()
    got = keys_of(one_connection)
    assert len(got) == 20 * len(set(got))
    assert len(got) < 1000


@pytest.mark.slow
async def test_look_ahead_is_bounded(world: World) -> None:
    topic = world.topic(look_ahead_per_consumer_entries=50, look_ahead_entries_max=80)
    one, _ = await join(topic, 1)
    _, _ = await join(topic, 2)
    one.flow(100_000)
    await publish_keys(topic, [f"k{n % 50}" for n in range(2000)])
    await world.settle()
    read = world.log.cursors["sub"].next
    assert one.sent < read < 500


async def test_a_moved_key_waits_for_its_old_owner(world: World) -> None:
    topic = world.topic()
    one, one_connection = await join(topic, 1)
    one.flow(1000)
    keys = [f"k{n}" for n in range(40)]
    await publish_keys(topic, keys)
    await world.settle()
    two, two_connection = await join(topic, 2)
    two.flow(1000)
    await publish_keys(topic, keys)
    await world.settle()
    moved = set(keys) - set(keys_of(one_connection)[40:])
    assert moved
    assert two_connection.entries() == []
    machine = topic.subscriptions["sub"].machine
    assert isinstance(machine, TrackedMachine)
    assert machine.strategy.draining.draining == len(moved)
    one.ack([Ack(position(n)) for n in range(40)])
    await world.settle()
    assert set(keys_of(two_connection)) == moved


async def test_a_leaving_consumers_entries_come_first_to_the_next(world: World) -> None:
    topic = world.topic()
    one, _ = await join(topic, 1)
    two, two_connection = await join(topic, 2)
    one.flow(1000)
    two.flow(1000)
    keys = [f"k{n % 20}" for n in range(100)]
    await publish_keys(topic, keys)
    await world.settle()
    one.close()
    await publish_keys(topic, keys)
    await world.settle()
    two.ack([Ack(p) for p in list(two.pending)])
    await world.settle()
    check_order(two_connection)
    assert sorted(two_connection.entries()) == list(range(200))


def check_order(*connections: FakeConnection) -> None:
    """Per consumer and key, entries come in order."""
    for connection in connections:
        last: dict[str, int] = {}
        for key, entry in zip(keys_of(connection), connection.entries(), strict=True):
            assert entry > last.get(key, -1), (key, entry)
            last[key] = entry


async def test_owner_leaves_while_a_waiting_entry_is_read(
    world: World, autojump_clock: object
) -> None:
    topic = world.topic()
    one, _ = await join(topic, 1)
    one.flow(20)
    keys = [f"k{n}" for n in range(20)]
    await publish_keys(topic, keys + keys)
    await world.settle()
    assert one.sent == 20
    two, two_connection = await join(topic, 2)
    two.flow(100)
    world.log.slow_s = 0.01
    one.flow(20)
    await trio.sleep(0.005)
    one.close()
    await trio.sleep(1)
    check_order(two_connection)
    assert len(two_connection.entries()) == 40


async def test_sticky_ranges(world: World) -> None:
    topic = world.topic()
    low = KeySharedPolicy(KeySharedMode.STICKY, ((0, 30_000),))
    high = KeySharedPolicy(KeySharedMode.STICKY, ((40_000, 65_535),))
    one, _ = await join(topic, 1, low)
    two, _ = await join(topic, 2, high)
    with pytest.raises(BrokerError) as refused:
        await join(topic, 3, KeySharedPolicy(KeySharedMode.STICKY, ((30_000, 31_000),)))
    assert refused.value.code == ServerError.ConsumerAssignError
    with pytest.raises(BrokerError) as refused:
        await join(topic, 3)
    assert refused.value.code == ServerError.ConsumerBusy
    one.flow(1000)
    two.flow(1000)
    await publish_keys(topic, [f"k{n}" for n in range(300)])
    await world.settle()
    nobody = 300 - one.sent - two.sent
    assert 10 < nobody < 100
    middle, connection = await join(
        topic, 4, KeySharedPolicy(KeySharedMode.STICKY, ((30_001, 39_999),))
    )
    middle.flow(1000)
    await world.settle()
    assert len(connection.entries()) == nobody
    assert topic.stats().subscriptions["sub"].key_shared_mode == "STICKY"


async def test_waiting_entries_are_dropped_when_acknowledged(world: World) -> None:
    topic = world.topic(look_ahead_entries_max=10)
    low = KeySharedPolicy(KeySharedMode.STICKY, ((0, 30_000),))
    one, connection = await join(topic, 1, low)
    one.flow(1000)
    mine = next(f"k{n}" for n in range(99) if key_slot(f"k{n}".encode()) <= 30_000)
    other = next(f"k{n}" for n in range(99) if key_slot(f"k{n}".encode()) > 30_000)
    await publish_keys(topic, [other] * 10 + [mine] + [other] * 9 + [mine])
    await world.settle()
    assert connection.entries() == []
    one.ack([Ack(position(3))])
    await world.settle()
    assert connection.entries() == [10]
    await topic.subscriptions["sub"].skip(19)
    await world.settle()
    assert connection.entries() == [10, 20]


async def test_out_of_order_does_not_wait(world: World) -> None:
    topic = world.topic()
    policy = KeySharedPolicy(allow_out_of_order=True)
    one, _ = await join(topic, 1, policy)
    one.flow(1000)
    keys = [f"k{n}" for n in range(40)]
    await publish_keys(topic, keys)
    await world.settle()
    two, two_connection = await join(topic, 2, policy)
    two.flow(1000)
    await publish_keys(topic, keys)
    await world.settle()
    assert two_connection.entries()


async def drain(
    members: dict[int, tuple[Consumer, FakeConnection]],
    acked: set[int],
    published: int,
    observe: Callable[[], None],
) -> None:
    """Give permits and acknowledge until all that was published is, or it takes too long."""
    for _ in range(published + 10):
        if len(acked) == published:
            break
        for consumer, _connection in members.values():
            consumer.flow(50)
        await trio.sleep(0.1)
        observe()
        for consumer, _connection in members.values():
            acked.update(place.entry_id for place in consumer.pending)
            consumer.ack([Ack(place) for place in list(consumer.pending)])


async def test_partly_acknowledged_batches_leave_permits_for_later_entries(world: World) -> None:
    topic = world.topic(batch_index_ack=True)
    first = FakeConnection("first")
    request = subscribe_request(first, 1, "sub", sub_type=SubType.Key_Shared)
    consumer = await topic.subscribe(request)
    consumer.flow(100)
    producer = await topic.add_producer(producer_request(FakeConnection()))
    producer.publish([item(n, batch=4) for n in range(5)])
    await world.settle()
    consumer.ack([Ack(position(n), (0b1000,), 4) for n in range(5)])
    consumer.close()
    second = FakeConnection("second")
    request = subscribe_request(second, 2, "sub", sub_type=SubType.Key_Shared)
    (await topic.subscribe(request)).flow(10)
    await world.settle()
    # Five messages, though the five entries have twenty.
    assert second.entries() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(30))
async def test_order_per_key_holds_whatever_happens(
    world: World, seed: int, autojump_clock: object
) -> None:
    """Joins, leaves, acks in any order, reads that take time: what is in flight of a key is with
    one consumer only, and a key's entries are first delivered in order.
    """
    rng = random.Random(seed)
    topic = world.topic(look_ahead_per_consumer_entries=rng.choice((20, 2000)))
    world.log.slow_s = rng.choice((0.0, 0.01))
    members: dict[int, tuple[Consumer, FakeConnection]] = {}
    acked: set[int] = set()
    first_seen: dict[str, int] = {}
    seen: set[int] = set()
    keys: list[str] = []
    counts: dict[int, int] = {}

    def observe() -> None:
        for number, (_, connection) in members.items():
            entries = connection.entries()
            for entry in entries[counts.get(number, 0) :]:
                if entry not in seen:
                    seen.add(entry)
                    key = keys[entry]
                    assert entry > first_seen.get(key, -1), (key, entry)
                    first_seen[key] = entry
            counts[number] = len(entries)
        holders: dict[str, int] = {}
        for number, (consumer, _) in members.items():
            for place in consumer.pending:
                assert holders.setdefault(keys[place.entry_id], number) == number

    async def step(number: int) -> None:
        what = rng.random()
        if what < 0.15 or not members:
            members[number] = await join(topic, number)
        elif what < 0.25:
            leaver = rng.choice(list(members))
            members.pop(leaver)[0].close()
        elif what < 0.5:
            new = [f"k{rng.randrange(12)}" for _ in range(rng.randrange(30))]
            keys.extend(new)
            await publish_keys(topic, new)
        elif what < 0.7:
            rng.choice(list(members.values()))[0].flow(rng.randrange(1, 20))
        else:
            consumer = rng.choice(list(members.values()))[0]
            pending = list(consumer.pending)
            chosen = rng.sample(pending, rng.randrange(len(pending) + 1))
            acked.update(place.entry_id for place in chosen)
            consumer.ack([Ack(place) for place in chosen])

    for number in range(120):
        await step(number)
        if rng.random() < 0.7:
            await trio.sleep(0.02)
        observe()
    if not members:
        members[999] = await join(topic, 999)
    await drain(members, acked, len(keys), observe)
    assert len(acked) == len(keys)
    assert topic.subscriptions["sub"].backlog_entries() == 0
