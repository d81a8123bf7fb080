"""Forks, other processes and Ctrl-C with the Trio face: an error or a new client, never a deadlock,
and no effect on the parent.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

import geminga
import geminga.aio
import geminga.blocking
from geminga.testing import BrokerUrl, broker

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
CHILD_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def url() -> Iterator[BrokerUrl]:
    """A broker in a thread."""
    with broker() as found:
        yield found


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/fork-{uuid.uuid4().hex[:8]}"


def ended(pid: int) -> int:
    """Wait for a child; its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def in_child(check: Callable[[], Awaitable[None]]) -> None:
    """Run it in a fork of this task."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(CHILD_TIMEOUT_S)
            await check()
            code = 0
        except BaseException as error:  # noqa: ASYNC103
            print(f"in the child: {error!r}", file=sys.stderr)
        finally:
            os._exit(code)
    assert await trio.to_thread.run_sync(ended, pid) == 0


async def test_a_forked_task_is_told(url: BrokerUrl, topic: str) -> None:
    async with geminga.connect(url) as client:
        producer = await client.create_producer(topic, batching_max_publish_delay_s=60)
        consumer = await client.subscribe(topic, "s")
        pending = await producer.submit(b"pending")

        async def check() -> None:
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: producer.send(b"x"),
                lambda: producer.submit(b"x"),
                producer.flush,
                lambda: client.create_producer(topic),
                lambda: client.subscribe(topic, "s"),
                lambda: client.create_reader(topic, geminga.EARLIEST),
                lambda: client.list_partitions(topic),
            ]
            for call in calls:
                with pytest.raises(geminga.ForkError, match="before the fork"):
                    await call()
            with pytest.raises(geminga.ForkError) as caught:
                producer.send_nowait(b"x")
            assert caught.value.topic == topic
            await producer.aclose()
            await client.aclose()

        await in_child(check)
        await pending.wait()
        await producer.send(b"after")
        got = [(await consumer.receive(60)).data for _ in range(2)]
        assert got == [b"pending", b"after"]
        with pytest.raises(geminga.OperationTimeoutError):
            await consumer.receive(0.05)


def produce_by(face: str, url: str, topic: str) -> None:
    """Send with the child's own client."""

    async def by_trio() -> None:
        async with geminga.connect(url) as client:
            await (await client.create_producer(topic)).send(face.encode())

    async def by_asyncio() -> None:
        async with geminga.aio.connect(url) as client:
            await (await client.create_producer(topic)).send(face.encode())

    signal.alarm(CHILD_TIMEOUT_S)
    if face == "trio":
        signal.set_wakeup_fd(-1)  # it is the parent's, and Trio would warn of it
        trio.run(by_trio)
    elif face == "aio":
        asyncio.run(by_asyncio())
    else:
        with geminga.blocking.connect(url) as client:
            client.create_producer(topic).send(face.encode())


FACES = ["trio", "aio", "blocking"]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
async def test_children_make_their_own(url: BrokerUrl, topic: str, method: str) -> None:
    """Forked by a thread, so that they have no copy of a running loop."""
    context = multiprocessing.get_context(method)

    def run() -> list[int | None]:
        children = [
            context.Process(target=produce_by, args=(face, str(url), topic)) for face in FACES
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(CHILD_TIMEOUT_S)
        return [child.exitcode for child in children]

    async with geminga.connect(url) as client:
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic)
        await producer.send(b"of the parent")
        assert await trio.to_thread.run_sync(run) == [0, 0, 0]
        await producer.send(b"of the parent")
        got = sorted([(await consumer.receive(60)).data for _ in range(5)])
        assert got == [b"aio", b"blocking", b"of the parent", b"of the parent", b"trio"]


# A runner in the background ignores SIGINT, and its children inherit that.
PROGRAM = """
import signal
import sys
import geminga, trio

signal.signal(signal.SIGINT, signal.default_int_handler)

async def main():
    async with geminga.connect(sys.argv[1]) as client:
        producer = await client.create_producer(sys.argv[2], max_pending_messages=100)
        receipts = []
        try:
            print("sending", flush=True)
            while True:
                for _ in range(50):
                    receipts.append(await producer.submit(b"%d" % len(receipts)))
                {wait}
        finally:
            with trio.CancelScope(shield=True):
                await producer.flush()
            assert all(each.is_done and each.error is None for each in receipts)
            assert producer.pending_messages == client._core.memory.used_bytes == 0
            print(len(receipts), flush=True)

try:
    trio.run(main)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "wait", ["await producer.flush()", "await producer.send(b'0')", "await receipts[-1].wait()"]
)
async def test_ctrl_c_while_sending(url: BrokerUrl, topic: str, wait: str) -> None:
    """Submitted messages are sent nevertheless, and no stored one is reported as failed."""
    async with geminga.connect(url) as client:
        consumer = await client.subscribe(topic, "s")
        child = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", PROGRAM.format(wait=wait), url, topic],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert await trio.to_thread.run_sync(child.stdout.readline) == "sending\n"
        await trio.sleep(0.1)
        child.send_signal(signal.SIGINT)
        output, _ = await trio.to_thread.run_sync(lambda: child.communicate(timeout=60))
        count, told = output.split()
        assert (told, child.returncode) == ("interrupted", 0)
        found: set[bytes] = set()
        while len(found) < int(count):
            found |= {each.data for each in await consumer.receive_batch(wait_s=60)}
        # One may have been submitted without returning its receipt to the program.
        assert found - {count.encode()} == {b"%d" % n for n in range(int(count))}
