"""What producers of our SDK do beside plain sending, on both servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio

import geminga
from compat_tests.clients.conftest import Peer, receive, take_by_turns
from geminga import (
    BatchingType,
    ConsumerType,
    ProducerAccessMode,
    ProducerInterceptor,
    ProducerMessage,
)


@pytest.fixture
async def ours(peer: Peer) -> AsyncIterator[geminga.Client]:
    """Our client on the server under test."""
    async with geminga.connect(peer.server.service_url) as client:
        with trio.fail_after(60):
            yield client


async def test_lazy_partitions_that_grow(peer: Peer, ours: geminga.Client) -> None:
    topic = peer.partitioned("growing", 2)
    producer = await ours.create_producer(
        topic,
        lazy_start_partitioned_producers=True,
        auto_update_partitions_interval_s=0.2,
        batching_enabled=False,
    )
    ids = [await producer.send(b"") for _ in range(4)]
    assert {each.partition for each in ids} == {0, 1}
    path = topic.replace("://", "/") + "/partitions"
    await trio.to_thread.run_sync(peer.admin, "POST", path, 4)
    seen: set[int] = set()
    while seen < {0, 1, 2, 3}:
        seen.add((await producer.send(b"")).partition)
        await trio.sleep(0.01)


async def test_batches_by_key(peer: Peer, ours: geminga.Client) -> None:
    topic = peer.topic("keyed")
    official = peer.consumer(topic, subscription="official")
    consumers = [
        await ours.subscribe(topic, "s", consumer_type=ConsumerType.KEY_SHARED) for _ in range(2)
    ]
    producer = await ours.create_producer(topic, batching_type=BatchingType.KEY_BASED)
    receipts = [producer.send_nowait(b"%d" % n, partition_key=f"k{n % 10}") for n in range(100)]
    await producer.flush()
    entries = {(each.message_id.ledger_id, each.message_id.entry_id) for each in receipts}
    assert len(entries) == 10
    got: list[dict[str, list[int]]] = [{}, {}]
    for mine, taken in zip(got, await take_by_turns(consumers, 100), strict=True):
        for each in taken:
            assert each.partition_key is not None
            mine.setdefault(each.partition_key, []).append(int(each.data))
    assert not got[0].keys() & got[1].keys()
    assert (got[0] | got[1]) == {f"k{n}": list(range(n, 100, 10)) for n in range(10)}
    messages = await trio.to_thread.run_sync(receive, official, 100)
    assert sorted(int(message.data()) for message in messages) == list(range(100))


async def test_lookup_over_http(peer: Peer) -> None:
    topic = peer.partitioned("http", 3)
    async with geminga.connect(peer.server.web_url) as client:
        assert len(await client.list_partitions(topic)) == 3
        with trio.fail_after(100):
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            await producer.send(b"hello")
            message = await consumer.receive()
            assert message.data == b"hello"
            with pytest.raises(geminga.TopicNotFoundError):
                await client.create_producer("persistent://public/none/t")


class Numbers(ProducerInterceptor):
    """Numbers messages, and notes what became of them."""

    def __init__(self) -> None:
        self.sent = 0
        self.stored: list[tuple[str, geminga.MessageId | None]] = []
        self.partitions: list[int] = []

    def before_send(self, message: ProducerMessage) -> ProducerMessage:
        """Adds a property."""
        self.sent += 1
        return replace(message, properties={**message.properties, "number": str(self.sent)})

    def on_send_acknowledgement(
        self,
        message: ProducerMessage,
        message_id: geminga.MessageId | None,
        error: geminga.GemingaError | None,
    ) -> None:
        """Notes it."""
        assert error is None
        self.stored.append((message.properties["number"], message_id))

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """Notes it."""
        self.partitions.append(partitions)


async def test_interceptors_and_statistics(peer: Peer) -> None:
    topic = peer.partitioned("watched", 2)
    official = peer.consumer(topic)
    notes = Numbers()
    # An interval that holds all sends, although the machine may be busy.
    async with geminga.connect(peer.server.service_url, stats_interval_s=4) as client:
        with trio.fail_after(100):
            producer = await client.create_producer(
                topic, interceptors=[notes], auto_update_partitions_interval_s=0.2
            )
            receipts = [await producer.submit(b"%d" % n) for n in range(10)]
            await producer.flush()
            path = topic.replace("://", "/") + "/partitions"
            await trio.to_thread.run_sync(peer.admin, "POST", path, 3)
            found = producer.statistics()
            while found.num_msgs_sent < 10:
                await trio.sleep(0.01)
                found = producer.statistics()
            while not notes.partitions:  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert found.num_acks_received == found.total_acks_received == 10
    assert 0 < found.send_latency_50pct_ms <= found.send_latency_max_ms < 60_000
    assert len(found.partition_stats) in {2, 3}
    assert sorted(notes.stored) == sorted(
        (str(n + 1), receipt.message_id) for n, receipt in enumerate(receipts)
    )
    assert notes.partitions == [3]
    messages = await trio.to_thread.run_sync(receive, official, 10)
    assert {message.properties()["number"] for message in messages} == {
        str(n + 1) for n in range(10)
    }


async def test_refusals_have_their_own_errors(peer: Peer, ours: geminga.Client) -> None:
    topic = peer.topic("refusing")
    missing = "persistent://public/no-such-namespace/t"
    with pytest.raises(geminga.TopicNotFoundError) as nowhere:
        await ours.create_producer(missing)
    assert nowhere.value.topic == missing
    async with await ours.create_producer(topic, producer_name="taken"):
        with pytest.raises(geminga.ProducerBusyError) as busy:
            await ours.create_producer(topic, producer_name="taken")
        assert busy.value.topic == topic
    fencing = ProducerAccessMode.EXCLUSIVE_WITH_FENCING
    first = await ours.create_producer(topic, access_mode=fencing)
    second = await ours.create_producer(topic, access_mode=fencing)
    with pytest.raises(geminga.ProducerFencedError) as fenced:
        await first.send(b"x")
    assert fenced.value.topic == topic
    with pytest.raises(geminga.MessageTooBigError) as too_big:
        await second.send(bytes(6 * 1024 * 1024))
    assert too_big.value.topic == topic


async def test_terminated(peer: Peer, ours: geminga.Client) -> None:
    topic = peer.topic("terminated")
    producer = await ours.create_producer(topic)
    await producer.send(b"last")
    path = topic.replace("://", "/") + "/terminate"
    await trio.to_thread.run_sync(peer.admin, "POST", path)
    with pytest.raises(geminga.TopicTerminatedError) as sent:
        await producer.send(b"x")
    await producer.aclose()
    with pytest.raises(geminga.TopicTerminatedError) as made:
        await ours.create_producer(topic)
    assert sent.value.topic == made.value.topic == topic


@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
async def test_quota_exceeded(peer: Peer, policy: str) -> None:
    """What is pending waits, or fails, as the quota's policy says; the producer lives on."""
    topic = peer.topic("quota")
    path = topic.replace("://", "/")

    def admin(method: str, tail: str, body: object = None) -> object:
        return peer.admin(method, path + tail, body)

    def set_up() -> None:
        admin("PUT", "")
        admin("PUT", "/subscription/sub")
        admin("POST", "/backlogQuota", {"limitSize": 5000, "policy": policy})

    await trio.to_thread.run_sync(set_up)
    options = {"operation_timeout_s": 15.0, "initial_backoff_s": 0.05, "max_backoff_s": 0.1}
    async with geminga.connect(peer.server.service_url, **options) as client:
        with trio.fail_after(200):
            producer = await client.create_producer(topic, batching_enabled=False, send_timeout_s=0)
            for _ in range(5):  # the last one exceeds it
                await producer.send(bytes(1000))
            while producer.is_connected:  # noqa: ASYNC110 - the broker looks every second
                await trio.sleep(0.05)
            began_s = trio.current_time()
            with pytest.raises(geminga.QuotaExceededError) as refused:
                await client.create_producer(topic)
            assert refused.value.topic == topic
            waited_s = trio.current_time() - began_s
            assert waited_s < 10 if policy == "producer_exception" else waited_s > 14
            pending = await producer.submit(b"pending")
            if policy == "producer_exception":
                with pytest.raises(geminga.QuotaExceededError) as failed:
                    await pending.wait()
                assert failed.value.topic == topic
            else:
                await trio.sleep(0.5)
                assert not pending.is_done
            await trio.to_thread.run_sync(admin, "POST", "/subscription/sub/skip_all")
            await producer.send(b"after")
            assert (pending.error is None) == (policy == "producer_request_hold")
