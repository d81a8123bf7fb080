"""All three faces read, close and fail equally: each script runs on all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import geminga
from geminga._bridge._tests.test_conformance import fill, numbers, on_all_faces, texts
from geminga._bridge._tests.three_faces import Face


def payloads(entries: list[geminga.EntryBatch]) -> list[int]:
    return [int(payload) for entry in entries for payload in entry.payloads()]


# ---- readers and table views ----


@on_all_faces
async def test_readers(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        await fill(client, topic, 5)
        async with client.create_reader(topic, geminga.EARLIEST) as reader:
            got = []
            while await reader.has_message_available():
                got.append(await reader.read_next(60))
            assert [each.data.decode() for each in got] == numbers(5)
            with pytest.raises(geminga.OperationTimeoutError):
                await reader.read_next(0.01)
            await reader.seek(got[2].message_id)
            assert (await anext(reader)).data == b"3"
            async for message in reader:
                assert message.data == b"4"
                break
            assert (reader.topics, reader.is_connected) == ([topic], True)
        options = {"start_message_id_inclusive": True}
        async with client.create_reader(topic, geminga.LATEST, **options) as reader:
            assert (await reader.read_next(60)).data == b"4"
        with pytest.raises(geminga.AlreadyClosedError):
            await reader.read_next()


@on_all_faces
async def test_reading_whole_batches(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        await fill(client, topic, 3000, batching_max_messages=100)
        reader = await client.create_reader(topic, geminga.EARLIEST, receiver_queue_size=500)
        got: list[int] = []
        while len(got) < 3000:
            got += payloads(await reader.read_batches(60, bytes_max=2000))
        assert got == list(range(3000))
        with pytest.raises(geminga.OperationTimeoutError):
            await reader.read_batches(0)
        with pytest.raises(geminga.InvalidArgumentError, match="bytes_max"):
            await reader.read_batches(bytes_max=-1)
        (last,) = await reader.last_message_ids()
        assert last.ledger_id >= 0
        assert reader.incomplete_message_ids() == []
        assert reader.received_ids() == [last.__class__(last.ledger_id, last.entry_id)]
        assert reader.statistics().total_msgs_received == 3000
        await reader.aclose()
        with pytest.raises(geminga.AlreadyClosedError):
            await reader.read_batches()


@pytest.mark.parametrize("at", [0, 1, 70, 299])
@on_all_faces
async def test_messages_and_entries_in_turn(face: Face, url: str, topic: str, at: int) -> None:
    """Messages prefetched for `read_next` come before later ones."""
    async with face.connect(url) as client:
        await fill(client, topic, 300, batching_max_messages=100)
        reader = await client.create_reader(topic, geminga.EARLIEST)
        got = [int((await reader.read_next(60)).data) for _ in range(at)]
        while len(got) < 300:
            got += payloads(await reader.read_batches(60, bytes_max=20))
            if len(got) < 300:
                got.append(int((await reader.read_next(60)).data))
        assert got == list(range(300))
        assert not await reader.has_message_available()


@on_all_faces
async def test_table_views(face: Face, url: str, topic: str) -> None:
    heard: list[tuple[str, bytes | None]] = []
    async with face.connect(url) as client, client.create_producer(topic) as producer:
        await producer.send(b"1", partition_key="a")
        async with client.create_table_view(topic) as view:
            assert (len(view), "a" in view, view.get("a")) == (1, True, b"1")
            assert set(view.keys()) == {"a"}
            view.for_each_and_listen(lambda key, value: heard.append((key, value)))
            changes = view.changes()
            await producer.send(b"2", partition_key="a")
            await producer.send(b"", partition_key="b")
            assert await anext(changes) == ("a", b"2")
            await view.refresh()
            assert dict(view.items()) == {"a": b"2"}
            changes.close()
        assert [change async for change in changes] == []
    assert heard == [("a", b"1"), ("a", b"2"), ("b", None)]


# ---- closing, giving up, failing ----


@on_all_faces
async def test_after_closing(face: Face, url: str, topic: str) -> None:
    async with face.connect(url) as client:
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "s")
        left = await producer.submit(b"x")
        await producer.aclose()
        await producer.aclose()
        assert left.message_id
        await consumer.aclose()
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive(1)
        kept = await client.create_producer(topic)
        await kept.send(b"y")
    for closed in (producer, kept):
        for send in (closed.send, closed.submit):
            with pytest.raises(geminga.AlreadyClosedError):
                await send(b"x")
        with pytest.raises(geminga.AlreadyClosedError):
            closed.send_nowait(b"x")
    with pytest.raises(geminga.AlreadyClosedError):
        await client.create_producer(topic)


@on_all_faces
async def test_closing_wakes_who_waits(face: Face, url: str, topic: str) -> None:
    client = face.client(url)
    consumer = await client.subscribe(topic, "s")
    reader = await client.create_reader(topic, geminga.EARLIEST)
    ended: list[str] = []

    async def receive() -> None:
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive()
        ended.append("receive")

    async def iterate() -> None:
        assert [message async for message in reader] == []
        ended.append("iterate")

    async def close() -> None:
        await face.pause()
        await client.aclose()

    await face.together(receive, iterate, close)
    assert sorted(ended) == ["iterate", "receive"]


@on_all_faces
async def test_calls_that_are_given_up(face: Face, url: str, topic: str) -> None:
    """They also end in the loop, and lose nothing."""
    if not face.cancels:
        return
    exclusive = geminga.ProducerAccessMode.EXCLUSIVE
    waiting = geminga.ProducerAccessMode.WAIT_FOR_EXCLUSIVE
    async with face.connect(url) as client:
        consumer = await client.subscribe(topic, "s")
        await face.give_up(consumer.receive)
        await face.give_up(consumer.receive_batch)
        async with client.create_producer(topic, access_mode=exclusive) as holder:

            async def wait_in_line() -> None:
                await client.create_producer(topic, access_mode=waiting)

            await face.give_up(wait_in_line)
            await holder.send(b"0")
        async with client.create_producer(topic, access_mode=waiting) as again:
            await again.send(b"1")
        assert await texts(consumer, 2) == numbers(2)


def by_key(message: geminga.RoutedMessage, _: int) -> int:
    return int(message.partition_key or 0)


@on_all_faces
async def test_an_ended_partition_ends_no_other(
    face: Face,
    url: str,
    topic: str,
    partitioned: Callable[[str, int], str],
    terminate: Callable[[str], None],
) -> None:
    partitioned(topic, 2)
    async with (
        face.connect(url) as client,
        client.create_producer(topic, message_router=by_key) as sending,
    ):
        await sending.send(b"a", partition_key="1")
        terminate(f"{topic}-partition-1")
        for _ in range(2):
            with pytest.raises(geminga.TopicTerminatedError):
                await sending.send(b"b", partition_key="1")
        assert (await sending.send(b"c", partition_key="0")).partition == 0
        assert (await sending.send_nowait(b"f", partition_key="0").wait()).partition == 0
        terminate(f"{topic}-partition-0")
        for _ in range(2):
            with pytest.raises(geminga.TopicTerminatedError):
                await sending.send(b"g", partition_key="0")
        # The producer has ended: a submitted message is refused at the call.
        with pytest.raises(geminga.TopicTerminatedError):
            sending.send_nowait(b"h", partition_key="0")
        with pytest.raises(geminga.TopicTerminatedError):
            await sending.submit(b"h", partition_key="0")
