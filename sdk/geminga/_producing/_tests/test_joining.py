"""Messages that join the open batch are as others."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Generator, Iterable, Iterator
from typing import cast

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from trio.testing import MockClock

import geminga
from geminga._entries.encode import Extras
from geminga._producing._tests.desk import Desk
from geminga._producing._tests.test_producer import producing, stored
from geminga._producing.window import ReceiptVerdict
from geminga._tests.fake_broker import fake_broker
from geminga.errors import GemingaError
from geminga_protocol.batch import split_batch
from geminga_protocol.payload import parse_metadata, split


def test_what_the_broker_may_have_does_not_join_a_batch() -> None:
    """A batch opened before the broker sent the last sequence id of the producer's name."""
    desk = Desk(held=True)
    desk.box.add(b"x", None, 5)
    desk.add(1)
    assert desk.box.open_batch is not None
    desk.box.let_join(9, 99)
    assert desk.box.joining.join(b"x") is not None
    desk.box.begin(10)
    assert desk.box.joining.join(b"x") is None
    desk.box.let_join(9, 99)
    assert desk.box.joining.join(b"x") is None
    assert desk.box.add_run([b"x"]) == []


@given(
    st.lists(st.tuples(st.sampled_from("ppppprkns"), st.integers(0, 60)), max_size=30),
    st.integers(1, 12),
    st.integers(1, 400),
)
@example([("p", 0), ("p", 0), ("n", 0)], 6, 99)
@example([("p", 1), ("p", 1), ("r", 1), ("p", 1)], 9, 99)
def test_joining_the_open_batch_is_as_adding(
    steps: list[tuple[str, int]], messages_max: int, bytes_max: int
) -> None:
    """Between runs, messages with a key, and with gaps in the sequence ids."""
    options = {"batching_max_messages": messages_max, "batching_max_bytes": bytes_max}
    joining, adding = Desk(**options), Desk(**options)
    told: list[list[object]] = []
    for desk in (joining, adding):
        box = desk.box
        states: list[object] = []
        told.append(states)
        for kind, size in steps:
            data = bytes([size]) * size
            number = box.next_sequence_id + 3 if kind == "n" else None
            if kind == "s":
                box.seal()
            elif kind == "r":
                assert box.add_run([data, data])
            elif kind != "p" or desk is adding or box.joining.join(data) is None:
                box.add(data, Extras(partition_key="k") if kind == "k" else None, number)
                if desk is joining:
                    box.let_join(99, 999)
            states += [box.pending_messages, box.pending_bytes, box.next_sequence_id]
            states += [box.in_flight, [batch.count for batch in box.pending()[: box.in_flight]]]
        box.seal()
    assert [each.frame for each in joining.box.unsent] == [each.frame for each in adding.box.unsent]
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("messages", "size_bytes", "expected"), [(3, 99, 3), (99, 5, 4), (0, 99, 0), (99, 0, 0)]
)
def test_so_many_join_and_no_more(messages: int, size_bytes: int, expected: int) -> None:
    """Of one byte each."""
    desk = Desk()
    desk.add(1)
    desk.box.let_join(messages, size_bytes)
    joined = [desk.box.joining.join(b"x") for _ in range(9)]
    assert [each is not None for each in joined] == [True] * expected + [False] * (9 - expected)
    assert (desk.box.pending_messages, desk.memory.used_bytes) == (1 + expected, expected)
    desk.box.let_join(1, 99)
    assert desk.box.joining.join(b"x") is not None
    desk.box.seal()
    assert desk.sent() == [(0, 1 + expected, 2 + expected)]


@pytest.mark.parametrize("close", ["seal", "fail_all", "abandon"])
def test_none_joins_a_batch_that_was_taken(close: str) -> None:
    desk = Desk()
    (first,) = desk.add(1)
    desk.box.let_join(9, 99)
    joined = desk.box.joining.join(b"x")
    assert joined is not None
    if close == "seal":
        desk.box.seal()
        assert desk.sent() == [(0, 1, 2)]
        assert desk.box.on_receipt(0, 7, 5) is ReceiptVerdict.DONE
    else:
        getattr(desk.box, close)(GemingaError("why"))
    assert first.is_done
    assert joined.is_done
    assert desk.box.joining.join(b"x") is None
    assert desk.box.joining.cost_bytes == 1024
    if close != "abandon":
        assert (desk.box.pending_messages, desk.box.pending_bytes) == (0, 0)


def test_none_joins_while_the_memory_is_used_up() -> None:
    desk = Desk()
    desk.add(1)
    desk.box.let_join(9, 99)
    desk.memory.used_bytes = desk.memory.limit_bytes - 1
    assert desk.box.joining.join(b"xx") is not None  # as one message may
    assert desk.box.joining.join(b"") is None
    desk.memory.used_bytes = 0
    assert desk.box.joining.join(b"x") is not None


async def test_a_full_queue_blocks_messages_of_a_batch(autojump_clock: MockClock) -> None:
    """`submit` looks at the bound of pending messages though a batch is open."""
    async with producing(max_pending_messages=5) as (broker, producer):
        broker.hold_receipts = True
        await producer.submit(b"x")
        await trio.sleep(1)
        with trio.move_on_after(1) as scope:
            for _ in range(9):
                await producer.submit(b"x")
        assert scope.cancelled_caught
        assert producer.pending_messages == 5
        broker.hold_receipts = False
        broker.release_receipts()
        await producer.flush()
        assert stored(broker) == [b"x"] * 5


async def yields(submits: Iterable[Awaitable[object]]) -> list[int]:
    """Which of them let others run."""
    yielded = []
    for number, submitting in enumerate(submits):
        step = submitting.__await__()
        try:
            next(step)
        except (StopIteration, geminga.GemingaError):
            continue
        yielded.append(number)
        cast(Generator[object, None, None], step).close()
    return yielded


@pytest.mark.parametrize(("size_bytes", "between"), [(10, 128), (1024, 128), (4096, 32)])
@pytest.mark.parametrize("nowait", [False, True], ids=["", "beside send_nowait"])
async def test_submit_yields_after_so_many_bytes(
    size_bytes: int, between: int, nowait: bool, autojump_clock: MockClock
) -> None:
    """After 128 KiB or so, each message counted as 1 KiB at least, whatever a batch takes."""
    async with producing(batching_max_bytes=4 << 20, batching_max_messages=9999) as (_, producer):

        def submits() -> Iterator[Awaitable[object]]:
            for number in range(512):
                if nowait and number % 20 == 19:
                    producer.send_nowait(b"")
                yield producer.submit(bytes(size_bytes))

        yielded = await yields(submits())
        assert yielded
        steps = [after - before for before, after in zip([0, *yielded], yielded, strict=False)]
        assert all(abs(step - between) <= 2 for step in steps)
        assert yielded[-1] > 512 - between - 8


@pytest.mark.parametrize("why", ["closed", "router"])
async def test_submit_yields_though_nothing_is_sent(why: str, autojump_clock: MockClock) -> None:
    """A program that tries again and again must not stop all others."""
    async with fake_broker() as broker, broker.client() as client:
        if why == "router":
            broker.partitions["persistent://public/default/t"] = 2
        producer = await client.create_producer("t", message_router=lambda message, count: count)
        if why == "closed":
            await producer.submit(b"x")
            await producer.submit(b"x")
            await producer.aclose()
        yielded = await yields(producer.submit(b"x") for _ in range(512))
        assert 3 <= len(yielded) <= 4


async def test_send_yields_though_nothing_is_sent(autojump_clock: MockClock) -> None:
    async with producing() as (_, producer):
        await producer.aclose()
        assert len(await yields(producer.send(b"x") for _ in range(9))) == 9


async def test_nothing_joins_that_the_broker_no_longer_takes(autojump_clock: MockClock) -> None:
    """Its bound may shrink while a batch is open; others of the batch must not fail with it."""
    async with producing(batching_max_publish_delay_s=100) as (broker, producer):
        broker.hold_receipts = True
        await producer.submit(b"first")
        await trio.sleep(1)
        receipts = [await producer.submit(b"small") for _ in range(3)]
        broker.max_message_size = 5000
        broker.cut()
        await trio.sleep(5)
        for _ in range(2):
            with pytest.raises(geminga.MessageTooBigError):
                await producer.submit(bytes(6000))
            receipts += [await producer.submit(b"small") for _ in range(3)]
        broker.hold_receipts = False
        broker.release_receipts()
        await producer.flush()
        assert all(receipt.error is None for receipt in receipts)


async def test_what_is_described_does_not_join(autojump_clock: MockClock) -> None:
    """Messages with properties, keys and numbers of their own between plain ones."""
    async with producing(batching_max_publish_delay_s=100) as (broker, producer):
        broker.hold_receipts = True
        await producer.submit(b"first")
        await trio.sleep(1)
        for number in range(1, 7):
            await producer.submit(b"plain")
            await producer.submit(b"with", properties={"n": str(number)}, partition_key="k")
        broker.hold_receipts = False
        broker.release_receipts()
        await producer.flush()
        (_, entry) = broker.topic("t").entries
        metadata = parse_metadata(memoryview(entry))
        messages = split_batch(metadata, split(memoryview(entry)).payload)
        described = [(single.partition_key, bytes(data)) for single, data in messages]
        assert described == [("", b"plain"), ("k", b"with")] * 6


async def test_no_message_passes_the_interceptors(autojump_clock: MockClock) -> None:
    class Marked(geminga.ProducerInterceptor):
        def before_send(self, message: geminga.ProducerMessage) -> geminga.ProducerMessage:
            return dataclasses.replace(message, data=message.data + b"!")

    async with producing(interceptors=[Marked()], batching_max_publish_delay_s=100) as made:
        broker, producer = made
        for _ in range(5):
            await producer.submit(b"x")
        await producer.flush()
        assert stored(broker) == [b"x!"] * 5


async def test_batches_of_keys_take_each_message(autojump_clock: MockClock) -> None:
    keyed = geminga.BatchingType.KEY_BASED
    async with producing(batching_type=keyed, batching_max_publish_delay_s=100) as made:
        broker, producer = made
        for _ in range(5):
            await producer.submit(b"x")
        assert producer.pending_messages == 5
        await producer.flush()
        assert stored(broker) == [b"x"] * 5
        assert producer.pending_messages == 0


async def test_messages_that_are_routed_do_not_join(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/t"] = 2
        producer = await client.create_producer(
            "t",
            batching_max_publish_delay_s=100,
            message_router=lambda message, _: int(message.data),
        )
        receipts = [await producer.submit(b"%d" % (number % 2)) for number in range(10)]
        await producer.flush()
        assert [receipt.message_id.partition for receipt in receipts] == [0, 1] * 5
