"""A consumer's calls run after earlier acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import geminga.aio
import geminga.blocking as gb
from geminga._acknowledging.acknowledger import Acknowledger
from geminga._consuming.partition_consumer import PartitionConsumer
from geminga.testing import BrokerUrl

Steps = list[str]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """The calls of a partition's consumer, in order."""
    seen: Steps = []

    def watch(kind: type, name: str, step: str) -> None:
        before: Callable[..., object] = getattr(kind, name)

        def call(*arguments: object) -> object:
            if step != "redeliver" or arguments[1] is None:
                seen.append(step)
            return before(*arguments)

        monkeypatch.setattr(kind, name, call)

    watch(Acknowledger, "acknowledge", "ack")
    watch(Acknowledger, "refuse", "refuse")
    watch(PartitionConsumer, "redeliver", "redeliver")
    return seen


def test_redelivery_comes_behind_acknowledgements(url: BrokerUrl, topic: str, steps: Steps) -> None:
    with (
        gb.connect(url) as client,
        client.create_producer(topic, batching_enabled=False) as sending,
        client.subscribe(topic, "s") as consumer,
    ):
        for n in range(20):
            sending.submit(b"%d" % n)
        sending.flush()
        for _ in range(10):
            message = consumer.receive(60)
            consumer.acknowledge(message)
            consumer.redeliver_unacknowledged_messages()
        assert sorted(int(consumer.receive(60).data) for _ in range(10)) == list(range(10, 20))
        assert steps[:20] == ["ack", "redeliver"] * 10


def test_refusing_comes_behind_acknowledgements(url: BrokerUrl, topic: str, steps: Steps) -> None:
    with (
        gb.connect(url) as client,
        client.create_producer(topic) as sending,
        client.subscribe(topic, "s") as consumer,
    ):
        for n in range(2):
            sending.send(b"%d" % n)
        first, second = consumer.receive(60), consumer.receive(60)
        consumer.acknowledge_all([first])
        consumer.negative_acknowledge(second)
        consumer.has_message_available()
        consumer.acknowledge(second)
        consumer.negative_acknowledge(second)
        consumer.has_message_available()
        assert steps == ["ack", "refuse", "ack", "refuse"]


def test_acknowledgements_with_receipts_too(url: BrokerUrl, topic: str, steps: Steps) -> None:
    async def program() -> None:
        async with geminga.aio.connect(url) as client:
            sending = await client.create_producer(topic)
            consumer = await client.subscribe(topic, "s", ack_receipt_enabled=True)
            for n in range(20):
                await sending.send(b"%d" % n)
            for _ in range(10):
                message = await consumer.receive(60)
                acknowledging = asyncio.ensure_future(consumer.acknowledge(message))
                await asyncio.sleep(0)
                consumer.redeliver_unacknowledged_messages()
                await acknowledging

    asyncio.run(program())
    assert steps[:20] == ["ack", "redeliver"] * 10
