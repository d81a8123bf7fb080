from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import ProducerAccessMode
from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

TOPIC = "persistent://public/default/p"


def producers(broker: FakeBroker) -> int:
    return sum(bool(topic.producers) for topic in broker.topics.values())


def entries(broker: FakeBroker) -> list[int]:
    count = broker.partitions[TOPIC]
    return [len(broker.topic(f"{TOPIC}-partition-{n}").entries) for n in range(count)]


async def test_lazy_start(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 4
        broker.topic(f"{TOPIC}-partition-2").last_sequence_ids["me"] = 41
        producer = await client.create_producer(
            "p",
            producer_name="me",
            lazy_start_partitioned_producers=True,
            message_router=lambda message, _: int(message.data),
        )
        assert producers(broker) == 1
        assert producer.is_connected
        receipts = [producer.send_nowait(b"2") for _ in range(5)]
        assert not receipts[0].is_done
        await producer.flush()
        assert [receipt.message_id.partition for receipt in receipts] == [2] * 5
        assert producer.last_sequence_id == 46
        assert 1 <= producers(broker) <= 2
        await producer.send(b"3")
        await producer.submit(b"1")
        await producer.aclose()
        assert producers(broker) == 0
        assert entries(broker) == [0, 1, 1, 1]


async def test_lazy_failures_are_the_messages(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 2
        broker.fail["producer"] = [(ServerError.AuthorizationError, "no")]
        with pytest.raises(geminga.AuthorizationError):
            await client.create_producer("p", lazy_start_partitioned_producers=True)
        producer = await client.create_producer("p", lazy_start_partitioned_producers=True)
        broker.fail["producer"] = [(ServerError.TopicNotFound, "no")]
        results = []
        for _ in range(2):
            try:
                results.append(await producer.send(b""))
            except geminga.TopicNotFoundError:
                results.append(None)
        assert results.count(None) == 1
        assert producer.pending_messages == 0


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_lazy_partition_whose_brokers_were_away_is_started_anew(
    keyed: bool, autojump_clock: MockClock
) -> None:
    async with fake_broker() as broker, broker.client(operation_timeout_s=5) as client:
        broker.partitions[TOPIC] = 2
        producer = await client.create_producer(
            "p",
            lazy_start_partitioned_producers=True,
            message_router=(lambda message, _: int(message.data)) if keyed else None,
            batching_enabled=False,
        )
        (lazy,) = [part for part in producer._parts if not part.is_started]
        broker.refuse_connections = 10**6
        broker.cut()
        with pytest.raises(geminga.ConnectionFailedError):
            while True:
                with trio.move_on_after(10):
                    await producer.send(b"%d" % producer._parts.index(lazy))
        broker.refuse_connections = 0
        await trio.sleep(100)
        for n in range(10):
            await producer.send(b"%d" % (n % 2))
        assert all(count >= 5 for count in entries(broker))
        assert producer.is_connected
        assert producer.statistics().partition_stats[lazy.topic].total_send_failed == 1


async def test_exclusive_is_never_lazy(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 3
        await client.create_producer(
            "p", lazy_start_partitioned_producers=True, access_mode=ProducerAccessMode.EXCLUSIVE
        )
        assert producers(broker) == 3


class Asked(FakeSession):
    """Notes the requested partitions, and responds for the first one a second late."""

    def on_producer(self, body: Any, frame: Frame) -> None:
        asked.append((trio.current_time(), body.topic[-1]))
        answer = super().on_producer
        if body.topic.endswith("-partition-0"):
            self.broker.nursery.start_soon(self._later, answer, body, frame)
        else:
            answer(body, frame)

    async def _later(self, answer: Callable[[Any, Frame], None], body: Any, frame: Frame) -> None:
        await trio.sleep(1)
        answer(body, frame)


asked: list[tuple[float, str]] = []


@pytest.mark.parametrize("mode", ProducerAccessMode)
async def test_who_has_the_first_partition_gets_the_others(
    mode: ProducerAccessMode, autojump_clock: MockClock
) -> None:
    """Two producers that wait for all partitions at once would get some each."""
    asked.clear()
    async with fake_broker() as broker, broker.client() as client:
        broker.session_type = Asked
        broker.partitions[TOPIC] = 3
        began_s = trio.current_time()
        await client.create_producer("p", access_mode=mode)
        is_shared = mode is ProducerAccessMode.SHARED
        assert {part for at_s, part in asked if at_s < began_s + 1} == (
            {"0", "1", "2"} if is_shared else {"0"}
        )
        assert {part for _, part in asked} == {"0", "1", "2"}


@pytest.mark.parametrize("lazy", [True, False])
async def test_growing(autojump_clock: MockClock, lazy: bool) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 1
        producer = await client.create_producer(
            "p",
            auto_update_partitions_interval_s=10,
            batching_enabled=False,
            lazy_start_partitioned_producers=lazy,
        )
        still = await client.create_producer("p", auto_update_partitions=False)
        await producer.send(b"")
        broker.partitions[TOPIC] = 3
        broker.fail["partitionMetadata"] = [(ServerError.AuthorizationError, "not now")]
        await trio.sleep(25)
        for _ in range(9):
            await producer.send(b"")
            await still.send(b"")
        assert entries(broker)[0] >= 12
        assert entries(broker)[1:] == [3, 3]
        broker.partitions[TOPIC] = 2
        await trio.sleep(11)
        assert (await producer.send(b"")).partition in (0, 1, 2)
        await producer.aclose()
        asked = broker.seen.count("partitionMetadata")
        await trio.sleep(30)
        assert broker.seen.count("partitionMetadata") == asked


async def test_growing_while_a_batch_is_open(autojump_clock: MockClock) -> None:
    """Messages that come after it are the router's, though the batch would take them."""
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 1
        producer = await client.create_producer(
            "p",
            auto_update_partitions_interval_s=10,
            batching_max_publish_delay_s=100,
            message_router=lambda message, _: int(message.data),
        )
        broker.hold_receipts = True
        receipts = [await producer.submit(b"0")]
        await trio.sleep(1)  # it is in flight: what follows waits for others
        receipts += [await producer.submit(b"0") for _ in range(3)]
        broker.partitions[TOPIC] = 2
        await trio.sleep(15)
        receipts += [await producer.submit(b"1") for _ in range(3)]
        broker.hold_receipts = False
        broker.release_receipts()
        await producer.flush()
        assert [receipt.message_id.partition for receipt in receipts] == [0] * 4 + [1] * 3


async def test_the_only_partition_is_made_again_though_lazy(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[TOPIC] = 1
        producer = await client.create_producer(
            "p",
            auto_update_partitions_interval_s=10,
            lazy_start_partitioned_producers=True,
            send_timeout_s=5,
        )
        broker.fail["producer"] = [(ServerError.TopicNotFound, "gone")]
        broker.cut()
        with pytest.raises(geminga.TopicNotFoundError):
            await producer.send(b"x")
        await trio.sleep(25)
        with trio.fail_after(30):
            await producer.send(b"y")
        assert entries(broker) == [1]
