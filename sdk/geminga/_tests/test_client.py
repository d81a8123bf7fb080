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
            receipt = await producer.send_soon(b"x")
            await consumer.acknowledge(await consumer.receive())
        assert receipt.message_id.entry_id == 0
        assert broker.topic("t").subscriptions["s"].acked == {0}
        assert broker.sessions == []
        with pytest.raises(geminga.AlreadyClosed):
            await client.create_producer("t")
        with pytest.raises(geminga.AlreadyClosed):
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
        assert await client.get_topic_partitions("p") == [
            f"{base}-partition-0",
            f"{base}-partition-1",
        ]
        assert await client.get_topic_partitions(f"{base}-partition-1") == [f"{base}-partition-1"]
        assert await client.get_topic_partitions("t") == ["persistent://public/default/t"]


async def test_brokers_that_refuse_us(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        broker.fail["partitionMetadata"] = [(ServerError.AuthorizationError, "no")]
        with pytest.raises(geminga.AuthorizationFailed) as caught:
            await client.create_producer("t")
        assert caught.value.topic == "persistent://public/default/t"
        assert not caught.value.retryable


async def test_nobody_there(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client(operation_timeout_s=5) as client:
        broker.refuse_connections = 10_000
        with pytest.raises(geminga.ConnectionFailed):
            await client.create_producer("t")
    with pytest.raises(geminga.InvalidServiceUrl):
        geminga.connect("ftp://localhost")
    with pytest.raises(geminga.InvalidArgument, match="colour"):
        geminga.connect("pulsar://localhost", colour="red")


async def test_wrong_arguments(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        for topic in ("", "a/b", "x://a/b/c", 5):
            with pytest.raises(geminga.InvalidArgument, match=r"topic|neither|domain"):
                await client.create_producer(topic)
        with pytest.raises(geminga.InvalidArgument, match="subscription_name"):
            await client.subscribe("t", "")
        with pytest.raises(geminga.InvalidArgument, match="topic"):
            await client.subscribe([], "s")
        broker.partitions["persistent://public/default/p"] = 2
        with pytest.raises(geminga.InvalidArgument, match="receiver_queue_size"):
            await client.subscribe("p", "s", receiver_queue_size=0)
        with pytest.raises(geminga.InvalidArgument, match="batching"):
            await client.create_producer("t", batching=True)


async def test_over_real_sockets_nothing_answers(tcp_port_refusing: int) -> None:
    async with geminga.connect(
        f"pulsar://127.0.0.1:{tcp_port_refusing}", operation_timeout_s=0.3
    ) as client:
        with pytest.raises(geminga.ConnectionFailed):
            await client.create_producer("t")


@pytest.fixture
async def tcp_port_refusing() -> int:
    listener = trio.socket.socket()
    await listener.bind(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    listener.close()
    return port
