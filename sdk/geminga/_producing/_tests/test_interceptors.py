from __future__ import annotations

import dataclasses
import datetime
import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import GemingaError, MessageId, ProducerInterceptor, ProducerMessage
from geminga._producing._tests.test_producer import stored
from geminga._tests.fake_broker import fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

T = "persistent://public/default/t"


class Notes(ProducerInterceptor):
    """Adds its mark to every message, and notes its calls."""

    def __init__(self, mark: bytes, only: bytes = b"") -> None:
        self.mark = mark
        self.only = only
        self.told: list[tuple[bytes, MessageId | None, GemingaError | None]] = []
        self.partitions: list[tuple[str, int]] = []
        self.closed = 0

    def eligible(self, message: ProducerMessage) -> bool:
        return self.only in message.data

    def before_send(self, message: ProducerMessage) -> ProducerMessage:
        return dataclasses.replace(message, data=message.data + self.mark)

    def on_send_acknowledgement(
        self, message: ProducerMessage, message_id: MessageId | None, error: GemingaError | None
    ) -> None:
        self.told.append((message.data, message_id, error))

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        self.partitions.append((topic, partitions))

    def close(self) -> None:
        self.closed += 1


class Bad(ProducerInterceptor):
    def __init__(self, answer: Any = None) -> None:
        self.answer = answer

    def before_send(self, message: ProducerMessage) -> ProducerMessage:
        if self.answer is None:
            raise ValueError("bad")
        answer: ProducerMessage = self.answer
        return answer

    def on_send_acknowledgement(self, *_: object) -> None:
        raise ValueError("bad")

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        raise ValueError("bad")

    def close(self) -> None:
        raise ValueError("bad")


async def test_several_in_order(autojump_clock: MockClock) -> None:
    first, some, last = Notes(b"1"), Notes(b"2", only=b"some"), Notes(b"3")
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", interceptors=[first, some, last])
        sent = await producer.send(b"any")
        receipt = await producer.submit(b"some")
        await receipt.wait()
        assert stored(broker) == [b"any13", b"some123"]
        assert first.told == [(b"any13", sent, None), (b"some123", receipt.message_id, None)]
        assert some.told == first.told[1:]
        assert last.told == first.told
        await producer.aclose()
        await producer.aclose()
        assert [each.closed for each in (first, some, last)] == [1, 1, 1]


async def test_all_of_a_message_is_seen_and_may_be_changed(autojump_clock: MockClock) -> None:
    seen: list[ProducerMessage] = []

    class Changes(ProducerInterceptor):
        def before_send(self, message: ProducerMessage) -> ProducerMessage:
            seen.append(message)
            return dataclasses.replace(
                message, properties={**message.properties, "b": "2"}, sequence_id=41
            )

    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer(
            "t", producer_name="p", interceptors=[Changes()], batching_enabled=False
        )
        consumer = await client.subscribe("t", "s")
        await producer.send(
            b"x",
            properties={"a": "1"},
            partition_key="k",
            ordering_key="o",
            event_time_ms=5,
            deliver_at_ms=7,
            disable_replication=True,
        )
        message = await consumer.receive()
        assert message.properties == {"a": "1", "b": "2"}
        assert (message.partition_key, message.event_time_ms) == ("k", 5)
        assert producer.last_sequence_id == 41
    assert seen == [
        ProducerMessage(b"x", T, "p", {"a": "1"}, "k", b"o", 5, 7, ("__local__",), sequence_id=None)
    ]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"no message",
        ProducerMessage("text", T, "p"),
        ProducerMessage(b"x", T, "p", sequence_id=-1),
        ProducerMessage(b"x", T, "p", properties={"a": 1}),
    ],
)
async def test_failing_ones_never_break_sending(
    answer: object, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    good = Notes(b"!")
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions[T] = 1
        producer = await client.create_producer(
            "t", interceptors=[Bad(answer), good], auto_update_partitions_interval_s=5
        )
        await producer.send(b"x")
        assert stored(broker, "t-partition-0") == [b"x!"]
        broker.partitions[T] = 2
        await trio.sleep(6)
        await producer.aclose()
    assert good.partitions == [(T, 2)]
    assert (len(good.told), good.closed) == (1, 1)
    failures = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(failures) == 4


async def test_failures_are_told(autojump_clock: MockClock) -> None:
    notes = Notes(b"")
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", interceptors=[notes], send_timeout_s=0)
        broker.fail["send"] = [(ServerError.NotAllowedError, "no")]
        with pytest.raises(geminga.NotAllowedError):
            await producer.send(b"refused")
        notes.mark = bytes(broker.max_message_size)
        with pytest.raises(geminga.MessageTooBigError):
            await producer.send(b"grows")
        notes.mark = b""
        broker.hold_receipts = True
        for session in broker.sessions:
            session.producers.clear()  # it answers nothing more
        receipt = await producer.submit(b"pending")
        producer._parts[0].failed(geminga.AlreadyClosedError("closed"))
        assert isinstance(receipt.error, geminga.AlreadyClosedError)
        kinds = [type(error) for _, _, error in notes.told]
        assert kinds == [
            geminga.NotAllowedError,
            geminga.MessageTooBigError,
            geminga.AlreadyClosedError,
        ]
        assert all(message_id is None for _, message_id, _ in notes.told)


async def test_only_interceptors_are_taken(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        bad: list[Any] = [Notes, [Notes], [Notes(b""), None], "ab", 5]
        for each in bad:
            with pytest.raises(geminga.InvalidArgumentError, match="interceptors"):
                await client.create_producer("t", interceptors=each)


async def test_delays_pass(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", interceptors=[Notes(b"")])
        await producer.send(b"x", deliver_after=datetime.timedelta(seconds=1))
        assert len(broker.topic("t").entries) == 1


@pytest.mark.parametrize(("changed", "expected"), [(None, b"\0\xff"), ("k", b"k"), (b"\1", b"\1")])
async def test_keys_of_bytes(
    changed: str | bytes | None, expected: bytes, autojump_clock: MockClock
) -> None:
    """Interceptors get them as Base64 texts, and they stay bytes."""

    class Changes(ProducerInterceptor):
        def before_send(self, message: ProducerMessage) -> ProducerMessage:
            assert message.partition_key == "AP8="
            fields = {} if changed is None else {"partition_key": changed}
            return dataclasses.replace(message, **fields)

    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", interceptors=[Changes()])
        plain = await client.create_producer("t")
        consumer = await client.subscribe("t", "s")
        await producer.send(b"x", partition_key=b"\0\xff")
        message = await consumer.receive()
        assert message.partition_key_bytes == expected
        assert message.has_base64_key == (changed != "k")
        await plain.send(b"y", partition_key=b"")
        message = await consumer.receive()
        assert (message.partition_key, message.partition_key_bytes) == ("", b"")
        assert message.has_base64_key
