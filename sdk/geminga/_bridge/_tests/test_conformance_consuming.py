"""All three faces receive equally: each script runs on all of them, against a real broker."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import geminga
from geminga import ConsumerType, InitialPosition
from geminga._bridge._tests.test_conformance import fill, numbers, on_all_faces, texts
from geminga._bridge._tests.three_faces import Face

EARLIEST = InitialPosition.EARLIEST
SHARED = ConsumerType.SHARED


@on_all_faces
async def test_send_receive_acknowledge(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        async with (
            client.create_producer(topic) as producer,
            client.subscribe(topic, "s") as consumer,
        ):
            sent = await producer.send(b"a", properties={"k": "v"}, partition_key="key")
            message = await consumer.receive(60)
            assert (message.data, message.properties, message.key) == (b"a", {"k": "v"}, "key")
            assert (message.message_id, message.topic) == (sent, topic)
            await consumer.acknowledge(message)
            assert (producer.pending_messages, producer.topic) == (0, topic)
            assert (consumer.topics, consumer.is_connected) == ([topic], True)
            consumer.pause()
            consumer.resume()
        async with client.subscribe(topic, "s") as again:
            with pytest.raises(geminga.OperationTimeoutError, match=r"no message within 0\.05 s"):
                await again.receive(0.05)
            assert await again.receive_batch(10, wait_s=0.02) == []


@on_all_faces
async def test_acknowledgements(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        options = {"consumer_type": SHARED, "negative_ack_redelivery_delay_s": 0.02}
        async with client.subscribe(topic, "s", **options) as consumer:
            await fill(client, topic, 4, batching_enabled=False)
            got = [await consumer.receive(60) for _ in range(4)]
            await consumer.acknowledge_all(got[:2])
            consumer.negative_acknowledge(got[2])
            again = await consumer.receive(60)
            assert (again.message_id, again.redelivery_count) == (got[2].message_id, 1)
            await consumer.acknowledge(again.message_id)
            with pytest.raises(geminga.InvalidArgumentError, match="Exclusive"):
                await consumer.acknowledge_cumulative(got[3])
        async with client.subscribe(topic, "s", ack_receipt_enabled=True) as consumer:
            assert await texts(consumer, 1) == ["3"]
            await consumer.acknowledge(got[3].message_id)
            await consumer.unsubscribe()
        async with client.subscribe(topic, "t", initial_position=EARLIEST) as consumer:
            last = [await consumer.receive(60) for _ in range(3)][-1]
            await consumer.acknowledge_cumulative(last)
            assert consumer.statistics().total_msgs_received >= 3
        async with client.subscribe(topic, "t") as consumer:
            assert await texts(consumer, 1) == ["3"]


@on_all_faces
async def test_seek_and_redelivery_take_back_what_was_received(
    face: Face, url: str, topic: str
) -> None:
    async with face.connect(url) as client:
        await fill(client, topic, 100)
        consumer = await client.subscribe(topic, "s", initial_position=EARLIEST)
        assert await texts(consumer, 3) == numbers(3)
        consumer.redeliver_unacknowledged_messages()
        assert await texts(consumer, 3) == numbers(3)
        await consumer.seek(geminga.EARLIEST)
        got = [await consumer.receive(60) for _ in range(100)]
        assert [each.data.decode() for each in got] == numbers(100)
        assert not await consumer.has_message_available()
        await consumer.seek(got[49].message_id)
        assert await consumer.has_message_available()
        assert await texts(consumer, 1) == ["50"]
        before = datetime.fromtimestamp(got[0].publish_time_ms / 1000, UTC) - timedelta(seconds=1)
        await consumer.seek(before)
        assert await texts(consumer, 1) == ["0"]
        with pytest.raises(geminga.InvalidArgumentError, match="time zone"):
            await consumer.seek(datetime(2020, 1, 1))
        (last,) = await consumer.last_message_ids()
        newest = got[-1].message_id
        assert (last.ledger_id, last.entry_id) == (newest.ledger_id, newest.entry_id)


@pytest.mark.parametrize("size", [0, 1])
@on_all_faces
async def test_small_queues(face: Face, url: str, topic: str, size: int) -> None:
    """Fair sharing: a consumer holds one message, and with a queue of one another waits."""
    async with face.connect(url) as client:
        options = {"consumer_type": SHARED, "receiver_queue_size": size}
        first = await client.subscribe(topic, "s", **options)
        second = await client.subscribe(topic, "s", **options)
        await fill(client, topic, 6, batching_enabled=False)
        held = await texts(first, 1)
        rest = []
        while len(rest) < 4:
            message = await second.receive(60)
            await second.acknowledge(message)
            rest.append(message.data.decode())
        assert not set(held) & set(rest)


@on_all_faces
async def test_receive_batch_limits(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        consumer = await client.subscribe(topic, "s")
        async with client.create_producer(topic) as producer:
            await producer.submit_many([b"x" * 100] * 20)
        await face.until(lambda: consumer.statistics().msg_num_in_receiver_queue == 20)
        assert len(await consumer.receive_batch(5, wait_s=60)) == 5
        assert len(await consumer.receive_batch(50, max_bytes=250, wait_s=60)) == 2
        assert len(await consumer.receive_batch(50, max_bytes=1, wait_s=60)) == 1
        assert len(await consumer.receive_batch(50, wait_s=60)) == 12
        assert await consumer.receive_batch(50, wait_s=0.02) == []


class Doubling(geminga.ConsumerInterceptor):
    def before_consume(self, topic: str, message: geminga.Message) -> geminga.Message:
        return message.replace(data=message.data * 2)


@on_all_faces
async def test_batch_policies_interceptors_and_statistics(face: Face, url: str, topic: str) -> None:
    policy = geminga.BatchReceivePolicy(max_messages=7, timeout_s=0.05)
    async with face.connect(url) as client:
        consumer = await client.subscribe(
            topic, "s", interceptors=[Doubling()], batch_receive_policy=policy
        )
        await fill(client, topic, 30)
        await face.until(lambda: consumer.statistics().msg_num_in_receiver_queue == 30)
        assert await texts(consumer, 3) == ["00", "11", "22"]
        batches = [await consumer.receive_batch() for _ in range(5)]
        assert [len(each) for each in batches] == [7, 7, 7, 6, 0]
        got = [each.data for batch in batches for each in batch]
        assert got == [b"%d" % n * 2 for n in range(3, 30)]
        assert consumer.statistics().total_msgs_received == 30


@on_all_faces
async def test_iterating(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        await fill(client, topic, 5)
        async with client.subscribe(topic, "s", initial_position=EARLIEST) as consumer:
            got = [(await anext(consumer)).data]
            async for message in consumer:
                got.append(message.data)
                if len(got) == 5:
                    break
            assert got == [b"%d" % n for n in range(5)]
        assert [message async for message in consumer] == []


# ---- listeners ----


@on_all_faces
async def test_listeners(face: Face, url: str, topic: str) -> None:
    """In order, one call at a time; after an error a message is redelivered; closing waits."""
    seen: list[tuple[int, int]] = []
    running: list[object] = []

    async def listener(consumer: Any, message: geminga.Message) -> None:
        assert running == []
        running.append(message)
        await face.pause()
        running.clear()
        seen.append((int(message.data), message.redelivery_count))
        if seen[-1] == (3, 0):
            raise ValueError("not yet")
        await consumer.acknowledge(message)

    async with face.connect(url) as client:
        options = {"consumer_type": SHARED, "negative_ack_redelivery_delay_s": 0.02}
        consumer = await client.subscribe(
            topic, "s", message_listener=face.listener(listener), **options
        )
        for receive in (consumer.receive, consumer.receive_batch):
            with pytest.raises(geminga.InvalidArgumentError, match="message_listener"):
                await receive()
        await fill(client, topic, 20, batching_enabled=False)
        await face.until(lambda: (3, 1) in seen and len(seen) == 21)
        assert [n for n, times in seen if not times] == list(range(20))
        await consumer.aclose()
        assert running == []


@on_all_faces
async def test_a_listener_may_close_its_consumer(face: Face, url: str, topic: str) -> None:
    seen: list[bytes] = []
    closed: list[object] = []

    async def listener(consumer: Any, message: geminga.Message) -> None:
        seen.append(message.data)
        await consumer.aclose()
        closed.append(consumer)

    async with face.connect(url) as client:
        await client.subscribe(topic, "s", message_listener=face.listener(listener))
        await fill(client, topic, 3, batching_enabled=False)
        await face.until(lambda: closed)
        async with client.subscribe(topic, "s") as again:
            assert await texts(again, 3) == numbers(3)
    assert seen == [b"0"]


@on_all_faces
async def test_listeners_by_key(face: Face, url: str, topic: str) -> None:
    seen: defaultdict[str | None, list[int]] = defaultdict(list)
    running: list[str | None] = []
    most = 0

    async def listener(consumer: Any, message: geminga.Message) -> None:
        nonlocal most
        key = message.partition_key
        assert key not in running
        running.append(key)
        most = max(most, len(running))
        await face.until(lambda: most > 1)
        await face.pause()
        running.remove(key)
        seen[key].append(int(message.data))
        await consumer.acknowledge(message)

    async with face.connect(url) as client:
        await client.subscribe(
            topic,
            "s",
            message_listener=face.listener(listener),
            message_listener_concurrency=4,
            consumer_type=ConsumerType.KEY_SHARED,
        )
        async with client.create_producer(topic, batching_enabled=False) as producer:
            for n in range(200):
                await producer.submit(b"%d" % n, partition_key=f"k{n % 9}")
        await face.until(lambda: sum(map(len, seen.values())) == 200)
    assert 1 < most <= 4
    assert all(each == sorted(each) for each in seen.values())
    assert len(seen) == 9
