from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import geminga
from geminga._tests.fake_broker import fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import ServerError


async def test_the_programs_error_comes_out_as_itself(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker:
        with pytest.raises(ZeroDivisionError):
            async with broker.client() as client:
                await client.create_producer("t")
                _ = 1 / 0
        assert not broker.topic("t").producers


async def test_leaving_the_block_closes_all(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker:
        async with broker.client() as client:
            producer = await client.create_producer("t")
            consumer = await client.subscribe("t", "s")
            receipt = await producer.submit(b"x")
            await consumer.acknowledge(await consumer.receive())
        assert receipt.message_id.entry_id == 0
        assert broker.topic("t").subscriptions["s"].acked == {0}
        assert broker.sessions == []
        with pytest.raises(geminga.AlreadyClosedError):
            await client.create_producer("t")
        with pytest.raises(geminga.AlreadyClosedError):
            await producer.send(b"y")


async def test_leaving_by_cancellation(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker:
        with trio.move_on_after(1) as scope:
            async with broker.client() as client:
                await client.create_producer("t")
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert not broker.topic("t").producers


async def test_connections_are_shared(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(client.create_producer, f"t{n}")
        assert len(broker.sessions) == 1
    async with fake_broker() as broker, broker.client(connections_per_broker=3) as client:
        for n in range(20):
            await client.create_producer(f"t{n}")
        assert len(broker.sessions) == 3


async def test_partitions_are_told(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.partitions["persistent://public/default/p"] = 2
        base = "persistent://public/default/p"
        assert await client.list_partitions("p") == [
            f"{base}-partition-0",
            f"{base}-partition-1",
        ]
        assert await client.list_partitions(f"{base}-partition-1") == [f"{base}-partition-1"]
        assert await client.list_partitions("t") == ["persistent://public/default/t"]


async def test_brokers_that_refuse_us(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.fail["partitionMetadata"] = [(ServerError.AuthorizationError, "no")]
        with pytest.raises(geminga.AuthorizationError) as caught:
            await client.create_producer("t")
        assert caught.value.topic == "persistent://public/default/t"
        assert not caught.value.retryable


async def test_nobody_there(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(operation_timeout_s=5) as client:
        broker.refuse_connections = 10_000
        with pytest.raises(geminga.ConnectionFailedError):
            await client.create_producer("t")
    with pytest.raises(geminga.InvalidServiceUrlError):
        geminga.connect("ftp://localhost")
    with pytest.raises(geminga.InvalidArgumentError, match="colour"):
        geminga.connect("pulsar://localhost", colour="red")


async def test_wrong_arguments(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        for topic in ("", "a/b", "x://a/b/c", 5):
            with pytest.raises(geminga.InvalidArgumentError, match=r"topic|neither|domain"):
                await client.create_producer(topic)
        with pytest.raises(geminga.InvalidArgumentError, match="subscription_name"):
            await client.subscribe("t", "")
        with pytest.raises(geminga.InvalidArgumentError, match="topic"):
            await client.subscribe([], "s")
        broker.partitions["persistent://public/default/p"] = 2
        with pytest.raises(geminga.InvalidArgumentError, match="receiver_queue_size"):
            await client.subscribe("p", "s", receiver_queue_size=0)
        with pytest.raises(geminga.InvalidArgumentError, match="batching"):
            await client.create_producer("t", batching=True)


async def test_over_real_sockets_nothing_answers(tcp_port_refusing: int) -> None:
    async with geminga.connect(
        f"pulsar://127.0.0.1:{tcp_port_refusing}", operation_timeout_s=0.3
    ) as client:
        with pytest.raises(geminga.ConnectionFailedError):
            await client.create_producer("t")


@pytest.fixture
async def tcp_port_refusing() -> int:
    listener = trio.socket.socket()
    await listener.bind(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    listener.close()
    return port


async def test_a_cancelled_program_still_sends_what_waits(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker:
        with trio.CancelScope() as program:
            async with broker.client() as client:
                consumer = await client.subscribe("t", "s", ack_grouping_time_s=60)
                producer = await client.create_producer("t", batching_max_publish_delay_s=60)
                await producer.send(b"x")
                await consumer.acknowledge(await consumer.receive())
                receipts = [producer.send_nowait(b"y") for _ in range(3)]
                assert not broker.acks
                program.cancel()
                await trio.sleep_forever()
        assert [receipt.error for receipt in receipts] == [None] * 3
        assert len(broker.acks) == 1
        assert not broker.sessions or trio.current_time() < 1


async def test_a_cancelled_program_leaves_a_silent_broker_soon(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker:
        with trio.CancelScope() as program:
            async with broker.client() as client:
                producer = await client.create_producer("t")
                consumer = await client.subscribe("t", "s")
                await trio.sleep(1)
                for session in broker.sessions:
                    session.handle = lambda frame: None
                receipt = producer.send_nowait(b"x")
                began_s = trio.current_time()
                program.cancel()
                await consumer.receive()
        assert 1 < trio.current_time() - began_s <= 3
        assert isinstance(receipt.error, geminga.AlreadyClosedError)


async def test_a_cancelled_program_cancels_its_listeners(autojump_clock: MockClock) -> None:
    ended_s = []

    async def listen(consumer: geminga.Consumer, message: geminga.Message) -> None:
        try:
            await trio.sleep(1000)
        finally:
            ended_s.append(trio.current_time())

    async with fake_broker() as broker:
        with trio.CancelScope() as program:
            async with broker.client() as client:
                await client.subscribe("t", "s", message_listener=listen)
                await (await client.create_producer("t")).send(b"x")
                await trio.sleep(5)
                program.cancel()
                await trio.sleep_forever()
        assert ended_s == [5]
        assert trio.current_time() < 6


async def test_what_is_opened_can_be_awaited_or_entered(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        async with client.create_producer("t") as producer:
            await producer.send(b"one")
        with pytest.raises(geminga.AlreadyClosedError):
            await producer.send(b"two")
        producer = await client.create_producer("t")
        await producer.send(b"two")
        async with client.create_reader("t", geminga.EARLIEST) as reader:
            assert (await reader.read_next()).data == b"one"
        async with client.subscribe("t", "s") as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(client.create_producer, "t")
            assert consumer.is_connected
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive()
