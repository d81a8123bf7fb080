from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import ConsumerType, DeadLetterPolicy, InitialPosition, schema
from geminga._dead_letter.letters import complete, dead_letter_topic
from geminga._entries.encode import Extras
from geminga._tests.fake_broker import FakeBroker, fake_broker
from geminga_protocol.payload import parse_metadata
from geminga_protocol.pb.pulsar_api_pb2 import Schema, ServerError
from geminga_protocol.topic_name import TopicName

BASE = "persistent://public/default/"


@asynccontextmanager
async def consuming(
    count: int, *, batching: bool = False, **options: Any
) -> AsyncIterator[tuple[FakeBroker, geminga.Client, geminga.Consumer]]:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_enabled=batching)
        for n in range(count):
            await producer.submit(b"%d" % n, partition_key=f"k{n}", properties={"own": str(n)})
        await producer.aclose()
        options = {
            "initial_position": InitialPosition.EARLIEST,
            "consumer_type": ConsumerType.SHARED,
            "negative_ack_redelivery_delay_s": 1,
            **options,
        }
        yield broker, client, await client.subscribe("t", "s", **options)


async def letters(client: geminga.Client, topic: str, count: int) -> list[geminga.Message]:
    async with await client.create_reader(topic, geminga.EARLIEST) as reader:
        return [await reader.read_next(5) for _ in range(count)]


def acked(broker: FakeBroker, topic: str = "t") -> set[int]:
    return broker.topic(topic).subscriptions["s"].acked


def test_names() -> None:
    topic = TopicName.parse("t")
    assert complete(None, topic, "s", retries=False) is None
    full = complete(None, topic, "s", retries=True)
    assert full == DeadLetterPolicy(16, f"{BASE}t-s-DLQ", f"{BASE}t-s-RETRY")
    own = DeadLetterPolicy(3, "d", "r", "i")
    assert complete(own, topic, "s", retries=True) == own
    plain = complete(DeadLetterPolicy(2), topic, "s", retries=False)
    assert plain is not None
    assert dead_letter_topic(plain, f"{BASE}t-partition-1", "s") == f"{BASE}t-partition-1-s-DLQ"


@pytest.mark.parametrize("batching", [False, True])
async def test_refused_too_often(batching: bool, autojump_clock: MockClock) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=2)
    async with consuming(3, batching=batching, dead_letter_policy=policy) as (
        broker,
        client,
        consumer,
    ):
        seen = []
        with pytest.raises(geminga.OperationTimeoutError):
            while True:
                message = await consumer.receive(10)
                seen.append((int(message.data), message.redelivery_count))
                if message.data != b"1":
                    await consumer.acknowledge(message)
                else:
                    consumer.negative_acknowledge(message)
        assert sorted(seen) == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
        assert acked(broker) == set(range(len(broker.topic("t").entries)))
        (letter,) = await letters(client, "t-s-DLQ", 1)
        assert letter.data == b"1"
        assert letter.partition_key == "k1"
        index = ":1" if batching else ""
        origin = f"7:{0 if batching else 1}:-1{index}"
        assert letter.properties == {
            "own": "1",
            "REAL_TOPIC": f"{BASE}t",
            "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": origin,
            "ORIGIN_MESSAGE_IDY_TIME": origin,
        }


async def test_last_try_acknowledged_is_no_dead_letter(autojump_clock: MockClock) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=1)
    async with consuming(1, dead_letter_policy=policy) as (broker, _, consumer):
        consumer.negative_acknowledge(await consumer.receive(5))
        await consumer.acknowledge(await consumer.receive(5))
        await trio.sleep(5)
        assert acked(broker) == {0}
        assert f"{BASE}t-s-DLQ" not in broker.topics


async def test_more_than_the_last_try_isnt_delivered(autojump_clock: MockClock) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=1, dead_letter_topic="dead")
    async with consuming(2, dead_letter_policy=policy) as (broker, client, consumer):
        for _ in range(2):
            for _ in range(2):
                await consumer.receive(5)
            consumer.redeliver_unacknowledged_messages()
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(5)
        assert acked(broker) == {0, 1}
        assert {each.data for each in await letters(client, "dead", 2)} == {b"0", b"1"}


async def test_letter_that_cant_be_sent_comes_again(autojump_clock: MockClock) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=1)
    async with consuming(1, dead_letter_policy=policy) as (broker, client, consumer):
        broker.fail["producer"] = [(ServerError.NotAllowedError, "no")]
        for _ in range(2):
            consumer.negative_acknowledge(await consumer.receive(5))
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(10)
        assert acked(broker) == {0}
        assert len(await letters(client, "t-s-DLQ", 1)) == 1


@pytest.mark.parametrize(
    ("fails", "code"),
    [("producer", ServerError.TopicNotFound), ("send", ServerError.TopicTerminatedError)],
)
async def test_a_producer_that_failed_for_good_is_replaced(
    fails: str, code: ServerError, autojump_clock: MockClock
) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=1)
    async with consuming(1, dead_letter_policy=policy) as (broker, client, consumer):
        for number in range(2):
            if number:
                async with await client.create_producer("t") as producer:
                    await producer.send(b"1")
                broker.fail[fails] = [(code, "gone")]
                broker.cut()
                await trio.sleep(5)
            with pytest.raises(geminga.OperationTimeoutError):
                while True:
                    consumer.negative_acknowledge(await consumer.receive(10))
            assert acked(broker) == set(range(number + 1))
        assert not broker.fail[fails]
        assert [each.data for each in await letters(client, "t-s-DLQ", 2)] == [b"0", b"1"]


async def test_reconsume_later(autojump_clock: MockClock) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=2)
    async with consuming(1, retry_enabled=True, dead_letter_policy=policy) as (
        broker,
        client,
        consumer,
    ):
        assert consumer.topics == [f"{BASE}t", f"{BASE}t-s-RETRY"]
        for n in range(3):
            message = await consumer.receive(5)
            assert message.properties.get("RECONSUMETIMES", "0") == str(n)
            await consumer.reconsume_later(message, 1.5, properties={"try": str(n)})
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(5)
        assert acked(broker) == {0}
        assert acked(broker, "t-s-RETRY") == {0, 1}
        retried = [parse_metadata(memoryview(e)) for e in broker.topic("t-s-RETRY").entries]
        assert all(each.HasField("deliver_at_time") for each in retried)
        (letter,) = await letters(client, "t-s-DLQ", 1)
        assert letter.properties == {
            "own": "0",
            "try": "2",
            "REAL_TOPIC": f"{BASE}t",
            "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": "7:0:-1",
            "ORIGIN_MESSAGE_IDY_TIME": "7:0:-1",
            "RECONSUMETIMES": "3",
            "DELAY_TIME": "1500",
        }


@pytest.mark.parametrize("kind", [ConsumerType.EXCLUSIVE, ConsumerType.FAILOVER])
async def test_retries_end_as_dead_letters_without_counted_redeliveries(
    kind: ConsumerType, autojump_clock: MockClock
) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=1)
    options = {"consumer_type": kind, "retry_enabled": True, "dead_letter_policy": policy}
    async with consuming(1, **options) as (broker, client, consumer):
        for _ in range(2):
            await consumer.reconsume_later(await consumer.receive(5), 0)
        await trio.sleep(1)
        assert acked(broker) == {0}
        (letter,) = await letters(client, "t-s-DLQ", 1)
        assert letter.data == b"0"


async def test_reconsume_later_that_fails_acknowledges_nothing(autojump_clock: MockClock) -> None:
    async with consuming(1, retry_enabled=True) as (broker, _, consumer):
        message = await consumer.receive(5)
        broker.fail["producer"] = [(ServerError.AuthorizationError, "no")]
        with pytest.raises(geminga.AuthorizationError):
            await consumer.reconsume_later(message, 0)
        await trio.sleep(1)
        assert acked(broker) == set()
        await consumer.reconsume_later(message, 0)
        assert (await consumer.receive(5)).topic_name == f"{BASE}t-s-RETRY"


async def test_wrong_arguments(autojump_clock: MockClock) -> None:
    async with consuming(1) as (_, _, consumer):
        message = await consumer.receive(5)
        with pytest.raises(geminga.InvalidArgumentError, match="retry_enabled"):
            await consumer.reconsume_later(message, 1)
        with pytest.raises(geminga.InvalidArgumentError, match="delay_s"):
            await consumer.reconsume_later(message, -1)
        with pytest.raises(geminga.InvalidArgumentError, match="message"):
            await consumer.reconsume_later(b"0", 1)
    with pytest.raises(geminga.InvalidArgumentError, match="max_redeliver_count"):
        DeadLetterPolicy(max_redeliver_count=0)
    with pytest.raises(geminga.InvalidArgumentError, match="dead_letter_topic"):
        DeadLetterPolicy(dead_letter_topic="")


async def send_described(client: geminga.Client, extras: Extras) -> None:
    async with await client.create_producer("t", batching_enabled=False) as producer:
        await producer._partitions.send_checked(b"m", extras, None).wait()


@pytest.mark.parametrize("retry", [False, True])
async def test_keys_of_bytes_and_schemas_go_on(retry: bool, autojump_clock: MockClock) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=1)
    async with consuming(0, retry_enabled=retry, dead_letter_policy=policy) as (
        broker,
        client,
        consumer,
    ):
        text = Schema(name="text", schema_data=b"", type=Schema.String)
        json = Schema(name="json", schema_data=b"{}", type=Schema.Json)
        broker.topic("t").schemas += [text, json]
        kind = "RETRY" if retry else "DLQ"
        broker.topic(f"t-s-{kind}").schemas += [json, text] if retry else [json]
        sent = Extras(
            {"own": "1"},
            "AP8=",
            b"order",
            123,
            key_is_base64=True,
            schema_version=(0).to_bytes(8, "big"),
        )
        for _ in range(2):
            await send_described(client, sent)
            message = await consumer.receive(5)
            if retry:
                await consumer.reconsume_later(message, 0)
                await consumer.acknowledge(await consumer.receive(5))
            else:
                consumer.negative_acknowledge(message)
                consumer.negative_acknowledge(await consumer.receive(5))
        await trio.sleep(3)
        for letter in await letters(client, f"t-s-{kind}", 2):
            assert letter.has_base64_key
            assert letter.partition_key_bytes == bytes((0, 255))
            assert letter.ordering_key == b"order"
            assert letter.event_time_ms == 123
            assert letter.schema_version == (1).to_bytes(8, "big")
        assert broker.topic(f"t-s-{kind}").schemas == [json, text]
        assert broker.seen.count("getSchema") == 1


async def test_producers_of_letters_have_javas_names(autojump_clock: MockClock) -> None:
    policy = DeadLetterPolicy(max_redeliver_count=1, initial_subscription_name="kept")
    options = {"retry_enabled": True, "dead_letter_policy": policy, "consumer_name": "me"}
    async with consuming(2, **options) as (_, client, consumer):
        for _ in range(4):
            await consumer.reconsume_later(await consumer.receive(5), 0)
        (letter, _) = await letters(client, "t-s-DLQ", 2)
        source = re.escape(f"{BASE}t-s-RETRY")
        assert re.fullmatch(rf"{source}-s-me-\w{{5}}-DLQ", letter.producer_name)
        (again, _) = await letters(client, "t-s-RETRY", 2)
        assert again.producer_name.startswith("fake-")


@pytest.mark.parametrize("way", ["again", "dead"])
async def test_letters_of_null_messages_are_null(way: str, autojump_clock: MockClock) -> None:
    policy = DeadLetterPolicy(1, "dead", "again")
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", schema=schema.String())
        consumer = await client.subscribe(
            "t",
            "s",
            consumer_type=ConsumerType.SHARED,
            dead_letter_policy=policy,
            retry_enabled=True,
            negative_ack_redelivery_delay_s=1,
        )
        await producer.send(None, partition_key="k")
        if way == "again":
            await consumer.reconsume_later(await consumer.receive(5), 1)
        else:
            for _ in range(2):
                consumer.negative_acknowledge(await consumer.receive(5))
            await trio.sleep(5)
        (letter,) = await letters(client, way, 1)
        assert (letter.is_null, letter.data, letter.partition_key) == (True, b"", "k")
