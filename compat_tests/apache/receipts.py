"""A publisher that keeps its receipts, and who reads them again: our SDK through the broker, and
Apache's ledger client from the bookies.
"""

from __future__ import annotations

import base64
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pulsar

import geminga.blocking
from compat_tests.apache.jars import java_command
from compat_tests.processes import guarded
from geminga_protocol.payload import split

WAIT_S = 60.0
LAST_S = 10.0
"""For the message that is under way at the end."""
PAUSE_S = 0.004
"""Between a receipt and the next message: the faults are the tests' matter, and a message without a
pause takes both cores for as long as a session lives.
"""
_topics = count()

Place = tuple[int, int]
"""Ledger and entry."""


class Unanswered(AssertionError):
    """A message has waited too long for its receipt."""


class Publisher:
    """The official client sends one message after the other until it is told to stop; failed ones
    are not counted.
    """

    def __init__(self, url: str, topic: str = "", begin: int = 0) -> None:
        self.topic = topic or f"persistent://public/default/receipts-{next(_topics)}"
        self.receipts: dict[int, Place] = {}
        """By number: where it says that the message is."""
        self.failures: list[str] = []
        self.longest_s = 0.0
        """Most that one message has waited for its receipt."""
        self._begin = begin
        self._client = pulsar.Client(url, operation_timeout_seconds=int(WAIT_S))
        self._client.subscribe(self.topic, "s").close()  # what it needs is not trimmed
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = self._client.create_producer(self.topic, send_timeout_millis=int(WAIT_S * 1000))
        for number in count(self._begin):
            if self._stop.is_set():
                return
            began = time.monotonic()
            try:
                sent = producer.send(b"%d" % number)
            except pulsar.PulsarException as error:
                self.failures.append(str(error))
                continue
            finally:
                self.longest_s = max(self.longest_s, time.monotonic() - began)
            with self._moved:
                self.receipts[number] = sent.ledger_id(), sent.entry_id()
                self._moved.notify_all()
            self._stop.wait(PAUSE_S)

    @property
    def ledger_id(self) -> int:
        """Of the last receipt."""
        return [*self.receipts.values()][-1][0]

    def wait_more(self, messages: int = 50) -> None:
        """Until so many more have their receipts. Raises Unanswered."""
        wanted = len(self.receipts) + messages
        with self._moved:
            came = self._moved.wait_for(lambda: len(self.receipts) >= wanted, WAIT_S)
        if not came:
            raise Unanswered(len(self.receipts), wanted, self.failures[-3:])

    def finish(self, last_s: float = LAST_S) -> None:
        """What has no receipt soon is given up."""
        if not self._stop.is_set():
            self._stop.set()
            # A message that is under way while its client is closed may never be answered.
            self._thread.join(last_s)
            self._client.close()
            self._thread.join(WAIT_S)


class LedgerEntries:
    """Apache's ledger client in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def check(self, receipts: Mapping[int, Place]) -> None:
        """Each message is where its receipt says."""
        places = {place: number for number, place in receipts.items()}
        for ledger_id in {ledger for ledger, _ in places}:
            ids = [entry for ledger, entry in places if ledger == ledger_id]
            first, last = min(ids), max(ids)
            line = self._first_line(f"{ledger_id} {first} {last}")
            for entry_id in range(first, last + 1):
                if entry_id > first:
                    line = self._line()
                number = places.get((ledger_id, entry_id))
                if number is not None:
                    found = bytes(split(memoryview(base64.b64decode(line))).payload)
                    assert found == b"%d" % number, (ledger_id, entry_id, number, found)

    def _first_line(self, request: str) -> str:
        """Of the answer. A bookie that has just registered again is unknown to it for a moment."""
        deadline = time.monotonic() + WAIT_S
        while True:
            self._write(request)
            line = self._line()
            if not line.startswith("error"):
                return line
            assert time.monotonic() < deadline, f"{request}: {line}"

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "Apache's client ended"
        return line.strip()


@contextmanager
def ledger_entries(zookeeper: str, log: Path) -> Iterator[LedgerEntries]:
    """Its process runs until the block ends. Raises PeerMissing."""
    url = f"zk+hierarchical://{zookeeper}/ledgers"
    command = java_command("LedgerEntries", [url], heap_mb=256)
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
            reader = LedgerEntries(process)
            assert reader._line() == "ready"
            yield reader
        finally:
            process.kill()


def check_in_order(url: str, topic: str, receipts: Mapping[int, Place]) -> None:
    """Our SDK reads each message where its receipt says, in their order."""
    expected = sorted((place, number) for number, place in receipts.items())
    with (
        geminga.blocking.connect(url) as client,
        client.create_reader(topic, geminga.EARLIEST) as reader,
    ):
        found: list[tuple[Place, int]] = []
        wanted = set(expected)
        while len(found) < len(expected):
            message = reader.read_next(timeout_s=WAIT_S)
            at = message.message_id
            each = (at.ledger_id, at.entry_id), int(message.value)
            if each in wanted:
                found.append(each)
    assert found == expected
