"""Without a queue only a waiting caller requests a message: if its permit is used up without one,
or lost with the connection, another one is granted.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import geminga
from geminga import ConsumerType, DeadLetterPolicy
from geminga._consuming._tests.test_consumer import consuming, fill, numbers, take
from geminga._tests.fake_broker import FakeBroker
from geminga_protocol.commands import consuming as commands


def none_queued(count: int, **options: Any) -> Any:
    return consuming(count, batching=False, receiver_queue_size=0, **options)


async def received(consumer: geminga.Consumer, how: str) -> bytes:
    """The next message, by one of the ways to wait for it."""
    if how == "receive":
        return (await consumer.receive()).data
    return (await anext(consumer)).data


def unload(broker: FakeBroker) -> None:
    for session in broker.sessions:
        for held in list(session.consumers.values()):
            held.leave()
            session.stream.write(commands.close_consumer(held.id, 0))


@pytest.mark.parametrize("how", ["receive", "iterate"])
@pytest.mark.parametrize("loss", ["cut", "unload", "seek"])
async def test_who_waits_asks_again_when_attached_again(
    loss: str, how: str, autojump_clock: MockClock
) -> None:
    async with none_queued(0) as (broker, client, consumer):

        async def lose() -> None:
            await trio.testing.wait_all_tasks_blocked()
            if loss == "cut":
                broker.cut()
            elif loss == "unload":
                unload(broker)
            else:
                await consumer.seek(geminga.EARLIEST)
            await trio.sleep(10)
            await fill(client, 1)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lose)
                assert await received(consumer, how) == b"0"


async def test_who_began_to_wait_while_detached(autojump_clock: MockClock) -> None:
    async with none_queued(1) as (broker, _, consumer):
        broker.refuse_connections = 3
        broker.cut()
        await trio.sleep(0.01)
        assert not consumer.is_connected
        assert numbers(await take(consumer, 1)) == [0]


async def test_what_was_sent_before_all_were_refused(autojump_clock: MockClock) -> None:
    async with none_queued(1) as (broker, _, consumer):
        assert numbers(await take(consumer, 1)) == [0]
        topic = broker.topic("t")

        async def refuse() -> None:
            await trio.testing.wait_all_tasks_blocked()
            # In flight when the program requests redelivery of all.
            topic.entries.append(topic.entries[0])
            topic.subscriptions["s"].dispatch()
            consumer.redeliver_unacknowledged_messages()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refuse)
            messages = await take(consumer, 2)
        assert [message.message_id.entry_id for message in messages] == [0, 1]


async def test_a_damaged_message(autojump_clock: MockClock) -> None:
    async with none_queued(2) as (broker, _, consumer):
        entries = broker.topic("t").entries
        entries[0] = entries[0][:-1] + b"?"
        assert numbers(await take(consumer, 1)) == [1]


async def test_a_message_that_becomes_a_letter(autojump_clock: MockClock) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=1)
    options = {"consumer_type": ConsumerType.SHARED, "dead_letter_policy": policy}
    async with none_queued(2, **options) as (_, _, consumer):
        for _ in range(2):
            assert numbers(await take(consumer, 1)) == [0]
            consumer.redeliver_unacknowledged_messages()
        assert numbers(await take(consumer, 1)) == [1]
