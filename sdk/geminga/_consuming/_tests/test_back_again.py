"""A broker is reachable again: how long a sender still waits."""

from __future__ import annotations

import sys

import pytest
import trio
from trio.testing import MockClock

from geminga._tests.fake_broker import FakeBroker, FakeSession, fake_broker
from geminga_protocol.frames import SUBMESSAGE, Frame


def stop(broker: FakeBroker) -> None:
    broker.refuse_connections = sys.maxsize
    broker.cut()


@pytest.mark.parametrize("away_s", [3, 7, 20, 50, 200])
async def test_while_a_send_waits(away_s: float, autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t", send_timeout_s=0)
        stop(broker)
        await trio.sleep(0.01)
        receipt = await producer.submit(b"x")
        await trio.sleep(away_s)
        broker.refuse_connections = 0
        with trio.fail_after(2.01):
            await receipt.wait()


@pytest.mark.parametrize("away_s", [20, 200])
async def test_a_send_that_comes_late(away_s: float, autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t")
        stop(broker)
        await trio.sleep(away_s)
        broker.refuse_connections = 0
        with trio.fail_after(2.01):
            await producer.send(b"x")


async def test_others_hear_of_it(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t")
        stop(broker)
        await trio.sleep(200)
        broker.refuse_connections = 0
        await producer.send(b"x")
        with trio.fail_after(0.2):
            await consumer.receive()


@pytest.mark.parametrize("command", ["lookupTopic", "producer"])
async def test_killed_again_when_it_was_back(
    command: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """The back-off restarts after a connection was opened."""
    handle = FakeSession.handle
    killed = trio.Event()
    is_back = False

    def cutting(self: FakeSession, frame: Frame) -> None:
        if is_back and SUBMESSAGE[frame.type] == command and not killed.is_set():
            killed.set()
            self.stream.abort("killed")
        elif not self.stream.lost:
            handle(self, frame)

    monkeypatch.setattr(FakeSession, "handle", cutting)
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t")
        stop(broker)
        # Waits of 0.1, 0.2, 0.4, 0.8, 1.6 s, then of 2 s.
        await trio.sleep(4)
        receipt = await producer.submit(b"x")
        broker.refuse_connections = 0
        is_back = True
        await killed.wait()
        with trio.fail_after(0.3):
            await receipt.wait()


async def test_a_broker_that_always_hangs_up_is_not_pressed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    handle = FakeSession.handle
    times: list[float] = []
    hangs_up = False

    def cutting(self: FakeSession, frame: Frame) -> None:
        if hangs_up and SUBMESSAGE[frame.type] == "producer":
            times.append(trio.current_time())
            self.stream.abort("not you")
        elif not self.stream.lost:
            handle(self, frame)

    monkeypatch.setattr(FakeSession, "handle", cutting)
    async with fake_broker() as broker, broker.client() as client:
        await client.create_producer("t")
        hangs_up = True
        broker.cut()
        await trio.sleep(100)
        assert len(times) < 12
        hangs_up = False
