"""Traffic of official clients while brokers come and go: on each topic one deduplicating producer,
and consumers of one type. At the end nothing may be lost, nor in the log twice, nor out of order.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path

import pulsar

from compat_tests.apache.jars import java_command
from compat_tests.processes import guarded

WAIT_S = 60.0
KEYS = 7
PAUSE_S = 0.02
TYPES = (
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.KeyShared,
)
_prefixes = count()


class JavaTraffic:
    """Apache's Java client: `java/Traffic.java`. It tries again twice a second."""

    def __init__(self, process: subprocess.Popen[str], log: Path, topics: Sequence[str]) -> None:
        self.topics = topics
        self.alone = [f"{topic}-alone" for topic in topics]
        """Topics that have a consumer only."""
        self._process = process
        self._log = log
        self._line()

    def more(self, receipts: int = 20) -> float:
        """Wait until each topic has so many more; the longest time in seconds that one went without
        a receipt since the last call.
        """
        return float(self._ask(f"more {receipts}")["gap_ms"]) / 1000

    def end(self) -> int:
        """All is received, and the topics are read; how many messages there were."""
        return int(self._ask("end")["receipts"])

    def _ask(self, text: str) -> dict[str, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        assert answer.pop("errors") == []
        return dict(answer)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"Apache's client ended:\n{self._log.read_text()[-2000:]}"
        return line


@contextmanager
def java_traffic(url: str, log: Path, topics: int = 4) -> Iterator[JavaTraffic]:
    """Its process runs until the block ends. Raises PeerMissing."""
    prefix = f"java-{next(_prefixes)}"
    arguments = [url, prefix, str(topics)]
    command = java_command("Traffic", arguments, heap_mb=128)
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            guarded(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            names = [f"persistent://public/default/{prefix}-{number}" for number in range(topics)]
            yield JavaTraffic(process, log, names)
        finally:
            process.kill()


class _Line:
    """One topic of the Python client."""

    def __init__(self, client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
        self.topic = topic
        self.errors: list[str] = []
        self._kind = kind
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._sent = self._confirmed = 0
        self._received: set[int] = set()
        self._newest: dict[int, int] = {}
        self._last = time.monotonic()
        self._gap_s = 0.0
        client.subscribe(topic, "kept").close()  # what it needs is not trimmed
        self._consumers = [
            client.subscribe(
                topic,
                "s",
                kind,
                message_listener=self._take,
                receiver_queue_size=50,
                initial_position=pulsar.InitialPosition.Earliest,
            )
            for _ in range(1 if kind == pulsar.ConsumerType.Exclusive else 2)
        ]
        self._producer = client.create_producer(
            topic,
            producer_name="traffic",
            send_timeout_millis=0,
            max_pending_messages=100,
            block_if_queue_full=True,
        )
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    def _produce(self) -> None:
        while not self._stop.wait(PAUSE_S):
            number, self._sent = self._sent, self._sent + 1
            self._producer.send_async(
                b"%d" % number, self._confirm, partition_key=f"k{number % KEYS}"
            )

    def _confirm(self, result: pulsar.Result, _id: pulsar.MessageId) -> None:
        with self._lock:
            if result != pulsar.Result.Ok:
                self.errors.append(f"{self.topic} {self._confirmed}: {result}")
            self._confirmed += 1
            now = time.monotonic()
            self._gap_s = max(self._gap_s, now - self._last)
            self._last = now

    def _take(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        number = int(message.data())
        with self._lock:
            self._received.add(number)
            if self._kind != pulsar.ConsumerType.Shared:
                step = KEYS if self._kind == pulsar.ConsumerType.KeyShared else 1
                last = self._newest.get(number % step, number % step - step)
                if number > last + step:
                    self.errors.append(f"{self.topic} got {number} after {last}")
                self._newest[number % step] = max(last, number)
        if self._kind == pulsar.ConsumerType.Failover:
            consumer.acknowledge_cumulative(message)
        else:
            consumer.acknowledge(message)

    def confirmed(self) -> int:
        """Receipts so far."""
        with self._lock:
            return self._confirmed

    def take_gap_s(self) -> float:
        """The longest time without a receipt since the last call."""
        with self._lock:
            found, self._gap_s = self._gap_s, 0.0
            return found

    def stop(self) -> None:
        """No further message."""
        self._stop.set()
        self._thread.join(WAIT_S)

    def has_all(self) -> bool:
        """Whether all that was sent has its receipt and was received."""
        with self._lock:
            return self._confirmed == self._sent == len(self._received)

    def read(self, client: pulsar.Client) -> None:
        """The log has each message once, in order."""
        found = numbers(client, self.topic)
        odd = [(a, b) for a, b in pairwise(found) if b != a + 1]
        assert (odd, found[0], len(found)) == ([], 0, self._sent), self.topic


def numbers(client: pulsar.Client, topic: str) -> list[int]:
    """All that are in a topic."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(timeout_millis=int(WAIT_S * 1000)).data()))
    reader.close()
    return found


class PythonTraffic:
    """The official Python client. Each time it waits twice as long before it tries again."""

    def __init__(self, url: str, topics: int) -> None:
        self.client = pulsar.Client(
            url,
            operation_timeout_seconds=int(WAIT_S),
            connection_timeout_ms=2000,
            message_listener_threads=4,
        )
        prefix = f"persistent://public/default/python-{next(_prefixes)}"
        self._lines = [
            _Line(self.client, f"{prefix}-{number}", TYPES[number % 4]) for number in range(topics)
        ]

    def more(self, receipts: int = 20) -> float:
        """See `JavaTraffic.more`."""
        goals = [(line, line.confirmed() + receipts) for line in self._lines]
        for line, goal in goals:
            self._await(line, lambda line=line, goal=goal: line.confirmed() >= goal)
        return max(line.take_gap_s() for line in self._lines)

    def end(self) -> int:
        """See `JavaTraffic.end`."""
        for line in self._lines:
            line.stop()
        for line in self._lines:
            self._await(line, line.has_all)
        for line in self._lines:
            line.read(self.client)
        return sum(line.confirmed() for line in self._lines)

    def _await(self, line: _Line, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, vars(line)
            time.sleep(0.005)
        assert line.errors == []


@contextmanager
def python_traffic(url: str, topics: int = 4) -> Iterator[PythonTraffic]:
    """Its client is closed when the block ends."""
    traffic = PythonTraffic(url, topics)
    try:
        yield traffic
    finally:
        for line in traffic._lines:
            line._stop.set()
        traffic.client.close()
