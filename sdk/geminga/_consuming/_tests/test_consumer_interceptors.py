from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import ConsumerInterceptor, ConsumerType, InitialPosition, Message, MessageId
from geminga._consuming._tests.test_consumer import consuming
from geminga._tests.fake_broker import fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

T = "persistent://public/default/t"
Heard = list[tuple[Any, ...]]


class Listening(ConsumerInterceptor):
    """Notes its calls, and appends its name to the payload."""

    def __init__(self, name: str, heard: Heard) -> None:
        self.name = name
        self.heard = heard

    def before_consume(self, topic: str, message: Message) -> Message:
        return message.replace(data=message.data + self.name.encode())

    def on_acknowledge(self, topic: str, message_id: MessageId, error: Any) -> None:
        self.heard.append((self.name, "ack", topic, message_id.entry_id, type(error)))

    def on_acknowledge_cumulative(self, topic: str, message_id: MessageId, error: Any) -> None:
        self.heard.append((self.name, "up to", topic, message_id.entry_id, type(error)))

    def on_negative_acks_send(self, topic: str, message_ids: frozenset[MessageId]) -> None:
        self.heard.append((self.name, "refused", topic, {each.entry_id for each in message_ids}))

    def on_ack_timeout_send(self, topic: str, message_ids: frozenset[MessageId]) -> None:
        self.heard.append((self.name, "late", topic, {each.entry_id for each in message_ids}))

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        self.heard.append((self.name, "partitions", topic, partitions))

    def close(self) -> None:
        self.heard.append((self.name, "close"))


class Failing(ConsumerInterceptor):
    """Raises an error in each call."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise RuntimeError(name)


def two() -> tuple[Heard, list[ConsumerInterceptor]]:
    heard: Heard = []
    return heard, [Listening("a", heard), Failing(), Listening("b", heard)]


@pytest.mark.parametrize("batching", [False, True])
async def test_messages_pass_all_in_order(batching: bool, autojump_clock: MockClock) -> None:
    heard, interceptors = two()
    async with consuming(6, batching=batching, interceptors=interceptors) as (broker, _, consumer):
        messages = [await consumer.receive(), *await consumer.receive_batch(2)]
        messages += [await anext(consumer), *await consumer.receive_batch()]
        assert [each.data for each in messages] == [b"%dab" % n for n in range(6)]
        for message in messages:
            await consumer.acknowledge(message)
        await trio.sleep(1)
        entries = [message.message_id.entry_id for message in messages]
        none = type(None)
        assert heard == [(name, "ack", T, n, none) for n in entries for name in "ab"]
        assert broker.topic("t").subscriptions["s"].acked == set(entries)
        heard.clear()
        await consumer.aclose()
        await consumer.aclose()
        assert heard == [("a", "close"), ("b", "close")]


async def test_acknowledgements_by_id_and_up_to_one(autojump_clock: MockClock) -> None:
    heard, interceptors = two()
    async with consuming(4, batching=False, interceptors=interceptors[:1]) as (_, _, consumer):
        messages = await consumer.receive_batch()
        await consumer.acknowledge(messages[0].message_id)
        await consumer.acknowledge_all(messages[1:3])
        await consumer.acknowledge_cumulative(messages[3])
    none = type(None)
    acks = [("a", "ack", T, n, none) for n in range(3)]
    assert heard == [*acks, ("a", "up to", T, 3, none), ("a", "close")]


async def test_failed_receipts(autojump_clock: MockClock) -> None:
    heard, interceptors = two()
    options = {"ack_receipt_enabled": True, "interceptors": interceptors[:1]}
    async with consuming(2, batching=False, **options) as (broker, _, consumer):
        messages = await consumer.receive_batch()
        broker.fail["ack"] = [(ServerError.ConsumerNotFound, "gone")] * 2
        with pytest.raises(geminga.ConsumerNotFoundError):
            await consumer.acknowledge(messages[0])
        with pytest.raises(geminga.ConsumerNotFoundError):
            await consumer.acknowledge_cumulative(messages[1])
        assert heard == [
            ("a", "ack", T, 0, type(None)),
            ("a", "ack", T, 0, geminga.ConsumerNotFoundError),
            ("a", "up to", T, 1, type(None)),
            ("a", "up to", T, 1, geminga.ConsumerNotFoundError),
        ]
        assert consumer.statistics().total_acks_failed == 2


async def test_redeliveries(autojump_clock: MockClock) -> None:
    heard, interceptors = two()
    async with consuming(
        4,
        batching=False,
        consumer_type=ConsumerType.SHARED,
        interceptors=interceptors,
        negative_ack_redelivery_delay_s=1,
        ack_timeout_s=10,
    ) as (_, _, consumer):
        messages = await consumer.receive_batch()
        consumer.negative_acknowledge(messages[1])
        consumer.negative_acknowledge(messages[2])
        await trio.sleep(2)
        assert heard == [(name, "refused", T, {1, 2}) for name in "ab"]
        heard.clear()
        await trio.sleep(9)
        assert heard == [(name, "late", T, {0, 3}) for name in "ab"]


async def test_partitions_grow(autojump_clock: MockClock) -> None:
    heard, interceptors = two()
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[T] = 2
        await client.subscribe(
            "t", "s", interceptors=interceptors, auto_update_partitions_interval_s=5
        )
        await trio.sleep(12)
        assert heard == []
        broker.partitions[T] = 3
        await trio.sleep(12)
        assert heard == [(name, "partitions", T, 3) for name in "ab"]


async def test_one_may_answer_nothing_but_the_message(autojump_clock: MockClock) -> None:
    class Wrong(ConsumerInterceptor):
        def before_consume(self, topic: str, message: Message) -> Any:
            return message.data

    class Other(ConsumerInterceptor):
        def __init__(self) -> None:
            self.first: Message | None = None

        def before_consume(self, topic: str, message: Message) -> Message:
            self.first = self.first or message
            return self.first

    for interceptor in (Wrong(), Other()):
        async with consuming(3, interceptors=[interceptor]) as (_, _, consumer):
            assert [each.data for each in await consumer.receive_batch()] == [b"0", b"1", b"2"]


async def test_what_replace_changes(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.EARLIEST)
        producer = await client.create_producer("t")
        await producer.send(b"data", properties={"a": "1"}, partition_key="key")
        message = await consumer.receive()
        other = message.replace(properties={"b": "2"})
        assert (other.data, other.properties) == (b"data", {"b": "2"})
        other = other.replace(data=b"new")
        assert (other.data, other.properties) == (b"new", {"b": "2"})
        assert other.partition_key == "key"
        assert other.message_id == message.message_id
        assert (message.data, message.properties) == (b"data", {"a": "1"})
        await consumer.acknowledge(other)
        await trio.sleep(1)
        assert broker.topic("t").subscriptions["s"].acked == {0}
