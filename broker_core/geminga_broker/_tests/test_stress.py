"""Random clients against a whole broker: invariants of all their actions (BR-24, BR-30..36)."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
import trio
import trio.testing

from geminga_broker._tests.chaos import BATCH_MAX, Books, Peer, SubType
from geminga_broker._tests.wire import WireBroker, open_broker
from geminga_broker.config import BrokerConfig
from geminga_broker.session.session import Session
from geminga_broker.subscription._tests.audit import (
    CONSUMER_UNACKED_MAX,
    Audit,
    check_subscription,
    install,
)
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.subscription import Subscription
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.producer import Producer
from geminga_protocol.commands import consuming
from geminga_protocol.ids import EARLIEST, Position
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode
from geminga_protocol.topic_name import TopicName
from geminga_runtime._tests.scheduling import scheduled_by

A = "persistent://public/default/a"
B = "persistent://public/default/b"
N = "non-persistent://public/default/n"
C = "persistent://public/default/c"
NAMES = {
    "ex": SubType.Exclusive,
    "fo": SubType.Failover,
    "sh": SubType.Shared,
    "ks": SubType.Key_Shared,
}
SUBSCRIPTION_UNACKED_MAX = 90
PEERS = 6
STEPS = 60


def config() -> BrokerConfig:
    base = BrokerConfig()
    return replace(
        base,
        clients=replace(
            base.clients,
            batch_index_ack=True,
            unacked_per_consumer_max=CONSUMER_UNACKED_MAX,
            unacked_per_subscription_max=SUBSCRIPTION_UNACKED_MAX,
            dispatch_entries_max=10,
        ),
        log=replace(base.log, ledger_entries_max=60, rollover_min_minutes=0),
    )


# ---- actions of clients ----


class Actor:
    """Does random things on one connection after the other."""

    def __init__(self, books: Books, broker: WireBroker, nursery: trio.Nursery) -> None:
        self.books = books
        self.rng = books.rng
        self.broker = broker
        self.nursery = nursery
        self.peer = self._connect()

    def _connect(self) -> Peer:
        return Peer(self.books, self.broker.client(sockets=self.rng.random() < 0.3))

    async def start(self) -> None:
        await self.peer.wire.connect()
        self.nursery.start_soon(self.peer.run)

    async def run(self) -> None:
        await self.start()
        for _ in range(STEPS):
            await self.step()
            if self.rng.random() < 0.3:
                await trio.sleep(self.rng.random() * 2)
        await self.reconnect()

    async def reconnect(self) -> None:
        await self.peer.wire.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        self.peer = self._connect()
        await self.start()

    async def step(self) -> None:
        rng = self.rng
        actions = [
            (4, self.produce),
            (6, self.consume),
            (6, self.acknowledge),
            (2, self.redeliver),
            (1, self.seek),
            (1, self.close_one),
            (1, self.pause),
            (1, self.ask_something),
            (0.4, self.reconnect),
        ]
        weights = [weight for weight, _ in actions]
        await rng.choices([action for _, action in actions], weights)[0]()

    async def produce(self) -> None:
        peer, rng = self.peer, self.rng
        if len(peer.producers) < 2:
            topic = rng.choice((A, A, A, B, N, C))
            shared = topic != C or rng.random() < 0.3
            mode = rng.randrange(4) if not shared else ProducerAccessMode.Shared
            await peer.open_producer(topic, ProducerAccessMode.ValueType(mode))
        for producer in list(peer.producers.values()):
            if not producer.ready:
                continue
            frames = [peer.encode(producer)[0] for _ in range(rng.randrange(12))]
            if rng.random() < 0.1:
                await peer.close_producer(producer, b"".join(frames))
            else:
                await peer.send(*frames)

    async def consume(self) -> None:
        peer, rng = self.peer, self.rng
        if len(peer.consumers) < 4:
            name, kind = rng.choice(list(NAMES.items()))
            topic = rng.choice((A, A, B, N))
            if rng.random() < 0.1:
                await self.read()
            else:
                await peer.subscribe(topic, name, kind)
        for consumer in list(peer.consumers.values()):
            if rng.random() < 0.7:
                await peer.flow(consumer, rng.randrange(1, 40))

    async def read(self) -> None:
        start = MessageId(-1, -1)
        name = f"reader-{self.rng.randrange(3)}"
        await self.peer.subscribe(A, name, SubType.Exclusive, durable=False, start_message_id=start)

    async def acknowledge(self) -> None:
        peer, rng = self.peer, self.rng
        for consumer in list(peer.consumers.values()):
            held = sorted(consumer.held)
            if not held:
                continue
            if rng.random() < 0.2:
                await peer.ack(consumer, [(rng.choice(held), 0)], cumulative=True)
                continue
            chosen = rng.sample(held, rng.randint(1, len(held)))
            parts = [(p, rng.choice((0, 0, 0, rng.getrandbits(BATCH_MAX)))) for p in chosen]
            if rng.random() < 0.1:
                parts.append((Position(rng.randrange(9), 10**6), 0))
            if rng.random() < 0.1:
                parts += [(p, rng.getrandbits(BATCH_MAX)) for p, _ in parts[:3]]
            await peer.ack(consumer, parts, cumulative=False)

    async def redeliver(self) -> None:
        for consumer in list(self.peer.consumers.values()):
            held = sorted(consumer.held)
            if held and self.rng.random() < 0.5:
                few = self.rng.sample(held, self.rng.randint(1, len(held)))
                await self.peer.redeliver(consumer, self.rng.choice((few, [])))

    async def seek(self) -> None:
        if not self.peer.consumers or self.rng.random() < 0.5:
            return
        rng = self.rng
        consumer = rng.choice(list(self.peer.consumers.values()))
        places = [MessageId(-1, -1), MessageId((1 << 63) - 1, (1 << 63) - 1)]
        places += [MessageId(*position) for position in consumer.held]
        number = consumer.consumer_id
        if rng.random() < 0.3:
            when_ms = rng.randrange(1000, self.books.clock_ms + 1)
            await self.peer.request(
                lambda request: consuming.seek(number, request, publish_time_ms=when_ms)
            )
        else:
            place = rng.choice(places)
            await self.peer.request(
                lambda request: consuming.seek(number, request, message_id=place)
            )

    async def close_one(self) -> None:
        if self.peer.consumers:
            await self.peer.close_consumer(self.rng.choice(list(self.peer.consumers.values())))

    async def pause(self) -> None:
        await self.peer.pause(self.rng.random() * 5)

    async def ask_something(self) -> None:
        if self.peer.consumers:
            number = next(iter(self.peer.consumers))
            await self.peer.request(lambda r: consuming.get_last_message_id(number, r))
            await self.peer.request(lambda r: consuming.consumer_stats(r, number))


async def disturb(broker: WireBroker, rng: Random) -> None:
    """Unload topics now and then, and end one for good."""
    for turn in range(12):
        await trio.sleep(rng.random() * 6)
        for topic in list(broker.service.topics.loaded.values()):
            if isinstance(topic, PersistentTopic):
                for subscription in topic.subscriptions.values():
                    check_subscription(subscription)
        await broker.service.topics.unload(TopicName.parse(rng.choice((A, B, C, N))))
        if turn == 8:
            topic = await broker.service.topics.get(TopicName.parse(B), create=True)
            await topic.terminate()


async def drain(books: Books, broker: WireBroker, topic: str, name: str) -> None:
    """Whatever is stored was acknowledged, passed by a seek, or still comes; and nothing comes of
    which the acknowledgement was confirmed.
    """
    key = (topic, name)
    got: set[tuple[Position, int]] = set()
    before = set(books.firm.get(key, ()))
    async with trio.open_nursery() as nursery:
        peer = Peer(books, broker.client())
        await peer.wire.connect()
        nursery.start_soon(peer.run)
        consumer = await peer.subscribe(topic, name, NAMES[name])
        assert consumer is not None
        consumer.on_part = lambda position, index: got.add((position, index))
        loaded = await broker.service.topics.get(TopicName.parse(topic), create=False)
        with trio.fail_after(100):
            while loaded.subscriptions[name].backlog_entries():
                await peer.flow(consumer, 1000)
                await trio.sleep(1.5)
                parts = [(position, 0) for position in sorted(consumer.held)]
                for _ in range(len(parts)):
                    await peer.ack(consumer, [parts.pop(0)], cumulative=False)
        await peer.close_consumer(consumer)
        await peer.wire.stream.aclose()
    skipped = books.skipped_upto.get(key, Position(-1, -1))
    known = books.acked.get(key, set())
    lost = [
        position
        for position, messages in books.stored.get(topic, {}).items()
        for index in range(messages)
        if position > skipped and (position, index) not in known | got
    ]
    assert not lost, f"{topic} {name} lost {lost}"
    again = got & before
    assert not again, f"{topic} {name} sent again {sorted(again)}"


def alive(*kinds: type) -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, kinds)]


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Audit]:
    # pytest's log records refer to their arguments, which would look like leaks.
    logging.disable(logging.CRITICAL)
    yield install(monkeypatch, Books(Random(0)))
    logging.disable(logging.NOTSET)


@pytest.fixture
def repeatable(seed: int) -> Iterator[None]:
    with scheduled_by(Random(seed)):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("failing", [0.0, 0.03])
async def test_random_clients(
    seed: int,
    failing: float,
    audit: Audit,
    repeatable: None,
    autojump_clock: trio.testing.MockClock,
) -> None:
    gc.collect()
    others = alive(Session, Producer, Consumer)  # of earlier tests in this process
    rng = Random(seed)
    books = audit.books
    books.rng = rng
    books.failing = failing
    async with open_broker(config()) as broker:
        service = broker.service
        for topic in (A, B):
            made = await service.topics.get(TopicName.parse(topic), create=True)
            for name in NAMES:
                await made.create_subscription(name, EARLIEST)
        async with trio.open_nursery() as readers:
            async with trio.open_nursery() as nursery:
                actors = [Actor(books, broker, readers) for _ in range(PEERS)]
                for actor in actors:
                    nursery.start_soon(actor.run)
                nursery.start_soon(disturb, broker, rng)
            for actor in actors:
                await actor.peer.wire.stream.aclose()
        books.failing = 0.0
        await trio.sleep(20)
        assert not audit.failures, audit.failures[0]
        assert audit.sends > 50
        assert len(books.stored[A]) > 50
        for topic in (A, B):
            for name in NAMES:
                await drain(books, broker, topic, name)
        await trio.sleep(20)
        assert not service.connections.sessions
        assert service.connections.publish_bytes == 0
        for topic in service.topics.loaded.values():
            assert topic.idle
            assert not topic.producers
            for subscription in topic.subscriptions.values():
                assert not subscription.consumers
                if isinstance(subscription, Subscription):
                    assert not subscription.pump._running
        del actors, actor
    gc.collect()
    assert not [
        each
        for each in alive(Session, Producer, Consumer)
        if not any(each is one for one in others)
    ]
