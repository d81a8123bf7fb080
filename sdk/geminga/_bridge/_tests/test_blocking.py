"""`geminga.blocking` on a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

import geminga
import geminga.blocking as gb

EARLIEST = geminga.InitialPosition.EARLIEST
SHARED = geminga.ConsumerType.SHARED


@pytest.fixture
def client(url: str) -> Iterator[gb.Client]:
    with gb.connect(url) as found:
        yield found


def texts(messages: list[gb.Message]) -> list[str]:
    return [each.data.decode() for each in messages]


def test_send_receive_acknowledge(client: gb.Client, topic: str) -> None:
    with client.create_producer(topic) as producer, client.subscribe(topic, "s") as consumer:
        sent = producer.send(b"a", properties={"k": "v"}, partition_key="key")
        message = consumer.receive(60)
        assert (message.data, message.properties, message.partition_key) == (
            b"a",
            {"k": "v"},
            "key",
        )
        assert message.message_id == sent
        consumer.acknowledge(message)
        assert producer.pending_messages == 0
        assert producer.topic == topic
    with (
        client.subscribe(topic, "s") as again,
        pytest.raises(gb.OperationTimeoutError, match="no message within"),
    ):
        again.receive(0.05)


def test_pipelined_sends_keep_their_order(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    receipts = [producer.submit(b"%d" % n) for n in range(3000)]
    receipts += [producer.send_nowait(b"%d" % n) for n in range(3000, 3100)]
    producer.flush()
    assert all(each.is_done for each in receipts)
    ids = [each.message_id for each in receipts]
    assert ids == sorted(ids)
    got = [consumer.receive(60) for _ in range(1000)]
    while len(got) < 3100:
        got += consumer.receive_batch(1000, wait_s=60)
    assert texts(got) == [str(n) for n in range(3100)]
    assert [each.message_id for each in got] == ids


@pytest.mark.parametrize("batching_enabled", [True, False])
def test_runs_and_single_messages_keep_their_order(
    client: gb.Client, topic: str, batching_enabled: bool
) -> None:
    producer = client.create_producer(
        topic, batching_enabled=batching_enabled, max_pending_messages=50
    )
    consumer = client.subscribe(topic, "s")
    receipts = []
    for n in range(1500):
        if n % 100 < 60:
            receipts.append(producer.submit(b"%d" % n))
        else:
            receipts.append(producer.submit(b"%d" % n, properties={"n": str(n)}))
        assert producer.pending_messages <= 50
    producer.flush()
    ids = [each.wait() for each in receipts]
    got: list[gb.Message] = []
    while len(got) < 1500:
        got += consumer.receive_batch(wait_s=60)
    assert texts(got) == [str(n) for n in range(1500)]
    assert [each.message_id for each in got] == ids
    assert [each.properties for each in got[55:65]] == [{}] * 5 + [
        {"n": str(n)} for n in range(60, 65)
    ]


def test_receipts_tell_what_happened(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    told: list[gb.Receipt] = []
    done = threading.Event()
    receipt = producer.send_nowait(b"x")
    receipt.add_done_callback(lambda each: (told.append(each), done.set()))
    assert done.wait(60)
    assert told == [receipt]
    assert receipt.wait() == receipt.message_id
    assert receipt.error is None
    refused = producer.send_nowait(b"x" * 6 * 1024 * 1024)
    with pytest.raises(gb.MessageTooBigError):
        refused.wait()
    assert isinstance(refused.error, gb.MessageTooBigError)
    assert "MessageTooBigError" in repr(refused) or "limit" in repr(refused)


def test_callbacks_must_not_wait(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    raised: list[BaseException] = []
    done = threading.Event()

    def callback(_: gb.Receipt) -> None:
        try:
            producer.send(b"y")
        except gb.InvalidStateError as error:
            raised.append(error)
        done.set()

    producer.send_nowait(b"x").add_done_callback(callback)
    assert done.wait(60)
    assert "must not wait" in str(raised[0])


def test_bounds(client: gb.Client, topic: str, partitioned: Callable[[str, int], str]) -> None:
    producer = client.create_producer(
        partitioned(topic, 3), max_pending_messages=10, batching_max_publish_delay_s=0.01
    )
    with pytest.raises(gb.ProducerQueueFullError, match="30 messages"):
        for n in range(1000):
            producer.send_nowait(b"%d" % n)
    receipts = [producer.submit(b"%d" % n) for n in range(1000)]
    producer.flush()
    assert all(each.error is None for each in receipts)
    # All of one key go to one partition, which is full before the whole producer is.
    receipts = [producer.submit(b"%d" % n, partition_key="k") for n in range(200)]
    ids = [each.wait() for each in receipts]
    assert ids == sorted(ids)
    assert len({each.partition for each in ids}) == 1


def test_memory_limit(url: str, topic: str) -> None:
    with gb.connect(url, memory_limit_bytes=1024 * 1024) as client:
        producer = client.create_producer(topic)
        with pytest.raises(gb.MemoryLimitError):
            for _ in range(100):
                producer.send_nowait(b"x" * 100_000)
        receipts = [producer.submit(b"x" * 100_000) for _ in range(100)]
        producer.flush()
        assert all(each.error is None for each in receipts)


def test_wrong_arguments_are_told_at_the_call(client: gb.Client, topic: str) -> None:
    with pytest.raises(gb.InvalidServiceUrlError):
        gb.connect("nowhere")
    with pytest.raises(gb.InvalidArgumentError, match="no_such"):
        client.create_producer(topic, no_such=1)
    producer = client.create_producer(topic)
    for wrong in (
        {"data": "text"},
        {"data": b"", "sequence_id": -1},
        {"data": b"", "deliver_at_ms": -1},
    ):
        for send in (producer.send, producer.submit, producer.send_nowait):
            with pytest.raises(gb.InvalidArgumentError):
                send(**wrong)
    consumer = client.subscribe(topic, "s")
    with pytest.raises(gb.InvalidArgumentError, match="Message or MessageId"):
        consumer.acknowledge(b"x")
    with pytest.raises(gb.InvalidArgumentError, match="max_messages"):
        consumer.receive_batch(0)


def test_router_that_fails(
    client: gb.Client, topic: str, partitioned: Callable[[str, int], str]
) -> None:
    producer = client.create_producer(partitioned(topic, 2), message_router=lambda m, n: 1 // 0)
    with pytest.raises(gb.InvalidArgumentError, match="ZeroDivisionError"):
        producer.send(b"x")


def test_after_close(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    left = producer.submit(b"x")
    producer.close()
    producer.close()
    assert left.message_id
    with pytest.raises(gb.AlreadyClosedError):
        producer.send(b"x")
    with pytest.raises(gb.AlreadyClosedError):
        producer.send_nowait(b"x")
    consumer.close()
    with pytest.raises(gb.AlreadyClosedError):
        consumer.receive(1)
    assert list(consumer) == []
    client.close()
    client.close()
    with pytest.raises(gb.AlreadyClosedError):
        client.create_producer(topic)
    with pytest.raises(gb.AlreadyClosedError):
        client.list_partitions(topic)


def test_closing_wakes_who_waits(url: str, topic: str) -> None:
    with gb.connect(url) as client:
        consumer = client.subscribe(topic, "s")
        raised: list[BaseException] = []

        def wait() -> None:
            try:
                consumer.receive()
            except gb.AlreadyClosedError as error:
                raised.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.02)
    waiting.join(60)
    assert not waiting.is_alive()
    assert raised


def test_many_threads(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    got: list[str] = []

    def produce(number: int) -> None:
        for n in range(200):
            producer.submit(f"{number}-{n}".encode())
        producer.send(f"{number}-200".encode())

    def consume() -> None:
        while len(got) < 804:
            for message in consumer.receive_batch(50, wait_s=0.1):
                got.append(message.data.decode())
                consumer.acknowledge(message)

    workers = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
    workers += [threading.Thread(target=consume) for _ in range(3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(60)
    assert sorted(got) == sorted(f"{n}-{m}" for n in range(4) for m in range(201))


def test_seek_and_redelivery_take_back_what_was_taken_ahead(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for n in range(100):
        producer.submit(b"%d" % n)
    producer.flush()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert texts([consumer.receive(60) for _ in range(3)]) == ["0", "1", "2"]
    consumer.redeliver_unacknowledged_messages()
    assert texts([consumer.receive(60) for _ in range(3)]) == ["0", "1", "2"]
    consumer.seek(geminga.EARLIEST)
    got = [consumer.receive(60) for _ in range(100)]
    assert texts(got) == [str(n) for n in range(100)]
    assert not consumer.has_message_available()
    consumer.seek(got[49].message_id)
    assert consumer.has_message_available()
    assert consumer.receive(60).data == b"50"


def test_small_queues_are_not_taken_ahead(client: gb.Client, topic: str) -> None:
    """Fair sharing: with a queue of one, a consumer holds one message and one waits."""
    producer = client.create_producer(topic, batching_enabled=False)
    first = client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=1)
    second = client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=1)
    for n in range(6):
        producer.send(b"%d" % n)
    held = [first.receive(60)]
    rest = []
    while len(rest) < 4:
        rest.append(second.receive(60))
        second.acknowledge(rest[-1])
    assert not set(texts(held)) & set(texts(rest))


def test_queue_of_zero(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s", receiver_queue_size=0)
    for n in range(3):
        producer.send(b"%d" % n)
    assert texts([consumer.receive(60) for _ in range(3)]) == ["0", "1", "2"]


def test_acknowledgements(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    options = {"consumer_type": SHARED, "negative_ack_redelivery_delay_s": 0.02}
    with client.subscribe(topic, "s", **options) as consumer:
        for n in range(4):
            producer.send(b"%d" % n)
        got = [consumer.receive(60) for _ in range(4)]
        consumer.acknowledge_all(got[:2])
        consumer.negative_acknowledge(got[2])
        again = consumer.receive(60)
        assert again.message_id == got[2].message_id
        consumer.acknowledge(again.message_id)
        with pytest.raises(gb.InvalidArgumentError, match="Exclusive"):
            consumer.acknowledge_cumulative(got[3])
    with client.subscribe(topic, "s", ack_receipt_enabled=True) as consumer:
        assert texts([consumer.receive(60)]) == ["3"]
        consumer.acknowledge(got[3].message_id)
        consumer.unsubscribe()


def test_receive_batch_limits(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s")
    for _ in range(20):
        producer.submit(b"x" * 100)
    producer.flush()
    until_s = time.monotonic() + 60
    while consumer.statistics().msg_num_in_receiver_queue < 20 and time.monotonic() < until_s:
        time.sleep(0.01)
    assert len(consumer.receive_batch(5, wait_s=60)) == 5
    assert len(consumer.receive_batch(50, max_bytes=250, wait_s=60)) == 2
    assert len(consumer.receive_batch(50, max_bytes=1, wait_s=60)) == 1
    assert len(consumer.receive_batch(50, wait_s=60)) == 12
    assert consumer.receive_batch(50, wait_s=0.02) == []


def test_reader_and_iteration(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for n in range(5):
        producer.send(b"%d" % n)
    with client.create_reader(topic, geminga.EARLIEST) as reader:
        got = []
        while reader.has_message_available():
            got.append(reader.read_next(60))
        assert texts(got) == ["0", "1", "2", "3", "4"]
        reader.seek(got[2].message_id)
        assert next(reader).data == b"3"
        assert next(iter(reader)).data == b"4"
    with client.subscribe(topic, "s", initial_position=EARLIEST) as consumer:
        assert [next(consumer).data for _ in range(2)] == [b"0", b"1"]
        assert [message.data for _, message in zip(range(3), consumer, strict=False)] == [
            b"2", b"3", b"4",
        ]  # fmt: skip
        consumer.pause()
        consumer.resume()
        assert consumer.topics == [topic]
        assert consumer.is_connected


def test_abandoned_openings_are_closed(client: gb.Client, topic: str) -> None:
    """What is opened by a call that nobody waits for any more doesn't stay open."""
    session = client._session
    opened = threading.Event()

    async def open_slowly() -> object:
        consumer = await session.client.subscribe(topic, "s")
        opened.set()
        return consumer

    from geminga._bridge.calls import Call

    call = Call(open_slowly, lambda: None)
    session.portal.post(session.spawn, call)
    assert opened.wait(60)
    session.portal.post(session.abandon, call)
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        try:
            with client.subscribe(topic, "s"):
                return
        except gb.ConsumerBusyError:
            time.sleep(0.01)
    raise AssertionError("the abandoned consumer is still there")
