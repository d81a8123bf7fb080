"""SENDs that come joined end as the same SENDs one by one: stored, answered, refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import trio

from geminga_broker._tests.fake_client import FakeConnection, item, payload, producer_request
from geminga_broker._tests.topic_world import World
from geminga_broker.log.api import LogTerminated, LogWriteFailed
from geminga_broker.policies.model import DeduplicationOptions
from geminga_broker.policies.rate_limit import Rate, RateLimit
from geminga_broker.session.publishing import publish_run
from geminga_broker.topic.deduplication import open_deduplication
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.producer import Producer
from geminga_broker.topic.publish_run import JoinedSents
from geminga_protocol.encode import send
from geminga_protocol.frames import FrameReader

IDS = range(200, 210)


def feed(producer: Producer, joined: bool, ids: range = IDS) -> None:
    if joined:
        producer.publish_joined(ids.start, [payload(n) for n in ids])
    else:
        producer.publish([item(n) for n in ids])


async def plain(world: World, topic: PersistentTopic, publish: Callable[[], None]) -> None:
    publish()


async def answered_in_parts(
    world: World, topic: PersistentTopic, publish: Callable[[], None]
) -> None:
    world.log.hold = True
    publish()
    [(entries, done)] = world.log.held
    for start, end in ((0, 3), (3, 4), (4, 10)):
        world.log._append(entries[start:end], done)


async def failed_in_parts(
    world: World, topic: PersistentTopic, publish: Callable[[], None]
) -> None:
    world.log.hold = True
    publish()
    [(entries, done)] = world.log.held
    world.log._append(entries[:3], done)
    world.log.fail = LogWriteFailed("disk")
    world.log._append(entries[3:], done)


async def terminated(world: World, topic: PersistentTopic, publish: Callable[[], None]) -> None:
    world.log.terminated = True
    publish()


async def refused_at_once(
    world: World, topic: PersistentTopic, publish: Callable[[], None]
) -> None:
    def append(entries: object, done: object) -> None:
        raise LogTerminated("terminated")

    world.log.append = append
    publish()


async def deduplicated(world: World, topic: PersistentTopic, publish: Callable[[], None]) -> None:
    topic.deduplication = await open_deduplication(world.log, DeduplicationOptions(), 0.0)
    publish()
    publish()


async def deduplicated_from_now_on(
    world: World, topic: PersistentTopic, publish: Callable[[], None]
) -> None:
    """Pending messages were appended before deduplication was on."""
    world.log.hold = True
    publish()
    topic.deduplication = await open_deduplication(world.log, DeduplicationOptions(), 0.0)
    world.log.complete()


async def encryption(world: World, topic: PersistentTopic, publish: Callable[[], None]) -> None:
    topic.set_options(topic.options.__class__(encryption_required=True))
    publish()


async def admission(world: World, topic: PersistentTopic, publish: Callable[[], None]) -> None:
    topic.admission = lambda each: "no" if each.sequence_id % 3 else None
    publish()


async def limited(world: World, topic: PersistentTopic, publish: Callable[[], None]) -> None:
    topic.publish_limits = (RateLimit(Rate(messages=5), trio.current_time()),)
    publish()


async def closing(world: World, topic: PersistentTopic, publish: Callable[[], None]) -> None:
    world.log.hold = True
    publish()
    [producer] = topic.producers.values()
    producer.finish(lambda: None)
    publish()
    world.log.complete()


@pytest.mark.parametrize(
    "course",
    [plain, answered_in_parts, failed_in_parts, terminated, refused_at_once, deduplicated,
     deduplicated_from_now_on, encryption, admission, limited, closing],
)  # fmt: skip
async def test_joined_sends_end_as_single_ones(
    course: Callable[[World, PersistentTopic, Callable[[], None]], object],
    nursery: trio.Nursery,
) -> None:
    ends = []
    for joined in (False, True):
        world = World(nursery)
        topic = world.topic()
        connection = FakeConnection()
        deltas: list[tuple[int, int]] = []
        pauses: list[float] = []
        producer = await topic.add_producer(
            producer_request(
                connection,
                publish_pending=lambda *delta, deltas=deltas: deltas.append(delta),
                throttle=pauses.append,
            )
        )
        await course(world, topic, partial(feed, producer, joined))
        assert not producer._pending
        assert (sum(n for n, _ in deltas), sum(size for _, size in deltas)) == (0, 0)
        stored = [(bytes(each.data), each.messages) for each in world.log.entries]
        rates = (producer.rates.messages, producer.rates.bytes, topic.rates.messages)
        ends.append(
            (connection.receipts, connection.errors, connection.dropped_producers, deltas, stored,
             rates, bool(pauses), producer.state)
        )  # fmt: skip
    assert ends[0] == ends[1]
    assert any(ends[0][:3]), "something is answered"


def test_what_receipts_need_of_joined_sends() -> None:
    sents = JoinedSents(7, [10, 20, 30])
    assert list(sents) == [(7, 0, 10), (8, 0, 20), (9, 0, 30)]
    assert sents[1:] == [(8, 0, 20), (9, 0, 30)]
    assert (sents[-1], len(sents)) == ((9, 0, 30), 3)


class Opened(dict[int, Producer]):
    @property
    def opened(self) -> Opened:
        return self

    def was_closed(self, producer_id: int) -> bool:
        return producer_id == 99


class FakeSession:
    connected = True

    def __init__(self) -> None:
        self.producers = Opened()


async def test_sends_of_several_producers_keep_each_ones_order(world: World) -> None:
    """Joined or not, with a producer between them that the broker closed."""
    topic = world.topic()
    session = FakeSession()
    connection = FakeConnection()
    for producer_id, name in ((1, "a"), (2, "b")):
        request = producer_request(connection, name)
        session.producers[producer_id] = await topic.add_producer(request)
    frames = []
    for producer_id, ids in (
        (1, range(200, 206)), (2, range(300, 303)), (99, range(400, 405)), (1, range(206, 207)),
        (2, range(303, 310)), (1, range(207, 215)), (1, range(220, 221)),
    ):  # fmt: skip
        for n in ids:
            data = bytes(payload(n))
            frames.append(send(producer_id, n, 1, len(data)) + data)
    found = FrameReader(joins=True).feed(b"".join(frames))
    assert len(found) < len(frames)
    assert publish_run(session, found, 0) == len(found)
    stored = [each.metadata.sequence_id for each in world.log.entries]
    assert [n for n in stored if n < 300] == [*range(200, 215), 220]
    assert [n for n in stored if n >= 300] == list(range(300, 310))
    assert sorted(n for n, _ in connection.receipts) == [
        *range(200, 215), 220, *range(300, 310)
    ]  # fmt: skip
