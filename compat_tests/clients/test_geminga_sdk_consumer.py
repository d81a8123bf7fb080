"""Consumers of our own SDK on our broker and on Apache's: letters, timeouts, patterns, views."""

from __future__ import annotations

import pytest
import trio

import geminga
from compat_tests.clients.test_geminga_sdk import (
    EARLIEST,
    client_of,
    send_all,
    take,
    texts,
    topic_name,
)
from compat_tests.processes import ServerProcess
from geminga import ConsumerType, DeadLetterPolicy


async def test_refused_too_often_is_a_dead_letter(server: ServerProcess) -> None:
    topic = topic_name("dead")
    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.SHARED,
            negative_ack_redelivery_delay_s=0.1,
            dead_letter_policy=DeadLetterPolicy(2, initial_subscription_name="kept"),
        )
        await send_all(client, topic, ["good", "bad"], batching_enabled=False)
        seen: list[tuple[bytes, int]] = []
        while len(seen) < 4:
            message = await consumer.receive(5)
            seen.append((message.data, message.redelivery_count))
            if message.data == b"good":
                await consumer.acknowledge(message)
            else:
                consumer.negative_acknowledge(message)
        assert sorted(seen) == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
        with pytest.raises(geminga.Timeout):
            await consumer.receive(1)
        dead = await client.subscribe(f"{topic}-s-DLQ", "kept")
        (letter,) = await take(dead, 1)
        assert letter.data == b"bad"
        assert letter.properties["REAL_TOPIC"] == topic
        assert letter.properties["REAL_SUBSCRIPTION"] == "s"
        assert letter.properties["ORIGIN_MESSAGE_ID"].count(":") == 2


async def test_reconsume_later(server: ServerProcess) -> None:
    topic = topic_name("again")
    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.SHARED,
            retry_enabled=True,
            dead_letter_policy=DeadLetterPolicy(1),
        )
        await send_all(client, topic, ["m"])
        (first,) = await take(consumer, 1)
        began_s = trio.current_time()
        await consumer.reconsume_later(first, 1.5)
        (again,) = await take(consumer, 1)
        assert trio.current_time() - began_s >= 0.3  # Apache's broker may be early by a tick of a second
        assert again.topic_name == f"{topic}-s-RETRY"
        assert again.properties["RECONSUMETIMES"] == "1"
        assert again.properties["DELAY_TIME"] == "1500"
        await consumer.reconsume_later(again, 0.5)
        dead = await client.subscribe(f"{topic}-s-DLQ", "d", initial_position=EARLIEST)
        assert texts(await take(dead, 1)) == ["m"]


async def test_ack_timeout(server: ServerProcess) -> None:
    topic = topic_name("timeout")
    async with client_of(server) as client:
        consumer = await client.subscribe(
            topic, "s", consumer_type=ConsumerType.SHARED, ack_timeout_s=1
        )
        await send_all(client, topic, ["a", "b"], batching_enabled=False)
        (message, other) = await take(consumer, 2)
        await consumer.acknowledge(message)
        (again,) = await take(consumer, 1)
        assert again.data == other.data
        assert again.redelivery_count == 1
