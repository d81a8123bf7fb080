"""Whole entries: their columns tell what messages tell, and they come as messages come."""

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
from geminga._tests.entry_making import (
    Made,
    Told,
    batch,
    entries,
    single,
    told_by,
    told_by_message,
)
from geminga._tests.fake_broker import FakeBroker, fake_broker
from geminga._tests.fake_topics import LEDGER
from geminga_protocol.message_id import MessageId


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
            except geminga.Timeout:
                # What is left of the last batch was taken out.
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
        st.tuples(st.sampled_from(["message", "cut", "wait"]), st.just(0)),
    ),
    max_size=12,
)


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
    """Whatever the batches, the start, the limits and the connection do, entries and messages in
    any mixture are what messages alone would have been.
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
                elif len(got) < len(expected):
                    if step == "message":
                        got.append(told_by_message(await reader.read_next(5)))
                    else:
                        got += told_by(await reader.read_entries(5, bytes_max=bytes_max))
            while len(got) < len(expected):
                got += told_by(await reader.read_entries(5))
            with pytest.raises(geminga.Timeout):
                await reader.read_entries(1)
        assert got == expected

    trio.run(main, clock=MockClock(autojump_threshold=0))


@given(entries(), st.data())
@settings(max_examples=60, deadline=None)
def test_after_seeks(made: list[bytes], data: st.DataObject) -> None:
    """What was there is dropped, within a batch too, and what follows the place comes."""

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
                        got += told_by(await reader.read_entries(5, bytes_max=data.draw(BYTES)))
                assert got == expected[at + 1 :][: len(got)]

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_limits(autojump_clock: MockClock) -> None:
    made = [batch([Made(b"x" * 10)] * 4), batch([Made(b"y" * 10)] * 4), single(Made(b"z" * 10))]
    async with topic_of(made) as (_, reader):
        (first,) = await reader.read_entries(bytes_max=1)
        assert (len(first), first.size_bytes, first.message_count) == (4, 40, 4)
        assert first.indexes == range(4)
        second, third = await reader.read_entries(bytes_max=50)
        assert second.payloads() == [b"y" * 10] * 4
        assert (third.payloads(), list(third.indexes), third.message_count) == (
            [b"z" * 10],
            [-1],
            1,
        )
        assert repr(second) == f"<ReceivedEntry 7:1 of {second.topic_name}, 4 messages>"
        with pytest.raises(geminga.Timeout):
            await reader.read_entries(0)
    with pytest.raises(geminga.AlreadyClosed):
        await reader.read_entries()


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
        with pytest.raises(geminga.InvalidArgument, match=name):
            await reader.read_entries(**arguments)


async def test_keys_as_bytes() -> None:
    keys = [Made(key="a2V5", key_is_base64=True), Made(key="key"), Made()]
    async with topic_of([batch(keys), single(keys[0])]) as (_, reader):
        of_batch, of_single = await reader.read_entries()
        assert of_batch.keys_as_bytes() == [b"key", b"key", None]
        assert of_single.keys_as_bytes() == [b"key"]
        assert of_batch.keys() == ["a2V5", "key", None]


async def test_permits_are_given_back(autojump_clock: MockClock) -> None:
    """Entries leave the queue whole: the broker never stops, and sends no more than it may."""
    made = [batch([Made(b"%d" % n)] * 7) for n in range(40)]
    async with topic_of(made, receiver_queue_size=10) as (broker, reader):
        got = 0
        while got < 280:
            got += sum(map(len, await reader.read_entries(5)))
            (subscription,) = broker.topic("t").subscriptions.values()
            (consumer,) = subscription.consumers
            await trio.sleep(1)
            in_queue = consumer.messages_sent - got
            assert consumer.permits_given <= got + 10
            assert in_queue <= 10 + 6
        # All was acknowledged on the way, so that figures of the broker are true.
        await trio.sleep(1)
        assert subscription.mark_delete == 39
        statistics = reader._consumer.statistics()
        assert statistics.total_msgs_received == 280
        assert statistics.total_bytes_received == sum(7 * len(str(n)) for n in range(40))


async def test_cancelled_it_takes_nothing(autojump_clock: MockClock) -> None:
    async with topic_of([]) as (broker, reader):
        with trio.move_on_after(1) as scope:
            await reader.read_entries()
        assert scope.cancelled_caught
        async with broker.client() as client, await client.create_producer("t") as producer:
            await producer.send(b"x")
        with trio.CancelScope() as scope:
            scope.cancel()
            await reader.read_entries()
        (entry,) = await reader.read_entries(5)
        assert entry.payloads() == [b"x"]


async def test_what_came_last_is_told(autojump_clock: MockClock) -> None:
    """Also where no message came of it; what a lost connection takes along comes again."""
    damaged = single(Made(b"x"))[:-1] + b"!"
    async with topic_of([single(Made(b"a")), damaged]) as (broker, reader):
        (entry,) = await reader.read_entries(5)
        assert entry.payloads() == [b"a"]
        await trio.sleep(1)
        assert reader.received_ids()[0] == MessageId(LEDGER, 1)
        broker.cut()
        await trio.sleep(0.01)
        assert reader.received_ids()[0] == MessageId(-1, -1)
        with pytest.raises(geminga.Timeout):
            await reader.read_entries(5)
        assert reader.received_ids()[0] == MessageId(LEDGER, 1)
