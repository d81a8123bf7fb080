"""Exclusive producers that fence one another over connections that are cut, unloads and kills: one
writes at a time, and with deduplication nothing is stored twice or dropped.
"""

from __future__ import annotations

import random
import select
import time
import urllib.request
from dataclasses import dataclass, field

import pytest

from compat_tests.faults.conftest import SETTINGS, TOPIC, Starter
from compat_tests.processes import ServerProcess
from compat_tests.wire.raw import ConnectionEnded, RawClient, read_all
from geminga_protocol import encode, payload
from geminga_protocol._tests.rounds import rounds
from geminga_protocol.frames import Frame
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, MessageMetadata, ProducerAccessMode

STEPS = rounds(1200)
WRITERS = 4
NAMES = 2
MODES = (
    ProducerAccessMode.ExclusiveWithFencing,
    ProducerAccessMode.ExclusiveWithFencing,
    ProducerAccessMode.WaitForExclusive,
    ProducerAccessMode.Exclusive,
)
UNLOAD = "/admin/v2/persistent/public/default/faults/unload"
ANSWER_S = 60.0

Position = tuple[int, int]


@dataclass
class History:
    """What all writers saw."""

    receipts: dict[tuple[str, int], Position | None] = field(default_factory=dict)
    """By name and sequence id; None for a message that was stored before."""
    ends: list[tuple[int, Position]] = field(default_factory=list)
    """Epochs that began, and where the topic ended then."""


class Writer:
    """A producer on a connection of its own; it begins behind what its name has stored."""

    def __init__(self, name: str, history: History, chance: random.Random) -> None:
        self.state = "off"
        self._name = name
        self._history = history
        self._chance = chance
        self._client: RawClient | None = None
        self._producer_id = 0
        self._request_id = 0
        self._epoch = -1
        self._next = 0
        self._sent: list[int] = []

    def open(self, server: ServerProcess) -> None:
        """Ask for exclusive access, in one of its ways."""
        client = self._client = self._client or RawClient(server.address)
        self._producer_id += 1
        command = BaseCommand(type=BaseCommand.PRODUCER)
        producer = command.producer
        producer.topic, producer.producer_name = TOPIC, self._name
        producer.producer_id, producer.epoch = self._producer_id, self._producer_id
        producer.request_id = self._request_id = client.request_id()
        producer.producer_access_mode = self._chance.choice(MODES)
        if self._epoch >= 0 and self._chance.random() < 0.4:
            producer.topic_epoch = self._epoch
        client.send(command)
        self.state = "opening"
        self._sent.clear()

    def send(self, count: int) -> None:
        """Messages that name the epoch in which they were sent."""
        assert self._client is not None
        frames = b""
        for _ in range(count):
            metadata = MessageMetadata(
                producer_name=self._name,
                sequence_id=self._next,
                publish_time=int(time.time() * 1000),
            )
            body = f"{self._name}:{self._next}:{self._epoch}"
            rest = payload.build(metadata, body.encode())
            frames += encode.send(self._producer_id, self._next, 1, len(rest)) + rest
            self._sent.append(self._next)
            self._next += 1
        try:
            self._client.send_bytes(frames)
        except ConnectionEnded:
            self.cut()

    def cut(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.socket.close()
        self._client = None
        self.state = "off"
        self._sent.clear()

    def listen(self, server: ServerProcess) -> None:
        """Take what has come."""
        client = self._client
        if client is None:
            return
        if select.select([client.socket], [], [], 0.001)[0]:
            try:
                client.receive_some()
            except (ConnectionEnded, OSError):
                self.cut()
        while self._client is not None and client.frames:
            self._take(client.frames.popleft(), server)

    def settle(self, server: ServerProcess) -> None:
        """Until all is answered."""
        deadline = time.monotonic() + ANSWER_S
        while self.state == "opening" or (self.state == "open" and self._sent):
            assert time.monotonic() < deadline, f"{self._name} {self.state} isn't answered"
            self.listen(server)

    def _take(self, frame: Frame, server: ServerProcess) -> None:
        command = frame.command
        if frame.type == BaseCommand.PRODUCER_SUCCESS:
            answer = command.producer_success
            assert answer.request_id == self._request_id
            self.state = "waiting"
            if answer.producer_ready:
                self._begin(answer.topic_epoch, answer.last_sequence_id, server)
        elif frame.type == BaseCommand.SEND_RECEIPT:
            receipt = command.send_receipt
            if receipt.producer_id == self._producer_id:
                assert self.state == "open", "a receipt behind CLOSE_PRODUCER"
                assert self._sent.pop(0) == receipt.sequence_id
                place = receipt.message_id
                again = place.ledgerId >= 1 << 63
                self._history.receipts.setdefault(
                    (self._name, receipt.sequence_id),
                    None if again else (place.ledgerId, place.entryId),
                )
        elif frame.type == BaseCommand.CLOSE_PRODUCER:
            if command.close_producer.producer_id == self._producer_id:
                self.state = "off"
        else:
            assert frame.type == BaseCommand.ERROR, command
            self.state = "off"

    def _begin(self, epoch: int, last_sequence_id: int, server: ServerProcess) -> None:
        self.state, self._epoch = "open", epoch
        again = self._chance.choice([0, 0, 0, 3, 20])
        self._next = max(0, last_sequence_id + 1 - again)
        if self._chance.random() < 0.3:
            found = read_all(server.address, TOPIC)
            self._history.ends.append((epoch, found[-1][0] if found else (-1, -1)))


@pytest.mark.slow
def test_one_writes_at_a_time(start: Starter) -> None:
    chance = random.Random(13)
    settings = {
        **SETTINGS,
        "brokerDeduplicationEnabled": "true",
        "brokerDeduplicationEntriesInterval": "50",
        "managedLedgerMaxEntriesPerLedger": "100",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "brokerDeleteInactiveTopicsEnabled": "false",
    }
    server = start(settings=settings)
    with RawClient(server.address) as holder:
        holder.subscribe(TOPIC, "holder")
    history = History()
    writers = [Writer(f"w{n % NAMES}", history, chance) for n in range(WRITERS)]
    for step in range(1, STEPS + 1):
        writer, what = chance.choice(writers), chance.random()
        if what < 0.5 and writer.state == "open":
            writer.send(chance.choice([1, 5, 30, 200]))
        elif what < 0.9 and writer.state == "off":
            writer.open(server)
        elif what > 0.94:
            writer.cut()
        elif what > 0.92:
            _unload(server)
        if step % 300 == 0:
            server.kill()
            for each in writers:
                each.cut()
            server = start(settings=settings)
        for each in writers:
            each.listen(server)
    for writer in writers:
        writer.settle(server)
    _check(read_all(server.address, TOPIC), history)


def _unload(server: ServerProcess) -> None:
    request = urllib.request.Request(server.web_url + UNLOAD, method="PUT")
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        assert answer.status == 204


def _check(found: list[tuple[Position, bytes]], history: History) -> None:
    stored: dict[tuple[str, int], Position] = {}
    epochs: list[int] = []
    for position, body in found:
        name, number, epoch = body.decode().split(":")
        assert (name, int(number)) not in stored, f"{body!r} is stored twice"
        stored[name, int(number)] = position
        epochs.append(int(epoch))
    assert len(stored) > STEPS // 2
    assert epochs == sorted(epochs), "a fenced producer wrote behind its successor"
    for name in {name for name, _ in stored}:
        numbers = [number for each, number in stored if each == name]
        assert numbers == list(range(len(numbers))), f"{name} is out of order, or was dropped"
    for message, place in history.receipts.items():
        assert message in stored, f"{message} has a receipt, and is lost"
        assert place in (None, stored[message])
    assert history.ends
    for epoch, end in history.ends:
        late = [each for (at, _), each in zip(found, epochs, strict=True) if at > end]
        assert not late or min(late) >= epoch, "a message was stored behind the fencing answer"
