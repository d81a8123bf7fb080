"""Non-durable subscriptions: after a lost connection, they continue after the last message that the
program took.
"""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import ConsumerType, InitialPosition
from geminga._consuming._tests.test_consumer import consuming, fill, numbers, take
from geminga._tests.fake_broker import FakeBroker, fake_broker


async def lose(broker: FakeBroker, added: int = 0) -> None:
    """Lose the connection, for long enough that messages are added meanwhile."""
    topic = broker.topic("t")
    topic.entries += topic.entries[:added]
    broker.cut()
    await trio.sleep(1)


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("taken", [0, 1, 4, 10])
async def test_from_earliest(taken: int, batching: bool, autojump_clock: MockClock) -> None:
    async with consuming(10, batching=batching, durable=False) as (broker, _, consumer):
        got = numbers(await take(consumer, taken))
        await trio.sleep(1)
        await lose(broker)
        await lose(broker)
        assert got + numbers(await take(consumer, 10 - taken)) == list(range(10))
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(5)


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("taken", [0, 1, 3])
@pytest.mark.parametrize("reads", [True, False])
async def test_from_latest(
    reads: bool, taken: int, batching: bool, autojump_clock: MockClock
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        await fill(client, 5)
        if reads:
            reader = await client.create_reader("t", geminga.LATEST)
            receive = reader.read_next
            has_more = reader.has_message_available
        else:
            latest = InitialPosition.LATEST
            consumer = await client.subscribe("t", "s", durable=False, initial_position=latest)
            receive = consumer.receive
            has_more = consumer._parts.has_message_available
        await fill(client, 4, batching=batching)
        await trio.sleep(1)
        got = [await receive(5) for _ in range(taken)]
        await lose(broker, added=1)
        await lose(broker)
        assert await has_more()
        got += [await receive(5) for _ in range(4 - taken + 5)]
        assert numbers(got) == [*range(4), *range(5)]
        assert not await has_more()


@pytest.mark.parametrize("losses", [0, 1])
@pytest.mark.parametrize("kind", [ConsumerType.EXCLUSIVE, ConsumerType.SHARED])
@pytest.mark.parametrize("batching", [True, False])
async def test_what_was_taken_last_comes_again_if_refused(
    batching: bool, kind: ConsumerType, losses: int, autojump_clock: MockClock
) -> None:
    options = {"durable": False, "consumer_type": kind, "negative_ack_redelivery_delay_s": 1}
    async with consuming(10, batching=batching, **options) as (broker, _, consumer):
        await take(consumer, 4)
        for _ in range(losses):
            await lose(broker)
        messages = await take(consumer, 2)
        assert numbers(messages) == [4, 5]
        consumer.negative_acknowledge(messages[1])
        await trio.sleep(2)
        while (await consumer.receive(5)).data != b"5":
            pass


async def test_refused_before_anything_came_again(autojump_clock: MockClock) -> None:
    async with consuming(10, durable=False) as (broker, _, consumer):
        await take(consumer, 4)
        consumer.pause()
        await lose(broker)
        consumer.redeliver_unacknowledged_messages()
        consumer.resume()
        assert numbers(await take(consumer, 10)) == list(range(10))
