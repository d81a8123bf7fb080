"""Permits given = messages sent + available + held back, whatever happens (BR-32)."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_broker._tests.fake_client import (
    FakeConnection,
    item,
    producer_request,
    subscribe_request,
)
from geminga_broker._tests.topic_world import World
from geminga_broker.log.api import Ack
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.topic.api import InitialPosition, SubType
from geminga_protocol import ack_set

KINDS = (SubType.Exclusive, SubType.Failover, SubType.Shared, SubType.Key_Shared)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("flow"), st.integers(0, 2), st.integers(1, 20)),
        st.tuples(st.just("publish"), st.integers(1, 6), st.integers(1, 5)),
        st.tuples(st.just("ack"), st.integers(0, 2), st.integers(0, 10)),
        st.tuples(st.just("part"), st.integers(0, 2), st.integers(0, 4)),
        st.tuples(st.just("redeliver"), st.integers(0, 2), st.integers(0, 5)),
        st.tuples(st.just("join"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("full"), st.integers(0, 2), st.integers(0, 1)),
    ),
    max_size=40,
)


class Model:
    """The client's view: counts each consumer's messages, from the bytes."""

    def __init__(self, world: World, kind: int) -> None:
        self.kind = kind
        self.world = world
        self.topic = world.topic(unacked_per_consumer_max=30, batch_index_ack=True)
        self.members: dict[int, tuple[Consumer, FakeConnection]] = {}
        self.given: dict[int, int] = {}

    async def run(self, script: list[tuple[str, int, int]]) -> None:
        producer = await self.topic.add_producer(producer_request(FakeConnection(), "p"))
        for what, first, second in script:
            if what == "publish":
                batch = second if second > 1 else None
                producer.publish([item(n, batch=batch, key=f"k{n}") for n in range(first)])
            elif what == "join":
                await self.join(first)
            elif first in self.members:
                self.act(what, first, second)
            await self.world.settle()
            self.check()
        for consumer, _ in list(self.members.values()):
            consumer.close()
            self.check_one(consumer)
        producer.close()

    async def join(self, number: int) -> None:
        if number in self.members or (self.kind == SubType.Exclusive and self.members):
            return
        connection = FakeConnection(str(number))
        request = subscribe_request(
            connection, number, sub_type=self.kind, initial_position=InitialPosition.Earliest
        )
        self.members[number] = (await self.topic.subscribe(request), connection)
        self.given[number] = 0

    def act(self, what: str, number: int, value: int) -> None:
        consumer, connection = self.members[number]
        pending = list(consumer.pending)
        if what == "flow":
            consumer.flow(value)
            self.given[number] += value
        elif what == "ack":
            consumer.ack([Ack(place) for place in pending[:value]])
        elif what == "part" and pending:
            size = self.world.log.entries[pending[0].entry_id].messages
            words = ack_set.without(ack_set.full(size), value % size)
            consumer.ack([Ack(pending[0], words, size)])
        elif what == "redeliver":
            consumer.redeliver(pending[:value] or None)
        elif what == "full":
            connection.set_writable(bool(value))
        elif what == "leave":
            del self.members[number]
            consumer.close()
            assert consumer.unacked == 0

    def check(self) -> None:
        for number, (consumer, connection) in self.members.items():
            self.check_one(consumer)
            assert consumer.given == self.given[number]
            assert consumer.sent == self.seen(connection)
            biggest = max((e.messages for e in self.world.log.entries), default=1)
            assert consumer.permits > -biggest
            if self.kind in (SubType.Shared, SubType.Key_Shared):
                assert consumer.unacked == sum(consumer.pending.values())

    def seen(self, connection: FakeConnection) -> int:
        total = 0
        for command in connection.messages():
            message = command.message
            words = tuple(message.ack_set)
            size = self.world.log.entries[message.message_id.entryId].messages
            total += ack_set.cardinality(words) if words else size
        return total

    @staticmethod
    def check_one(consumer: Consumer) -> None:
        assert consumer.given == consumer.sent + consumer.permits + consumer.held


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(script=steps)
def test_permits_add_up(kind: int, script: list[tuple[str, int, int]]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await Model(World(nursery), kind).run(script)
            nursery.cancel_scope.cancel()

    trio.run(partial(main), clock=trio.testing.MockClock(autojump_threshold=0.05))
