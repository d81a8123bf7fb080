from __future__ import annotations

import datetime
import random
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import geminga
from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga_protocol.batch import split_batch
from geminga_protocol.payload import parse_metadata, split
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

LZ4 = geminga.CompressionType.LZ4


@asynccontextmanager
async def producing(**options: Any) -> Any:
    async with fake_broker() as broker, broker.client() as client:
        yield broker, await client.create_producer("t", **options)


def stored(broker: FakeBroker, topic: str = "t") -> list[bytes]:
    """Payloads of the topic's messages, in order."""
    found: list[bytes] = []
    for entry in broker.topic(topic).entries:
        metadata = parse_metadata(memoryview(entry))
        payload = split(memoryview(entry)).payload
        if metadata.HasField("num_messages_in_batch"):
            found += [bytes(data) for _, data in split_batch(metadata, payload)]
        else:
            found.append(bytes(payload))
    return found


async def test_send_answers_the_id(autojump_clock: MockClock) -> None:
    async with producing() as (broker, producer):
        first = await producer.send(b"one")
        second = await producer.send(bytearray(b"two"))
        assert first < second
        assert stored(broker) == [b"one", b"two"]
        assert producer.last_sequence_id == 1
        assert producer.topic == "persistent://public/default/t"


async def test_a_lonely_message_waits_for_nobody(autojump_clock: MockClock) -> None:
    async with producing(batching_max_publish_delay_s=5) as (_, producer):
        began_s = trio.current_time()
        await producer.send(b"one")
        assert trio.current_time() == began_s


async def test_many_tasks_share_batches(autojump_clock: MockClock) -> None:
    async with producing() as (broker, producer):
        async with trio.open_nursery() as nursery:
            for n in range(50):
                nursery.start_soon(producer.send, b"%d" % n)
        assert len(broker.topic("t").entries) <= 2
        assert sorted(stored(broker), key=int) == [b"%d" % n for n in range(50)]


def counts(broker: FakeBroker) -> list[int]:
    """Messages of each entry."""
    entries = broker.topic("t").entries
    return [parse_metadata(memoryview(entry)).num_messages_in_batch for entry in entries]


async def test_who_sends_one_at_a_time_waits_for_no_turn(autojump_clock: MockClock) -> None:
    """Only after some messages, so that many tasks that begin at once share a batch; and no longer
    once several send.
    """
    async with producing() as (broker, producer):
        part = producer._parts[0]
        for n in range(12):
            receipt = await producer.submit(b"%d" % n)
            assert (part.outbox.in_flight == 1) == (n >= 8)
            await receipt.wait()
        assert counts(broker) == [1] * 12
        for expected in ([1, 9], [10], [10]):
            before = len(counts(broker))
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(producer.send, b"x")
            assert counts(broker)[before:] == expected


async def test_batches_wait_while_something_is_in_flight(autojump_clock: MockClock) -> None:
    async with producing(batching_max_publish_delay_s=5) as (broker, producer):
        broker.hold_receipts = True
        await producer.submit(b"first")
        await trio.sleep(0.1)
        began_s = trio.current_time()
        await producer.submit(b"second")
        await producer.submit(b"third")
        await trio.sleep(4.5)
        assert stored(broker) == [b"first"]
        await trio.sleep(1)
        assert stored(broker) == [b"first", b"second", b"third"]
        assert trio.current_time() - began_s == 5.5
        # A receipt that empties the window sends the open batch at once.
        await producer.submit(b"fourth")
        broker.release_receipts()
        await trio.sleep(0.1)
        assert stored(broker)[-1] == b"fourth"


async def test_a_full_queue_blocks_or_raises(autojump_clock: MockClock) -> None:
    async with producing(max_pending_messages=3, batching_enabled=False) as (broker, producer):
        broker.hold_receipts = True
        for _ in range(3):
            producer.send_nowait(b"x")
        with pytest.raises(geminga.ProducerQueueFullError) as caught:
            producer.send_nowait(b"x")
        assert caught.value.retryable
        with trio.move_on_after(10) as scope:
            await producer.submit(b"x")
        assert scope.cancelled_caught
        assert producer.pending_messages == 3
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.submit, b"last")
            await trio.sleep(1)
            broker.hold_receipts = False
            broker.release_receipts()
        await producer.flush()
        assert stored(broker) == [b"x", b"x", b"x", b"last"]


async def test_the_memory_limit_is_the_clients(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(memory_limit_bytes=100) as client:
        one = await client.create_producer("one")
        two = await client.create_producer("two")
        broker.hold_receipts = True
        one.send_nowait(b"x" * 150)
        with pytest.raises(geminga.MemoryLimitError):
            two.send_nowait(b"x")
        with trio.move_on_after(1) as scope:
            await two.send(b"x")
        assert scope.cancelled_caught
        broker.hold_receipts = False
        broker.release_receipts()
        await two.send(b"y")
        assert stored(broker, "two") == [b"y"]


async def test_what_is_wrong_raises_at_the_call(autojump_clock: MockClock) -> None:
    async with producing() as (_, producer):
        calls: list[tuple[dict[str, Any], str]] = [
            ({"data": "text"}, "data"),
            ({"data": b"", "sequence_id": -1}, "sequence_id"),
            ({"data": b"", "properties": {"a": 1}}, "properties"),
            ({"data": b"", "partition_key": 7}, "partition_key"),
            ({"data": b"", "ordering_key": 5}, "ordering_key"),
            ({"data": b"", "event_time_ms": -5}, "event_time_ms"),
            ({"data": b"", "deliver_at_ms": 1.5}, "deliver_at_ms"),
            ({"data": b"", "deliver_after": 5}, "deliver_after"),
            (
                {"data": b"", "deliver_at_ms": 5, "deliver_after": datetime.timedelta(1)},
                "deliver_at_ms",
            ),
            ({"data": b"", "colour": "red"}, "colour"),
            ({"data": bytes(6 * 1024 * 1024)}, "limit"),
        ]
        for arguments, named in calls:
            with pytest.raises(geminga.InvalidArgumentError, match=named):
                await producer.send(**arguments)
            with pytest.raises(geminga.InvalidArgumentError, match=named):
                producer.send_nowait(**arguments)
        assert producer.pending_messages == 0


async def test_no_receipt_in_time(autojump_clock: MockClock) -> None:
    async with producing(send_timeout_s=7, batching_enabled=False) as (broker, producer):
        broker.hold_receipts = True
        receipt = await producer.submit(b"x")
        began_s = trio.current_time()
        with pytest.raises(geminga.OperationTimeoutError) as caught:
            await receipt.wait()
        assert trio.current_time() - began_s == pytest.approx(7)
        assert caught.value.topic == "persistent://public/default/t"
        assert isinstance(receipt.error, geminga.OperationTimeoutError)
        broker.release_receipts()  # late: ignored
        broker.hold_receipts = False
        await producer.send(b"y")


async def test_closing_flushes_and_ends(autojump_clock: MockClock) -> None:
    async with producing(batching_max_publish_delay_s=5) as (broker, producer):
        receipt = await producer.submit(b"x")
        await producer.aclose()
        await producer.aclose()
        assert receipt.message_id.entry_id == 0
        with pytest.raises(geminga.AlreadyClosedError):
            await producer.send(b"y")
        assert not broker.topic("t").producers


async def test_closing_is_told_though_flushing_fails(autojump_clock: MockClock) -> None:
    async with producing(send_timeout_s=1) as (broker, producer):
        broker.hold_receipts = True
        receipt = await producer.submit(b"x")
        await producer.aclose()
        assert isinstance(receipt.error, geminga.OperationTimeoutError)
        assert broker.sessions
        assert not broker.topic("t").producers


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ServerError.TopicTerminatedError, geminga.TopicTerminatedError),
        (ServerError.NotAllowedError, geminga.NotAllowedError),
    ],
)
async def test_send_errors_that_fail(
    code: ServerError, kind: type[Exception], autojump_clock: MockClock
) -> None:
    async with producing() as (broker, producer):
        broker.fail["send"] = [(code, "no")]
        with pytest.raises(kind):
            await producer.send(b"x")
        if kind is geminga.TopicTerminatedError:
            with pytest.raises(kind):
                await producer.send(b"y")
            await trio.sleep(1)
            assert not broker.topic("t").producers
        else:
            await producer.send(b"y")


@pytest.mark.parametrize("code", [ServerError.ChecksumError, ServerError.PersistenceError])
async def test_send_errors_that_are_overcome(code: ServerError, autojump_clock: MockClock) -> None:
    async with producing(batching_enabled=False) as (broker, producer):
        broker.fail["send"] = [(code, "once")]
        receipts = [await producer.submit(b"%d" % n) for n in range(5)]
        for receipt in receipts:
            await receipt.wait()
        # Those after the failed one may have been stored before its resend; deduplication by
        # sequence id drops duplicates, and none is lost.
        assert set(stored(broker)) >= {b"1", b"2", b"3", b"4"}


async def test_a_timeout_tells_what_the_broker_refused_with(autojump_clock: MockClock) -> None:
    async with producing(send_timeout_s=10) as (broker, producer):
        broker.fail["send"] = [(ServerError.PersistenceError, "the bookie is read-only")] * 1000
        with pytest.raises(geminga.OperationTimeoutError, match="PersistenceError: the bookie is"):
            await producer.send(b"x")
        broker.fail["send"] = []
        await producer.send(b"y")
        await trio.sleep(60)
        broker.hold_receipts = True
        with pytest.raises(geminga.OperationTimeoutError) as caught:
            await producer.send(b"z")
        assert "Persistence" not in str(caught.value)


async def test_partitions_take_turns_and_keys_stay(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/p"] = 3
        producer = await client.create_producer("p", batching_max_messages=2)
        for _ in range(12):
            await producer.submit(b"x")
        await producer.flush()
        assert [len(stored(broker, f"p-partition-{n}")) for n in range(3)] == [4, 4, 4]
        ids = [await producer.send(b"k", partition_key="key") for _ in range(5)]
        assert len({each.partition for each in ids}) == 1


async def test_custom_router(autojump_clock: MockClock) -> None:
    chosen: list[tuple[str | None, int]] = []

    def route(message: geminga.RoutedMessage, partitions: int) -> int:
        chosen.append((message.partition_key, partitions))
        return int(message.data)

    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/p"] = 3
        producer = await client.create_producer("p", message_router=route)
        assert (await producer.send(b"2", partition_key="k")).partition == 2
        assert chosen == [("k", 3)]
        with pytest.raises(geminga.InvalidArgumentError, match="message_router"):
            await producer.send(b"3")


async def test_cancelled_create_leaves_nothing(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.fail["lookupTopic"] = [(ServerError.ServiceNotReady, "loading")] * 1000
        with trio.move_on_after(3) as scope:
            await client.create_producer("t")
        assert scope.cancelled_caught
        broker.fail.clear()
        await trio.sleep(100)
        assert "producer" not in broker.seen


async def test_last_sequence_id_is_the_brokers(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        async with await client.create_producer("t", producer_name="p") as producer:
            for _ in range(3):
                await producer.send(b"x")
        again = await client.create_producer("t", producer_name="p")
        assert again.last_sequence_id == 2
        await again.send(b"y")
        assert again.last_sequence_id == 3
        duplicate = await again.send(b"x", sequence_id=1)
        assert (duplicate.ledger_id, duplicate.entry_id) == (-1, -1)
        assert len(stored(broker)) == 4


@pytest.mark.parametrize("partitions", [0, 3])
async def test_flushing_tells_how_many_failed(partitions: int, autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/p"] = partitions
        producer = await client.create_producer("p", batching_max_messages=2, send_timeout_s=1)
        await producer.send(b"well")
        broker.hold_receipts = True
        for n in range(6):
            await producer.submit(b"%d" % n)
        with pytest.raises(geminga.OperationTimeoutError, match="6 messages failed, the first"):
            await producer.flush()
        # A failure is raised once, by the flush that waited for it.
        await producer.flush()


async def test_a_timeout_tells_of_nothing_that_the_broker_did_not_say(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with producing(send_timeout_s=40) as (broker, producer):
        monkeypatch.setattr(FakeSession, "on_producer", lambda *_: None)
        broker.cut()
        with pytest.raises(geminga.OperationTimeoutError) as caught:
            await producer.send(b"x")
        assert "last answer" not in str(caught.value)


async def test_flushing_waits_for_earlier_messages_though_the_newest_fails_at_once(
    autojump_clock: MockClock,
) -> None:
    options = {"batching_max_messages": 3, "batching_max_bytes": 9 << 20, "compression_type": LZ4}
    async with producing(**options) as (broker, producer):
        broker.hold_receipts = True
        earlier = [await producer.submit(b"x") for _ in range(3)]
        await producer.submit(random.randbytes(6 * 1024 * 1024))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(release_after, 1, broker)
            with pytest.raises(geminga.MessageTooBigError):
                await producer.flush()
        assert all(each.is_done for each in earlier)


async def release_after(seconds: float, broker: FakeBroker) -> None:
    await trio.sleep(seconds)
    broker.release_receipts()


async def test_a_block_with_failed_messages_warns(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        async with client.create_producer("t", send_timeout_s=1) as producer:
            broker.hold_receipts = True
            for _ in range(3):
                await producer.submit(b"x")
            await trio.sleep(2)
        assert "t: closed; 3 messages got no receipt" in caplog.text
        caplog.clear()
        await producer.aclose()
        assert not caplog.records


async def test_submitting_many_sends_none_if_one_is_too_large(autojump_clock: MockClock) -> None:
    async with producing() as (broker, producer):
        with pytest.raises(geminga.MessageTooBigError):
            await producer.submit_many([b"x", b"x" * 6 * 1024 * 1024])
        with pytest.raises(geminga.InvalidArgumentError):
            await producer.submit_many([b"x", "text"])
        with pytest.raises(geminga.InvalidArgumentError, match="payloads must be a sequence"):
            await producer.submit_many(b"xyz")
        await producer.flush()
        assert stored(broker) == []
        receipts = await producer.submit_many(b"%d" % n for n in range(1500))
        assert [await each.wait() for each in receipts]
        assert stored(broker) == [b"%d" % n for n in range(1500)]


async def test_who_is_told_finds_it_counted(autojump_clock: MockClock) -> None:
    async with producing() as (_, producer):
        counted: list[int] = []
        receipt = await producer.submit(b"x")
        receipt.add_done_callback(
            lambda _: counted.append(producer.statistics().total_acks_received)
        )
        await receipt.wait()
        assert counted == [1]
