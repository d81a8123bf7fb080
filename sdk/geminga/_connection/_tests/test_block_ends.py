"""Ends of blocks: cancelled, failing while they open, or never."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import geminga
from geminga._connection.background import Background
from geminga._tests.fake_broker import fake_broker
from geminga_protocol.pb.pulsar_api_pb2 import ServerError

OPENINGS: list[Callable[[geminga.Client], Any]] = [
    lambda client: client.create_producer("t", producer_name="p"),
    lambda client: client.subscribe("t", "s"),
    lambda client: client.create_reader("t", geminga.EARLIEST),
    lambda client: client.create_table_view("t"),
]


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("opening", OPENINGS)
async def test_a_cancelled_block_says_goodbye(
    opening: Callable[[geminga.Client], Any], awaited: bool, autojump_clock: MockClock
) -> None:
    async with fake_broker() as broker, broker.client() as client:
        with trio.move_on_after(1) as scope:
            async with await opening(client) if awaited else opening(client):
                await trio.sleep_forever()
        assert scope.cancelled_caught
        topic = broker.topic("t")
        assert not topic.producers
        assert not any(each.consumers for each in topic.subscriptions.values())


async def test_a_cancelled_block_waits_only_so_long(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        began_s = trio.current_time()
        with trio.move_on_after(1):
            async with client.create_producer("t") as producer:
                broker.hold_receipts = True
                await producer.submit(b"x")
                await trio.sleep_forever()
        assert 1 < trio.current_time() - began_s < 4
        await trio.sleep(0.1)
        assert not broker.topic("t").producers


async def test_a_cancelled_block_with_a_busy_listener(autojump_clock: MockClock) -> None:
    called = trio.Event()

    async def listener(consumer: geminga.Consumer, message: geminga.Message) -> None:
        called.set()
        await trio.sleep(1000)

    async with fake_broker() as broker, broker.client() as client:
        with trio.CancelScope() as scope:
            async with client.subscribe("t", "s", message_listener=listener):
                async with client.create_producer("t") as producer:
                    await producer.send(b"x")
                await called.wait()
                scope.cancel()
        await trio.sleep(0.1)
        assert not broker.topic("t").subscriptions["s"].consumers


async def test_a_reader_whose_seek_fails_is_closed(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        async with client.create_producer("t") as producer:
            await producer.send(b"x")
        broker.fail["seek"] = [(ServerError.NotAllowedError, "no")]
        with pytest.raises(geminga.NotAllowedError):
            await client.create_reader("t", geminga.LATEST, start_message_id_inclusive=True)
        assert not any(each.consumers for each in broker.topic("t").subscriptions.values())


@pytest.mark.slow
async def test_a_client_left_open_warns() -> None:
    def leave_open() -> None:
        geminga.Client("pulsar://localhost:1")
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"<Client of .* was not closed"):
        leave_open()
    async with geminga.Client("pulsar://localhost:1"):
        pass
    gc.collect()


async def test_a_second_close_waits_for_the_first(autojump_clock: MockClock) -> None:
    async with fake_broker() as broker, broker.client() as client:
        producer = await client.create_producer("t")
        broker.hold_receipts = True
        await producer.submit(b"x")
        done: list[str] = []

        async def close(name: str) -> None:
            await client.aclose()
            done.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close, "first")
            await trio.sleep(0.1)
            nursery.start_soon(close, "second")
            await trio.sleep(0.1)
            assert done == []
            broker.release_receipts()
        assert sorted(done) == ["first", "second"]


async def test_no_error_of_a_task_ends_the_program(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise SystemExit(3)

    Background(None).start_soon(fail)
    await trio.testing.wait_all_tasks_blocked()
    assert "a task of the client failed" in caplog.text


def test_tasks_with_nurseries_end_quietly_with_the_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def wait_in_a_nursery() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep_forever()

    async def program() -> None:
        Background(None).start_soon(wait_in_a_nursery)
        await trio.testing.wait_all_tasks_blocked()

    trio.run(program)
    assert caplog.text == ""


async def test_a_question_that_the_end_cuts_off_is_not_asked_again(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    asked = 0
    async with fake_broker() as broker, broker.client() as client:

        async def ask() -> None:
            nonlocal asked
            asked += 1
            await client.aclose()
            raise geminga.ConnectionFailedError("the client was closed")

        with pytest.raises(geminga.ConnectionFailedError):
            await client._core.with_retries(ask)
    assert asked == 1
    assert caplog.text == ""


class SecondSignal(trio.abc.Instrument):
    """Sends SIGINT before the n-th step of any task after it was begun."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.begun = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """As Trio tells of it."""
        if self.begun:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)


def interrupted_twice(at: int) -> bool:
    """Whether the second one came before the end; the program ends in any case."""
    second = SecondSignal(at)

    async def main() -> None:
        async with (
            fake_broker() as broker,
            broker.client() as client,
            client.subscribe("t", "s"),
        ):
            second.begun = True
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):  # a group by the broker's
            trio.run(main, clock=MockClock(autojump_threshold=0), instruments=[second])
    finally:
        signal.signal(signal.SIGINT, before)
    return second.left <= 0


def test_a_second_ctrl_c_before_any_step_ends_the_program() -> None:
    """`timeout -s INT` sends two, to the process and to its group."""
    at = 1
    while interrupted_twice(at):
        at += 1
    assert at > 25
