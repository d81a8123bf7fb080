"""The background loop ends by a defect: all waiting calls get an error, and the next client has a
new loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import pytest

import geminga.aio
import geminga.blocking as gb
from geminga._bridge.portal import Portal, portal
from geminga._producing.partition_producer import PartitionProducer
from geminga.testing import BrokerUrl

TIMEOUT_S = 20


def crash() -> NoReturn:
    raise SystemExit("the loop ends")


async def end() -> None:
    raise SystemExit("the loop ends")


def by_a_function(loop: Portal) -> None:
    """Trio itself breaks: no task is unwound."""
    loop.post(crash)


def by_a_task(loop: Portal) -> None:
    """Tasks are cancelled one after the other."""
    loop.post(loop._nursery.start_soon, end)


WAYS = [by_a_function, by_a_task]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_all_that_wait_get_an_error(
    url: BrokerUrl, topic: str, way: Callable[[Portal], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = portal()
    client = gb.connect(url)
    producer = client.create_producer(topic)
    consumer = client.subscribe(f"{topic}-2", "s")
    producer.send(b"a")
    monkeypatch.setattr(PartitionProducer, "on_receipts", lambda *_: None)
    receipts = [producer.submit(b"pending") for _ in range(3)]
    told = threading.Event()
    receipts[0].add_done_callback(lambda _: told.set())
    errors: list[BaseException] = []

    def wait_for(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    waits: list[Callable[[], object]] = [consumer.receive, receipts[1].wait, consumer.receive_batch]
    threads = [threading.Thread(target=wait_for, args=(call,), daemon=True) for call in waits]
    for each in threads:
        each.start()
    time.sleep(0.2)
    way(before)
    for each in threads:
        each.join(TIMEOUT_S)
        assert not each.is_alive()
    assert [type(each) for each in errors] == [gb.AlreadyClosedError] * len(waits)
    assert told.wait(TIMEOUT_S)
    assert all(isinstance(each.error, gb.AlreadyClosedError) for each in receipts)
    calls: list[Callable[[], object]] = [
        lambda: producer.send(b"x"),
        lambda: producer.submit(b"x").wait(),
        lambda: producer.send_nowait(b"x").wait(),
        producer.flush,
        lambda: consumer.receive(1),
        lambda: client.create_producer(topic),
        receipts[2].wait,
    ]
    for call in calls:
        with pytest.raises(gb.AlreadyClosedError):
            call()
    # There is nothing to close any more.
    consumer.close()
    producer.close()
    client.close()
    monkeypatch.undo()
    with gb.connect(url) as other:
        assert portal() is not before
        assert other.create_producer(topic).send(b"b")


@pytest.mark.parametrize("way", WAYS)
def test_asyncio_tasks_get_an_error(
    url: BrokerUrl, topic: str, way: Callable[[Portal], None]
) -> None:
    async def program() -> None:
        opening = geminga.aio.connect(url)
        client = await opening.__aenter__()
        consumer = await client.subscribe(topic, "s")
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(0.1)
        way(portal())
        with pytest.raises(geminga.AlreadyClosedError):
            await asyncio.wait_for(waiting, TIMEOUT_S)
        with pytest.raises(geminga.AlreadyClosedError):
            await consumer.receive()
        await client.aclose()
        await opening.__aexit__(None, None, None)

    asyncio.run(program())


def test_a_posted_function_that_raises_ends_nothing(
    url: BrokerUrl, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> NoReturn:
        raise ValueError("a mistake")

    with gb.connect(url) as client:
        producer = client.create_producer(topic)
        portal().post(fail)
        assert producer.send(b"a")
    assert "a mistake" in caplog.text
