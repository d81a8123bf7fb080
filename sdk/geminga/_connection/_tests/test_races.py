"""Events in the same turn of the loop as an end, and effects of an end on others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga import ConsumerType, InitialPosition, MessageId
from geminga._connection.connection import Connection
from geminga._tests.fake_broker import fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

T = "persistent://public/default/t"
ALL = {"initial_position": InitialPosition.EARLIEST}


@pytest.mark.parametrize("kind", ["producer", "consumer"])
async def test_closed_when_the_answer_is_there(
    kind: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """The broker had registered it again; it doesn't stay registered."""
    answered = BaseCommand.PRODUCER_SUCCESS if kind == "producer" else BaseCommand.SUCCESS
    request = Connection.request
    closing = False

    async def closes(
        self: Connection, make: Callable[[int], bytes], *, timeout_s: float, topic: str | None
    ) -> BaseCommand:
        nonlocal closing
        answer = await request(self, make, timeout_s=timeout_s, topic=topic)
        if closing and answer.type == answered:
            closing = False
            part.failed(geminga.AlreadyClosedError("closed"))
            part._handler.abandon()
        return answer

    async with fake_broker() as broker, broker.client() as client:
        if kind == "producer":
            part = (await client.create_producer("t"))._parts[0]
        else:
            part = (await client.subscribe("t", "s"))._parts.each[0]
        monkeypatch.setattr(Connection, "request", closes)
        closing = True
        broker.cut()
        await trio.sleep(5)
        assert not closing
        assert not broker.topic("t").producers
        assert all(not session.consumers for session in broker.sessions)


async def test_closing_wakes_those_who_wait_for_memory(autojump_clock: MockClock) -> None:
    """Another producer uses the memory, and may never release it."""
    async with fake_broker() as broker, broker.client(memory_limit_bytes=10) as client:
        broker.hold_receipts = True
        other = await client.create_producer("other")
        mine = await client.create_producer("t")
        other.send_nowait(bytes(20))
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_closed_under, mine)
                await trio.sleep(1)
                await mine.aclose()
        broker.release_receipts()


async def test_a_place_that_is_not_taken_is_the_next_ones(autojump_clock: MockClock) -> None:
    """The woken waiter then waits for memory, and gives up."""
    async with fake_broker() as broker, broker.client(memory_limit_bytes=10) as client:
        broker.hold_receipts = True
        other = await client.create_producer("other")
        mine = await client.create_producer("t", max_pending_messages=1)
        first = await mine.submit(b"1")
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                giving_up = trio.CancelScope()

                async def give_up() -> None:
                    with giving_up:
                        await mine.submit(b"2")

                nursery.start_soon(give_up)
                await trio.sleep(0.1)
                nursery.start_soon(mine.submit, b"3")
                await trio.sleep(0.1)
                large = await other.submit(bytes(20))
                broker.held.pop(0)()
                await first.wait()
                await trio.sleep(0.1)
                giving_up.cancel()
                await trio.sleep(0.1)
                broker.release_receipts()
                await large.wait()
        broker.release_receipts()


async def _closed_under(producer: geminga.Producer) -> None:
    with pytest.raises(geminga.AlreadyClosedError):
        await producer.send(b"x")


async def test_growth_in_the_turn_in_which_it_is_closed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        name = "persistent://public/default/p"
        broker.partitions[name] = 1
        producer = await client.create_producer("p", auto_update_partitions_interval_s=10)
        partitions = producer._partitions
        make = partitions._make

        def made(index: int) -> object:
            part = make(index)
            start = part.start

            async def started() -> None:
                await start()
                partitions.stop()

            part.start = started
            return part

        monkeypatch.setattr(partitions, "_make", made)
        broker.partitions[name] = 2
        await trio.sleep(20)
        assert len(producer._parts) == 1
        assert not broker.topic(f"{name}-partition-1").producers


async def test_new_partitions_of_a_paused_consumer_wait_too(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/p"] = 1
        consumer = await client.subscribe("p", "s", auto_update_partitions_interval_s=10, **ALL)
        consumer.pause()
        broker.partitions["persistent://public/default/p"] = 2
        await trio.sleep(11)
        assert len(consumer.topics) == 2
        producer = await client.create_producer("p-partition-1")
        await producer.send(b"x")
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(5)
        consumer.resume()
        assert (await consumer.receive(5)).data == b"x"


async def test_a_connection_that_opens_while_the_client_closes(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_refused, client)
            await trio.lowlevel.checkpoint()
            await client.aclose()
        await trio.sleep(1)
        assert not broker.sessions


async def _refused(client: geminga.Client) -> None:
    with pytest.raises(geminga.AlreadyClosedError):
        await client.list_partitions("t")


async def test_seeks_at_once_follow_one_another(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_enabled=False)
        ids = [await producer.send(b"%d" % n) for n in range(6)]
        consumer = await client.subscribe("t", "s", **ALL)
        for _ in range(20):
            async with trio.open_nursery() as nursery:
                for place in (ids[3], ids[0], ids[4], ids[1]):
                    nursery.start_soon(consumer.seek, place)
            seen = []
            with pytest.raises(geminga.OperationTimeoutError):
                while True:
                    seen.append((await consumer.receive(1)).data)
            assert seen in ([b"%d" % n for n in range(first, 6)] for first in (1, 2, 4, 5))


@pytest.mark.parametrize("size", [2, 50])
async def test_ids_that_tell_a_wrong_size(size: int, autojump_clock: MockClock) -> None:
    """Made by the program; the client continues, and the whole batch is redelivered."""
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", batching_max_publish_delay_s=1)
        consumer = await client.subscribe(
            "t", "s", consumer_type=ConsumerType.SHARED, negative_ack_redelivery_delay_s=0.1
        )
        for n in range(5):
            producer.send_nowait(b"%d" % n)
        await producer.flush()
        messages = [await consumer.receive() for _ in range(5)]
        place = messages[0].message_id
        await consumer.acknowledge(
            MessageId(place.ledger_id, place.entry_id, place.partition, 1, size)
        )
        await consumer.acknowledge(messages[0])
        await consumer.acknowledge(
            MessageId(place.ledger_id, place.entry_id, place.partition, 1, size)
        )
        consumer.negative_acknowledge(messages[4])
        again = [await consumer.receive(5) for _ in range(5)]
        assert [each.data for each in again] == [b"%d" % n for n in range(5)]
        await consumer.acknowledge_all(again)
        await consumer.aclose()
        assert broker.topic("t").subscriptions["s"].acked == {0}
