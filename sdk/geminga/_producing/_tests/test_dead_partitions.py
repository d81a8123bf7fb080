"""Partitions that end while their producer continues, and searches for new ones."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import RoutingMode
from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga_protocol.commands import answers, lookup, producing
from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

TOPIC = "persistent://public/default/p"


class GoneSession(FakeSession):
    """A session that recreates deleted topics only on request."""

    def on_partitionMetadata(self, body: Any, frame: Frame) -> None:
        name = body.topic
        if body.metadata_auto_creation_enabled or name in self.broker.partitions:
            self.broker.topic(name)
            super().on_partitionMetadata(body, frame)
            return
        code = ServerError.TopicNotFound
        self.stream.write(lookup.partitioned_metadata_error(body.request_id, code, "not there"))

    def on_producer(self, body: Any, frame: Frame) -> None:
        if body.topic in deleted:
            self.stream.write(answers.error(body.request_id, ServerError.TopicNotFound, "deleted"))
        else:
            super().on_producer(body, frame)


deleted: set[str] = set()


def end(broker: FakeBroker, index: int, how: str) -> None:
    name = f"{TOPIC}-partition-{index}"
    for session in broker.sessions:
        for producer_id, (topic, producer) in list(session.producers.items()):
            if topic.name != name:
                continue
            if how == "terminated":
                code = ServerError.TopicTerminatedError
                session.stream.write(producing.send_error(producer_id, 0, code, "terminated"))
                continue
            topic.producers.pop(producer)
            del session.producers[producer_id]
            if how == "deleted":
                deleted.add(name)
            else:
                broker.fail["producer"] = [(ServerError.ProducerFenced, "fenced")]
            session.stream.write(producing.close_producer(producer_id, 0))


@pytest.mark.parametrize("how", ["deleted", "terminated", "fenced"])
async def test_the_others_take_their_turns(how: str, autojump_clock: MockClock) -> None:
    deleted.clear()
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = GoneSession
        broker.partitions[TOPIC] = 4
        producer = await client.create_producer("p", batching_enabled=False)
        await producer.send(b"")
        end(broker, 2, how)
        await trio.sleep(1)
        ids = [await producer.send(b"") for _ in range(30)]
        assert {each.partition for each in ids} == {0, 1, 3}
        for n in (0, 1, 3):
            end(broker, n, how)
            await trio.sleep(1)
        with pytest.raises(geminga.BrokerError):
            await producer.send(b"")


async def test_keys_stay_with_their_partition(autojump_clock: MockClock) -> None:
    deleted.clear()
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = GoneSession
        broker.partitions[TOPIC] = 2
        producer = await client.create_producer("p", routing_mode=RoutingMode.SINGLE_PARTITION)
        places = {key: (await producer.send(b"", partition_key=key)).partition for key in "abcd"}
        dead = places["a"]
        end(broker, dead, "terminated")
        await trio.sleep(1)
        for key, partition in places.items():
            if partition == dead:
                with pytest.raises(geminga.TopicTerminatedError):
                    await producer.send(b"", partition_key=key)
            else:
                assert (await producer.send(b"", partition_key=key)).partition == partition


async def test_a_deleted_partition_that_is_there_again(autojump_clock: MockClock) -> None:
    deleted.clear()
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = GoneSession
        broker.partitions[TOPIC] = 3
        producer = await client.create_producer(
            "p", batching_enabled=False, auto_update_partitions_interval_s=10
        )
        end(broker, 1, "deleted")
        await trio.sleep(15)
        assert {(await producer.send(b"")).partition for _ in range(9)} == {0, 2}
        deleted.clear()
        await trio.sleep(10)
        assert {(await producer.send(b"")).partition for _ in range(9)} == {0, 1, 2}
        assert producer.statistics().total_msgs_sent == 18


@pytest.mark.parametrize("consumes", [False, True])
async def test_a_look_for_partitions_makes_no_topic(
    consumes: bool, autojump_clock: MockClock
) -> None:
    options = {"auto_update_partitions_interval_s": 10}
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = GoneSession
        broker.partitions[TOPIC] = 2
        if consumes:
            await client.subscribe("p", "s", **options)
        else:
            await client.create_producer("p", **options)
        del broker.partitions[TOPIC]
        broker.topics.pop(TOPIC, None)
        await trio.sleep(60)
        assert TOPIC not in broker.topics
        # A recreated topic with that name is found.
        broker.partitions[TOPIC] = 3
        await trio.sleep(15)
        grown = broker.topics[f"{TOPIC}-partition-2"]
        assert grown.subscriptions if consumes else grown.producers


@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_cancelled_send_is_sent(size: int, autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t")
        with trio.CancelScope() as scope:
            scope.cancel()
            await producer.send(bytes(size))
        assert scope.cancelled_caught
        await producer.flush()
        assert len(broker.topic("t").entries) == 1
