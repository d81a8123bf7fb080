"""fork, multiprocessing, Ctrl-C: an error or a fresh client, never a deadlock, no message lost."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

import geminga.blocking as gb

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
CHILD_TIMEOUT_S = 60
INTERRUPTED_ANYWHERE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An interruption may also occur in a finalizer, where Python only reports it."""


def in_child(function: Callable[[], None]) -> None:
    """Run it in a forked child, with CHILD_TIMEOUT_S."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(CHILD_TIMEOUT_S)
            function()
            code = 0
        except BaseException as error:
            print(f"in the child: {error!r}", file=sys.stderr)
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_child_gets_an_error_and_may_make_its_own(url: str, topic: str) -> None:
    with gb.connect(url) as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "s")
        for n in range(10):
            producer.submit(b"%d" % n)
        producer.flush()
        first = consumer.receive(60)
        pending = producer.send_nowait(b"pending")

        def child() -> None:
            for call in (
                lambda: producer.send(b"x"),
                lambda: producer.submit(b"x"),
                lambda: producer.send_nowait(b"x"),
                producer.flush,
                consumer.receive,
                consumer.receive_batch,
                lambda: next(consumer),
                lambda: consumer.acknowledge(first),
                lambda: consumer.negative_acknowledge(first),
                consumer.redeliver_unacknowledged_messages,
                lambda: client.create_producer(topic),
                lambda: client.list_partitions(topic),
            ):
                with pytest.raises(gb.ForkError, match="before the fork"):
                    call()
            # Leaving the parent's blocks has no effect: there is nothing to close.
            consumer.close()
            producer.close()
            client.close()
            with gb.connect(url) as own:
                own.create_producer(topic).send(b"of the child")

        in_child(child)
        assert pending.wait()
        got = [consumer.receive(60) for _ in range(11)]
        assert {got[-1].data, got[-2].data} == {b"pending", b"of the child"}
        consumer.acknowledge(first)


@pytest.mark.slow
def test_forks_while_everything_runs(url: str, topic: str) -> None:
    """Regardless of the locks held at that moment."""
    with gb.connect(url) as client:
        producer = client.create_producer(topic)
        over = False

        def produce() -> None:
            while not over:
                producer.submit(b"x" * 100)

        working = threading.Thread(target=produce)
        working.start()

        def child() -> None:
            with gb.connect(url) as own:
                own.create_producer(topic).send(b"of the child")

        for _ in range(8):
            in_child(child)
        over = True
        working.join()
        producer.flush()


def _produce(url: str, topic: str, text: str) -> None:
    with gb.connect(url) as client:
        client.create_producer(topic).send(text.encode())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.slow
def test_multiprocessing(url: str, topic: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    with gb.connect(url) as client, client.subscribe(topic, "s") as consumer:
        workers = [
            context.Process(target=_produce, args=(str(url), topic, f"{n}")) for n in range(2)
        ]
        for each in workers:
            each.start()
        assert {consumer.receive(60).data for _ in workers} == {b"0", b"1"}
        for each in workers:
            each.join(CHILD_TIMEOUT_S)
            assert each.exitcode == 0


ENOUGH = 5


def interrupted(function: Callable[[], bool], for_s: float) -> int:
    """Call it until it returns False or for that time, and until `ENOUGH` interruptions, one each
    0.7 ms by KeyboardInterrupt; returns their number. A busy machine may make no progress between
    two interruptions, or come to few of them.
    """
    count = 0
    until_s = time.monotonic() + for_s
    over: list[bool] = []

    def interrupt(*_: object) -> None:
        nonlocal count
        count += 1
        if not over:
            raise KeyboardInterrupt

    gc.disable()
    before = signal.signal(signal.SIGALRM, interrupt)
    more = True
    while more:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
            while more:
                try:
                    while more:
                        more = function()
                except KeyboardInterrupt:
                    more = more and (time.monotonic() < until_s or count <= ENOUGH)
        except KeyboardInterrupt:
            pass
    over.append(True)  # Python calls the handler after the call, not before it
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.enable()
    return count


@INTERRUPTED_ANYWHERE
def test_interrupted_receives_lose_nothing(url: str, topic: str) -> None:
    count = 4000
    with gb.connect(url) as client:
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "s", receiver_queue_size=20)
        for n in range(count):
            producer.submit(b"%d" % n)
        producer.flush()
        got: list[gb.Message] = []

        def receive() -> bool:
            got.append(consumer.receive(60))
            return len(got) < count

        assert interrupted(receive, 10) > ENOUGH
        while len(got) < count:
            got.append(consumer.receive(60))
        assert [each.data for each in got] == [b"%d" % n for n in range(count)]


@INTERRUPTED_ANYWHERE
def test_interrupted_sends_lock_nothing_up(url: str, topic: str) -> None:
    with gb.connect(url) as client:
        producer = client.create_producer(topic, max_pending_messages=50)

        def send() -> bool:
            producer.submit(b"x")
            producer.send(b"y")
            return True

        assert interrupted(send, 0.3) > ENOUGH
        assert producer.send(b"z")
        producer.flush()
        assert producer.pending_messages == 0


# A runner in the background ignores SIGINT, and its children inherit that.
PROGRAM = """
import signal
import sys
import geminga.blocking as gb

signal.signal(signal.SIGINT, signal.default_int_handler)
with gb.connect(sys.argv[1]) as client:
    consumer = client.subscribe(sys.argv[2], "s")
    try:
        print("waiting", flush=True)
        {wait}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print("closed", flush=True)
"""


@pytest.mark.parametrize(
    "wait",
    [
        "consumer.receive()",
        "next(consumer)",
        "consumer.receive_batch(5)",
        "client.create_producer(sys.argv[2], access_mode=gb.ProducerAccessMode.WAIT_FOR_EXCLUSIVE)",
    ],
)
@pytest.mark.slow
def test_ctrl_c(url: str, topic: str, wait: str) -> None:
    with gb.connect(url) as client:
        exclusive = gb.ProducerAccessMode.EXCLUSIVE
        client.create_producer(topic, access_mode=exclusive)
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(wait=wait), url, topic],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=60)
        assert output == "interrupted\nclosed\n"
        assert child.returncode == 0


def test_program_that_leaves_its_client_open(url: str, topic: str) -> None:
    """Pending messages are still sent at the program's end."""
    code = (
        "import sys, geminga.blocking as gb\n"
        "client = gb.connect(sys.argv[1])\n"
        "client.create_producer(sys.argv[2], batching_max_publish_delay_s=60).send_nowait(b'last')"
    )
    with gb.connect(url) as client, client.subscribe(topic, "s") as consumer:
        run = subprocess.run(
            [sys.executable, "-c", code, url, topic], capture_output=True, text=True, timeout=120
        )
        assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
        assert consumer.receive(60).data == b"last"
