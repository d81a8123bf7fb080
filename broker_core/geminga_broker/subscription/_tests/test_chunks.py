"""Chunks of one message stay together on Shared subscriptions (BR-30)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import FakeConnection, item, position, producer_request
from geminga_broker._tests.topic_world import World
from geminga_broker.log.api import Ack, Entry
from geminga_broker.subscription import chunks as module
from geminga_broker.subscription._tests.audit import check_subscription
from geminga_broker.subscription._tests.test_dispatch_shared import join
from geminga_broker.subscription.chunks import Chunk, ChunkKeeper
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.strategies.choose import RoundRobin
from geminga_broker.subscription.strategies.key_shared import KeyShared
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_broker.topic.api import PublishItem, SubType
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata


class Member:
    """A consumer that puts messages together as a client does, and bears no gap."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.priority = 0
        self.room = 0
        self.writable = True
        self.parts: dict[int, list[int]] = {}
        self.held: set[int] = set()

    @property
    def ready(self) -> bool:
        return self.writable and self.room > 0

    def get(self, index: int, chunk: Chunk | None) -> list[int]:
        """Answers the entries of the message that is complete now."""
        self.room -= 1
        self.held.add(index)
        if chunk is None:
            return [index]
        if chunk.number == 0:
            self.parts[chunk.message] = []
        parts = self.parts[chunk.message]
        assert len(parts) == chunk.number, "a chunk is missing here"
        parts.append(index)
        return self.parts.pop(chunk.message) if chunk.last else []


class Group:
    """Rounds as the machine makes them, over a list of entries."""

    def __init__(self, entries: list[Chunk | None], rng: Random) -> None:
        self.entries = entries
        self.rng = rng
        self.keeper: ChunkKeeper[Member] = ChunkKeeper(RoundRobin(rng.choice((1, 3, 20))))
        self.members: list[Member] = []
        self.replay: set[int] = set()
        self.read = 0
        self.acked: set[int] = set()
        self.nacks = 0.2

    def round(self) -> None:
        self.replay.update(entry for _, entry in self.keeper.take_due())
        size = self.rng.randint(1, 8)
        again = bool(self.replay)
        if again:
            batch = sorted(self.replay)[:size]
            self.replay.difference_update(batch)
        else:
            batch = list(range(self.read, min(self.read + size, len(self.entries))))
            if self.rng.random() < 0.2 and self.members:
                self.redeliver(self.rng.choice(self.members))  # while it was read
        if self.rng.random() < 0.3 and self.members:
            self.rng.choice(self.members).room += 1  # so too
        chunks = {at: c for at, i in enumerate(batch) if (c := self.entries[i]) is not None}
        done: list[tuple[Member, list[int]]] = []

        def send(member: Member, first: int, end: int) -> None:
            for index in batch[first:end]:
                done.append((member, member.get(index, self.entries[index])))

        items = [(position(index), 1) for index in batch]
        waits = position(min(self.replay)) if self.replay else None
        end, queued = self.keeper.give_out(items, chunks, self.members, send, waits)
        self.replay.update(entry for _, entry in queued)
        if again:
            self.replay.update(batch[end:])
        else:
            self.read += end
        for member, complete in done:
            if complete and self.rng.random() < self.nacks:
                self.replay.update(complete)
            else:
                self.acked.update(complete)
            member.held.difference_update(complete)

    def redeliver(self, member: Member) -> None:
        self.replay |= member.held
        member.held.clear()

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        self.replay.update(entry for _, entry in self.keeper.forget(member))
        self.redeliver(member)

    def check(self) -> None:
        """Every entry is at one place."""
        parked = [entry for line in self.keeper._parked.values() for _, entry in line]
        places = [*parked, *self.replay, *self.acked, *(i for m in self.members for i in m.held)]
        assert sorted(places) == list(range(self.read))
        assert len(self.keeper) == len(parked)


def interleaved(rng: Random) -> list[Chunk | None]:
    """Messages of several producers, chunks among plain ones."""
    lines: list[list[Chunk | None]] = []
    for message in range(rng.randint(1, 8)):
        count = rng.choice((1, 2, 3, 9))
        line = [Chunk(message, number, number == count - 1) for number in range(count)]
        lines.append([None] if count == 1 else list(line))
    stored: list[Chunk | None] = []
    while lines := [line for line in lines if line]:
        stored.append(rng.choice(lines[:3]).pop(0))
    return stored


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32))
@pytest.mark.slow
def test_every_message_is_complete_at_one_consumer(seed: int) -> None:
    rng = Random(seed)
    group = Group(interleaved(rng), rng)
    for step in range(60):
        act = rng.random()
        if not group.members or (act < 0.1 and len(group.members) < 4):
            group.members.append(Member(f"m{step}"))
        elif act < 0.15:
            group.leave(rng.choice(group.members))
        elif act < 0.45:
            rng.choice(group.members).room += rng.randint(1, 5)
        elif act < 0.55:
            rng.choice(group.members).writable ^= True
        elif act < 0.6:
            group.redeliver(rng.choice(group.members))
        else:
            group.round()
        group.check()
    group.nacks = 0.0
    for member in group.members:
        member.writable = True
    for _ in range(300):
        for member in group.members:
            member.room = max(member.room, 2)
        group.round()
    for member in list(group.members):
        group.redeliver(member)  # parts of a message that a redelivery has split
    for _ in range(100):
        for member in group.members:
            member.room = max(member.room, 2)
        group.round()
    group.check()
    if group.members:
        assert group.acked == set(range(len(group.entries)))
        assert not group.keeper._owners
        assert not group.keeper._parked


def test_messages_without_end_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OWNERS_MAX", 10)
    keeper: ChunkKeeper[Member] = ChunkKeeper(RoundRobin(20))
    member = Member("m")
    member.room = 100
    items = [(position(index), 1) for index in range(30)]
    chunks = {index: Chunk(index, 0, last=False) for index in range(30)}
    assert keeper.give_out(items, chunks, [member], lambda *_: None, None) == (30, [])
    assert list(keeper._owners) == list(range(20, 30))


def part(number: int, count: int, uuid: str, key: str = "k") -> PublishItem:
    """A chunk as a producer sends it."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key=key)
    metadata.MergeFrom(MessageMetadata(uuid=uuid, num_chunks_from_msg=count, chunk_id=number))
    return PublishItem(1, memoryview(build(metadata, b"part")), 1)


def machine_of(topic: PersistentTopic) -> TrackedMachine[Consumer]:
    found = topic.subscriptions["sub"].machine
    assert isinstance(found, TrackedMachine)
    return found


def draining(topic: PersistentTopic) -> int:
    strategy = machine_of(topic).strategy
    assert isinstance(strategy, KeyShared)
    return strategy.draining.draining


async def publish(topic: PersistentTopic, *items: PublishItem) -> None:
    producer = await topic.add_producer(producer_request(FakeConnection(), "p"))
    for each in items:
        producer.publish([each])
    producer.close()


async def test_chunks_wait_for_their_consumer_while_others_go_on(world: World) -> None:
    topic = world.topic()
    one, to_one = await join(topic, 1)
    one.flow(1)
    await publish(topic, part(0, 3, "a"))
    await world.settle()
    two, to_two = await join(topic, 2)
    two.flow(100)
    await publish(topic, part(1, 3, "a"), item(7), part(2, 3, "a"), item(8))
    await world.settle()
    assert to_one.entries() == [0]
    assert to_two.entries() == [2, 4]
    assert machine_of(topic).strategy.waiting == 2
    one.flow(1)
    await world.settle()
    assert to_one.entries() == [0, 1]
    one.flow(1)
    await world.settle()
    assert to_one.entries() == [0, 1, 3]
    assert to_two.entries() == [2, 4]
    check_subscription(topic.subscriptions["sub"])


async def test_chunks_go_to_the_next_when_their_consumer_leaves(world: World) -> None:
    topic = world.topic()
    one, _ = await join(topic, 1)
    one.flow(1)
    await publish(topic, part(0, 2, "a"))
    await world.settle()
    two, to_two = await join(topic, 2)
    three, to_three = await join(topic, 3)
    for consumer in (two, three):
        consumer.flow(100)
    await publish(topic, part(1, 2, "a"))
    await world.settle()
    assert to_two.entries() == to_three.entries() == []
    one.close()
    await world.settle()
    assert sorted([to_two.entries(), to_three.entries()]) == [[], [0, 1]]


async def test_duplicate_chunks_go_to_the_messages_consumer(world: World) -> None:
    topic = world.topic()
    consumers = [await join(topic, number) for number in (1, 2, 3)]
    for consumer, _ in consumers:
        consumer.flow(100)
    twice = [part(1, 3, "a"), part(2, 3, "a")]
    await publish(topic, part(0, 3, "a"), *twice, part(0, 2, "b"), *twice, part(1, 2, "b"))
    await world.settle()
    got = sorted(connection.entries() for _, connection in consumers)
    assert got == [[], [0, 1, 2, 4, 5], [3, 6]]


async def test_acknowledged_waiting_chunks_are_dropped(world: World) -> None:
    topic = world.topic()
    one, to_one = await join(topic, 1)
    one.flow(1)
    await publish(topic, part(0, 2, "a"))
    await world.settle()
    two, _ = await join(topic, 2)
    two.flow(100)
    await publish(topic, part(1, 2, "a"))
    await world.settle()
    two.ack([Ack(position(1))])
    assert machine_of(topic).strategy.waiting == 0
    one.flow(5)
    await world.settle()
    assert to_one.entries() == [0]


async def test_key_shared_keeps_a_hash_until_the_message_is_whole(world: World) -> None:
    topic = world.topic()
    one, to_one = await join(topic, 1, SubType.Key_Shared)
    one.flow(2)
    keys = ("a", "b")
    for key in keys:
        await publish(topic, part(0, 2, key, key))
    await world.settle()
    two, to_two = await join(topic, 2, SubType.Key_Shared)
    two.flow(100)
    assert draining(topic), "a key should have moved: choose others"
    for key in keys:
        await publish(topic, part(1, 2, key, key))
        await publish(topic, item(9, key=key))
    await world.settle()
    assert to_one.entries() == [0, 1]
    one.flow(100)
    await world.settle()
    assert {2, 4} <= set(to_one.entries())
    one.ack([Ack(position(each)) for each in to_one.entries()])
    await world.settle()
    assert sorted(to_one.entries() + to_two.entries()) == list(range(6))
    two.ack([Ack(position(each)) for each in to_two.entries()])
    assert not draining(topic)
    check_subscription(topic.subscriptions["sub"])


async def test_key_shared_abandoned_chunks_free_their_hash(world: World) -> None:
    topic = world.topic()
    one, to_one = await join(topic, 1, SubType.Key_Shared)
    one.flow(100)
    for key in ("a", "b"):
        await publish(topic, part(0, 2, key, key))
    await world.settle()
    two, to_two = await join(topic, 2, SubType.Key_Shared)
    two.flow(100)
    assert draining(topic)
    one.ack([Ack(position(each)) for each in to_one.entries()])  # they expired at the client
    assert not draining(topic)
    for key in ("a", "b"):
        await publish(topic, part(1, 2, key, key))
    await world.settle()
    assert to_two.entries(), "the key that moved"
    check_subscription(topic.subscriptions["sub"])


@pytest.mark.parametrize("kind", [SubType.Shared, SubType.Key_Shared])
async def test_acknowledged_during_its_read_is_not_sent(
    world: World, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = world.topic()
    consumer, connection = await join(topic, 1, kind)
    await publish(topic, *(item(n, key="k") for n in range(3)))
    subscription = topic.subscriptions["sub"]
    read = subscription.cursor.read

    async def slow(**bounds: int) -> Sequence[Entry]:
        entries = await read(**bounds)
        consumer.ack([Ack(position(1))])
        return entries

    monkeypatch.setattr(subscription.cursor, "read", slow, raising=True)
    consumer.flow(10)
    await world.settle()
    assert connection.entries() == [0, 2]
    assert consumer.unacked == 2
    check_subscription(subscription)


async def test_key_shared_drains_again_once_a_message_is_given_up(world: World) -> None:
    topic = world.topic()
    one, to_one = await join(topic, 1, SubType.Key_Shared)
    one.flow(100)
    for key in ("a", "b"):
        await publish(topic, part(0, 2, key, key), item(1, key=key))
    await world.settle()
    two, to_two = await join(topic, 2, SubType.Key_Shared)
    two.flow(100)
    one.ack([Ack(position(0)), Ack(position(2))])
    assert draining(topic) == 2, "by the plain entries that are held"
    await publish(topic, item(2, key="a"), item(2, key="b"))
    await world.settle()
    assert len(to_one.entries()) == 4
    assert to_two.entries() == []
    one.ack([Ack(position(1)), Ack(position(3))])
    await world.settle()
    assert to_two.entries() == [4, 5]
    check_subscription(topic.subscriptions["sub"])
