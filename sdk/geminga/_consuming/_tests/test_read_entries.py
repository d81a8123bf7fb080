"""Whole entries: columns equal to the messages' fields, and the same delivery."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

import geminga
from geminga import EntryBatch
from geminga._tests.entry_making import (
    Made,
    Told,
    batch,
    chunks_of,
    entries,
    single,
    told_by,
    told_by_message,
)
from geminga._tests.fake_broker import FakeBroker, fake_broker
from geminga._tests.fake_topics import LEDGER
from geminga_protocol.message_id import MessageId
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata


@asynccontextmanager
async def topic_of(
    made: list[bytes], start: MessageId = geminga.EARLIEST, **options: Any
) -> AsyncIterator[tuple[FakeBroker, geminga.Reader]]:
    """A reader of a topic with those entries."""
    async with fake_broker() as broker, broker.client() as client:
        broker.topic("t").entries = list(made)
        async with await client.create_reader("t", start, **options) as reader:
            yield broker, reader


async def all_messages(made: list[bytes], start: MessageId, **options: Any) -> list[Told]:
    async with topic_of(made, start, **options) as (_, reader):
        told: list[Told] = []
        while await reader.has_message_available():
            try:
                told.append(told_by_message(await reader.read_next(1)))
            except geminga.OperationTimeoutError:
                # The rest of the last batch was removed.
                break
        return told


STARTS = st.one_of(
    st.just(geminga.EARLIEST),
    st.builds(MessageId, st.just(LEDGER), st.integers(0, 5)),
    st.builds(
        MessageId, st.just(LEDGER), st.integers(0, 5), st.just(-1), st.integers(0, 8), st.just(8)
    ),
)
BYTES = st.sampled_from([1, 50, 300, math.inf])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("entries"), BYTES),
        st.tuples(st.sampled_from(["message", "cut", "wait", "turn"]), st.just(0)),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(entries(), STARTS, st.booleans(), STEPS, st.sampled_from([1, 3, 20]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_as_one_by_one(
    made: list[bytes],
    start: MessageId,
    inclusive: bool,
    steps: list[tuple[str, float]],
    queue_size: int,
    compacted: bool,
) -> None:
    """With any batches, start, limits and connection, a mixture of entries and messages equals the
    messages alone.
    """
    options = {"start_message_id_inclusive": inclusive, "read_compacted": compacted}

    async def main() -> None:
        expected = await all_messages(made, start, **options)
        got: list[Told] = []
        async with topic_of(made, start, receiver_queue_size=queue_size, **options) as (
            broker,
            reader,
        ):
            for step, bytes_max in steps:
                if step == "cut":
                    broker.cut()
                elif step == "wait":
                    await trio.sleep(0.2)
                elif step == "turn":
                    await trio.sleep(0.0001)
                elif len(got) < len(expected):
                    if step == "message":
                        got.append(told_by_message(await reader.read_next(5)))
                    else:
                        got += told_by(await reader.read_batches(5, bytes_max=bytes_max))
            while len(got) < len(expected):
                got += told_by(await reader.read_batches(5))
            with pytest.raises(geminga.OperationTimeoutError):
                await reader.read_batches(1)
            incomplete = reader.incomplete_message_ids()
            assert not {told[1] for told in got} & set(incomplete)
            assert incomplete == [] or start != geminga.EARLIEST
        assert got == expected

    trio.run(main, clock=MockClock(autojump_threshold=0))


@given(entries(chunked_max=0), st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.slow
def test_after_seeks(made: list[bytes], data: st.DataObject) -> None:
    """Received messages are dropped, also within a batch; those after the position arrive."""

    async def main() -> None:
        expected = await all_messages(made, geminga.EARLIEST)
        ids = [told[1] for told in expected]
        async with topic_of(made) as (_, reader):
            for _ in range(data.draw(st.integers(1, 4))):
                at = data.draw(st.integers(0, len(ids) - 1))
                place = ids[at]
                assert isinstance(place, MessageId)
                await reader.seek(place)
                got: list[Told] = []
                for _ in range(data.draw(st.integers(1, 3))):
                    if at + 1 + len(got) < len(expected):
                        got += told_by(await reader.read_batches(5, bytes_max=data.draw(BYTES)))
                assert got == expected[at + 1 :][: len(got)]

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_limits(autojump_clock: MockClock) -> None:
    made = [batch([Made(b"x" * 10)] * 4), batch([Made(b"y" * 10)] * 4), single(Made(b"z" * 10))]
    async with topic_of(made) as (_, reader):
        (first,) = await reader.read_batches(bytes_max=1)
        assert (len(first), first.size_bytes, first.message_count) == (4, 40, 4)
        assert first.indexes == range(4)
        second, third = await reader.read_batches(bytes_max=50)
        assert second.payloads() == [b"y" * 10] * 4
        assert (third.payloads(), list(third.indexes), third.message_count) == (
            [b"z" * 10],
            [-1],
            1,
        )
        assert repr(second) == f"<EntryBatch 7:1 of {second.topic_name}, 4 messages>"
        with pytest.raises(geminga.OperationTimeoutError):
            await reader.read_batches(0)
    with pytest.raises(geminga.AlreadyClosedError):
        await reader.read_batches()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("timeout_s", {"timeout_s": -1}),
        ("timeout_s", {"timeout_s": "1"}),
        ("bytes_max", {"bytes_max": 0}),
        ("bytes_max", {"bytes_max": math.nan}),
        ("bytes_max", {"bytes_max": True}),
    ],
)
async def test_wrong_arguments(name: str, arguments: dict[str, Any]) -> None:
    async with topic_of([]) as (_, reader):
        with pytest.raises(geminga.InvalidArgumentError, match=name):
            await reader.read_batches(**arguments)


async def test_keys_as_bytes() -> None:
    keys = [Made(key="a2V5", key_is_base64=True), Made(key="key"), Made()]
    async with topic_of([batch(keys), single(keys[0])]) as (_, reader):
        of_batch, of_single = await reader.read_batches()
        assert of_batch.keys_as_bytes() == [b"key", b"key", None]
        assert of_single.keys_as_bytes() == [b"key"]
        assert of_batch.keys() == ["a2V5", "key", None]


async def test_permits_are_given_back(autojump_clock: MockClock) -> None:
    """Entries leave the queue whole: the broker never stalls, nor exceeds its permits."""
    made = [batch([Made(b"%d" % n)] * 7) for n in range(40)]
    async with topic_of(made, receiver_queue_size=10) as (broker, reader):
        got = 0
        while got < 280:
            got += sum(map(len, await reader.read_batches(5)))
            (subscription,) = broker.topic("t").subscriptions.values()
            (consumer,) = subscription.consumers
            await trio.sleep(1)
            in_queue = consumer.messages_sent - got
            assert consumer.permits_given <= got + 10
            assert in_queue <= 10 + 6
        # All was acknowledged meanwhile, so that the broker's statistics are right.
        await trio.sleep(1)
        assert subscription.mark_delete == 39
        statistics = reader._consumer.statistics()
        assert statistics.total_msgs_received == 280
        assert statistics.total_bytes_received == sum(7 * len(str(n)) for n in range(40))


async def test_cancelled_it_takes_nothing(autojump_clock: MockClock) -> None:
    async with topic_of([]) as (broker, reader):
        with trio.move_on_after(1) as scope:
            await reader.read_batches()
        assert scope.cancelled_caught
        async with broker.client() as client, await client.create_producer("t") as producer:
            await producer.send(b"x")
        with trio.CancelScope() as scope:
            scope.cancel()
            await reader.read_batches()
        (entry,) = await reader.read_batches(5)
        assert entry.payloads() == [b"x"]


async def test_what_came_last_is_told(autojump_clock: MockClock) -> None:
    """Also an entry without a message; those lost with a connection come again."""
    damaged = single(Made(b"x"))[:-1] + b"!"
    async with topic_of([single(Made(b"a")), damaged]) as (broker, reader):
        (entry,) = await reader.read_batches(5)
        assert entry.payloads() == [b"a"]
        await trio.sleep(1)
        assert reader.received_ids()[0] == MessageId(LEDGER, 1)
        broker.cut()
        await trio.sleep(0.01)
        assert reader.received_ids()[0] == MessageId(-1, -1)
        with pytest.raises(geminga.OperationTimeoutError):
            await reader.read_batches(5)
        assert reader.received_ids()[0] == MessageId(LEDGER, 1)


async def test_chunks(autojump_clock: MockClock) -> None:
    """A chunked message is at its last chunk; one without its beginning is reported."""
    one, two = chunks_of("a", b"1", b"2", b"3"), chunks_of("b", b"4", b"5")
    made = [one[0], two[0], one[1], batch([Made(b"x")] * 3), one[2], two[1]]
    async with topic_of(made) as (_, reader):
        _, whole, last = await reader.read_batches(5)
        assert (whole.payloads(), whole.entry_id, whole.keys()) == ([b"123"], 4, ["key"])
        (place,) = whole.message_ids()
        assert place.first_chunk == MessageId(LEDGER, 0)
        assert (last.payloads(), last.size_bytes) == ([b"45"], 2)
        assert reader.incomplete_message_ids() == []
    for start, found, missed in ((0, [3, 4, 5], []), (1, [3, 5], [4]), (2, [3], [4, 5])):
        async with topic_of(made, MessageId(LEDGER, start)) as (_, reader):
            entries = await reader.read_batches(5)
            assert [each.entry_id for each in entries] == found
            assert reader.incomplete_message_ids() == [MessageId(LEDGER, n) for n in missed]
            assert reader.incomplete_message_ids() == []


@pytest.mark.parametrize("there", [4, 6])
@pytest.mark.parametrize("cuts", [1, 2])
@pytest.mark.parametrize("taken", [0, 1])
async def test_chunks_around_what_was_read_when_the_connection_breaks(
    autojump_clock: MockClock, there: int, cuts: int, taken: int
) -> None:
    """Complete or not, their messages arrive, and read ones don't come again."""
    one, two = chunks_of("a", b"1", b"2", b"3"), chunks_of("b", b"4", b"5")
    made = [one[0], two[0], batch([Made(b"x")]), one[1], one[2], two[1]]
    async with topic_of(made[:there]) as (broker, reader):
        got: list[bytes] = []
        for _ in range(taken):
            got += (await reader.read_batches(5, bytes_max=1))[0].payloads()
        for _ in range(cuts):
            broker.cut()
            await trio.sleep(0.001)
        broker.topic("t").entries = made
        while len(got) < 3:
            got += [each for entry in await reader.read_batches(5) for each in entry.payloads()]
        assert got == [b"x", b"123", b"45"]
        with pytest.raises(geminga.OperationTimeoutError):
            await reader.read_batches(1)
        assert reader.incomplete_message_ids() == []


async def test_what_can_not_be_read() -> None:
    good = Made(b"good", key="key").in_batch()
    bad_text = b"\x00\x00\x00\x09\x0a\x05\x0a\x01\xff\x12\x00\x18\x00"
    bad_key = b"\x00\x00\x00\x05\x12\x01\xff\x18\x00"
    bad_fields = b"\x00\x00\x00\x03\x18\x00\x42"
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.num_messages_in_batch = 2
    made = [build(metadata, good + bad) for bad in (bad_text, bad_key, bad_fields)]
    made.append(single(Made(key="no Base64", key_is_base64=True)))
    async with topic_of(made) as (_, reader):
        text, key, fields, base64 = await reader.read_batches()
    assert text.properties() == [{}, {"\ufffd": ""}]
    assert key.keys() == ["key", "\ufffd"]
    assert key.keys_as_bytes() == [b"key", "\ufffd".encode()]
    assert fields.payloads() == [b"good", b""]
    for column in (fields.keys, fields.nulls, fields.sequence_ids, base64.keys_as_bytes):
        with pytest.raises(geminga.CorruptMessageError, match=r"message 7:[23]: ") as raised:
            column()
        assert raised.value.topic == fields.topic_name
    assert base64.keys() == ["no Base64"]
    async with topic_of(made) as (_, reader):
        messages = [await reader.read_next() for _ in range(4)]
    assert messages[1].properties == {"\ufffd": ""}
    assert (messages[3].partition_key, messages[3].partition_key_bytes) == (
        "\ufffd",
        "\ufffd".encode(),
    )


async def test_compacted_out_is_no_message_of_a_subscription_either(
    autojump_clock: MockClock,
) -> None:
    """A removed message is acknowledged with the others of its batch."""
    async with fake_broker() as broker, broker.client() as client:
        broker.topic("t").entries = [
            batch([Made(b"1"), Made(is_compacted_out=True), Made(b"3")]),
            batch([Made(b" \x01", properties={" \x01": " \x01"})]),
        ]
        earliest = geminga.InitialPosition.EARLIEST
        async with await client.subscribe(
            "t", "s", read_compacted=True, initial_position=earliest
        ) as consumer:
            messages = [await consumer.receive(5) for _ in range(3)]
            assert [each.data for each in messages] == [b"1", b"3", b" \x01"]
            for message in messages:
                await consumer.acknowledge(message)
            await trio.sleep(1)
            assert broker.topic("t").subscriptions["s"].acked == {0, 1}


async def test_partitions(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/t"] = 3
        for n in range(3):
            name = f"t-partition-{n}"
            broker.topic(name).entries = [batch([Made(b"%d" % n)] * (n + 1))] * 2
        async with await client.create_reader("t", geminga.EARLIEST) as reader:
            got: list[EntryBatch] = []
            while len(got) < 6:
                got += await reader.read_batches(5, bytes_max=2)
            assert not await reader.has_message_available()
            for entry in got:
                assert entry.topic_name.endswith(f"/t-partition-{entry.partition}")
                assert entry.payloads() == [b"%d" % entry.partition] * (entry.partition + 1)
                assert {each.partition for each in entry.message_ids()} == {entry.partition}
            await trio.sleep(1)
            for n in range(3):
                (subscription,) = broker.topic(f"t-partition-{n}").subscriptions.values()
                assert subscription.mark_delete == 1
