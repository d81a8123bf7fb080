"""Specific to `geminga.blocking`: calls from threads, and callbacks in the client's own thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

import geminga
import geminga.blocking as gb

EARLIEST = geminga.InitialPosition.EARLIEST
SHARED = geminga.ConsumerType.SHARED


@pytest.fixture
def client(url: str) -> Iterator[gb.Client]:
    with gb.connect(url) as found:
        yield found


def test_a_listener_can_be_no_coroutine_function(client: gb.Client, topic: str) -> None:
    async def listener(consumer: gb.Consumer, message: gb.Message) -> None:
        """Can't be awaited in a thread."""

    with pytest.raises(gb.InvalidArgumentError, match="message_listener"):
        client.subscribe(topic, "t", message_listener=listener)


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


def test_abandoned_openings_are_closed(client: gb.Client, topic: str) -> None:
    """An object opened by an abandoned call doesn't stay open."""
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


def test_properties_are_those_of_the_call(client: gb.Client, topic: str) -> None:
    """Programs use one mapping for all messages, and change it."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_max_publish_delay_s=0.2)
    properties: dict[str, str] = {}
    for number in "0123":
        properties["number"] = properties[number] = number
        producer.submit(b"", properties=properties)
    producer.flush()
    got = [consumer.receive(60).properties for _ in range(4)]
    assert [each["number"] for each in got] == list("0123")
    assert [len(each) for each in got] == [2, 3, 4, 5]


def test_a_callback_that_exits_ends_no_client(client: gb.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send_nowait(b"").add_done_callback(lambda _: sys.exit(3))
    producer.flush()
    producer.send(b"still here")
