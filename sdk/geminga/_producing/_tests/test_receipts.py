"""Acknowledgements with receipts: a caller gets the broker's error, and later requests don't
overtake them.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga._consuming._tests.test_consumer import acked, consuming, fill, take
from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga_protocol.commands import consuming as commands
from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


def with_receipts(count: int, **options: Any) -> Any:
    return consuming(count, batching=False, ack_receipt_enabled=True, **options)


def refuse(broker: FakeBroker, count: int = 1) -> None:
    broker.fail["ack"] = [(ServerError.ConsumerNotFound, "gone")] * count


@pytest.mark.parametrize(
    "options", [{"ack_grouping_time_s": 0}, {"ack_grouping_max": 2}, {"ack_grouping_max": 100}]
)
async def test_refusals_are_heard_whatever_makes_the_group_go(
    options: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with with_receipts(5, **options) as (broker, _, consumer):
        messages = await take(consumer, 5)
        await consumer.acknowledge(messages[0])
        assert acked(broker) == {0}
        refuse(broker)
        with pytest.raises(geminga.ConsumerNotFoundError):
            await consumer.acknowledge(messages[1])
        refuse(broker)
        with pytest.raises(geminga.ConsumerNotFoundError):
            await consumer.acknowledge_all(messages[1:3])
        await consumer.acknowledge_all(messages[1:5])
        assert acked(broker) == {0, 1, 2, 3, 4}


async def test_more_than_one_command_takes(autojump_clock: MockClock) -> None:
    async with with_receipts(2500) as (broker, _, consumer):
        messages = await take(consumer, 2500)
        refuse(broker)
        with pytest.raises(geminga.ConsumerNotFoundError):
            await consumer.acknowledge_all(messages)
        # Only the messages of the refused command aren't acknowledged.
        await trio.sleep(1)
        assert len(acked(broker)) in (1500, 2000)


async def test_each_partition_is_heard(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Also one whose receipt arrives during the wait for another one."""
    on_ack = FakeSession.on_ack

    async def answer_later(session: FakeSession, body: Any, frame: Frame) -> None:
        await trio.sleep(1)
        on_ack(session, body, frame)

    def answering(self: FakeSession, body: Any, frame: Frame) -> None:
        if self.consumers[body.consumer_id].subscription.topic.partition == 0:
            self.broker.nursery.start_soon(answer_later, self, body, frame)
        else:
            error = commands.ack_response(
                body.consumer_id, body.request_id, error=ServerError.ConsumerNotFound, message="no"
            )
            self.stream.write(error)

    monkeypatch.setattr(FakeSession, "on_ack", answering)
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/p"] = 2
        consumer = await client.subscribe("p", "s", ack_receipt_enabled=True)
        for n in range(2):
            await fill(client, 1, f"p-partition-{n}")
        messages = await take(consumer, 2)
        messages.sort(key=lambda message: message.message_id.partition)
        with pytest.raises(geminga.ConsumerNotFoundError):
            await consumer.acknowledge_all(messages)


@pytest.mark.parametrize("how", ["close", "unsubscribe", "seek"])
async def test_what_is_asked_next_comes_behind(how: str, autojump_clock: MockClock) -> None:
    async with with_receipts(3, ack_grouping_time_s=60) as (broker, _, consumer):
        messages = await take(consumer, 3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.acknowledge_all, messages)
            await trio.sleep(1)
            assert not broker.acks
            held = broker.topic("t").subscriptions["s"]
            if how == "close":
                await consumer.aclose()
                assert held.acked == {0, 1, 2}
            elif how == "unsubscribe":
                await consumer.unsubscribe()
                assert held.acked == {0, 1, 2}
            else:
                await consumer.seek(geminga.EARLIEST)
        asked = {"close": "close_consumer"}.get(how, how)
        assert broker.seen.index("ack") < broker.seen.index(asked)


async def test_what_is_acknowledged_during_a_seek_is_answered(autojump_clock: MockClock) -> None:
    async with with_receipts(2, ack_grouping_time_s=60) as (_, _, consumer):
        messages = await take(consumer, 2)
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.seek, geminga.EARLIEST)
                await trio.lowlevel.checkpoint()
                await consumer.acknowledge(messages[0])


async def test_each_that_waits_raises_its_own_error(autojump_clock: MockClock) -> None:
    """One batch failed: its messages have equal errors, but not the same exception object."""
    async with fake_broker() as broker, broker.client() as client:
        broker.hold_receipts = True
        producer = await client.create_producer("t", send_timeout_s=1)
        raised: list[geminga.OperationTimeoutError] = []

        async def wait(n: int) -> None:
            try:
                try:
                    raise KeyError(n)
                except KeyError:
                    await producer.send(b"x")
            except geminga.OperationTimeoutError as error:
                raised.append(error)

        async def flush() -> None:
            with pytest.raises(geminga.OperationTimeoutError) as caught:
                await producer.flush()
            raised.append(caught.value)

        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(wait, n)
            await trio.sleep(0.1)
            nursery.start_soon(flush)
        assert len({id(each) for each in raised}) == 4
        contexts = [each.__context__ for each in raised if each.__context__ is not None]
        assert sorted(each.args[0] for each in contexts) == [0, 1, 2]
        assert all(each.topic == producer.topic for each in raised)


async def test_a_receipt_is_not_waited_for_for_ever(autojump_clock: MockClock) -> None:
    """Another consumer may have taken the partition, for as long as it likes."""
    async with with_receipts(2) as (broker, _, consumer):
        messages = await take(consumer, 2)
        broker.fail["subscribe"] = [(ServerError.ConsumerBusy, "taken")] * 1000
        broker.cut()
        began = trio.current_time()
        with pytest.raises(geminga.OperationTimeoutError, match="connected again"):
            await consumer.acknowledge(messages[0])
        assert 30 <= trio.current_time() - began < 31
        assert acked(broker) == set()
        broker.fail["subscribe"].clear()
        await trio.sleep(120)
        assert acked(broker) == {0}
