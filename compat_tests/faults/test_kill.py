"""kill -9 in mid-load: what was acknowledged is there after the next start, in order, once."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import pytest

from compat_tests.faults.conftest import TOPIC, Starter
from compat_tests.processes import ServerProcess
from compat_tests.wire.raw import ConnectionEnded, RawClient, body_of, read_all, send_frame
from geminga_protocol._tests.rounds import rounds
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

ROUNDS = rounds(50)
_IN_FLIGHT = 100
_RECEIPTS_MAX = 600

Position = tuple[int, int]


@dataclass
class History:
    """What the client saw over all rounds."""

    receipts: dict[str, Position] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    resumed: list[Position] = field(default_factory=list)
    acknowledged: Position = (-1, -1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_messages_with_receipts_survive_kills(start: Starter) -> None:
    chance = random.Random(50)
    history = History()
    for number in range(ROUNDS):
        server = start()
        _load_until_killed(server, number, chance.randrange(1, _RECEIPTS_MAX), history)
    found = read_all(start().address, TOPIC)
    _check_messages(found, history)
    _check_acknowledgements(found, history)


def _load_until_killed(server: ServerProcess, number: int, receipts: int, history: History) -> None:
    """Publish and consume on one connection; kill the server after so many receipts."""
    history.sent[number] = 0
    got = 0
    resumed = False
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.subscribe(TOPIC, "holder", consumer_id=2)  # keeps every message from being trimmed
        client.subscribe(TOPIC, "kept")
        client.flow(1_000_000)
        try:
            while True:
                fresh = min(20, got + _IN_FLIGHT - history.sent[number])
                first = history.sent[number]
                for n in range(first, first + fresh):
                    client.send_bytes(send_frame(1, n, b"%d:%d" % (number, n)))
                history.sent[number] += fresh
                frame = client.next_frame()
                if frame.type == BaseCommand.SEND_RECEIPT:
                    receipt = frame.command.send_receipt
                    position = (receipt.message_id.ledgerId, receipt.message_id.entryId)
                    history.receipts[f"{number}:{receipt.sequence_id}"] = position
                    got += 1
                    if got == receipts:
                        server.kill()
                elif frame.type == BaseCommand.MESSAGE:
                    place = frame.command.message.message_id
                    if not resumed:
                        history.resumed.append((place.ledgerId, place.entryId))
                        resumed = True
                    client.ack(place.ledgerId, place.entryId)
                    history.acknowledged = (place.ledgerId, place.entryId)
                else:
                    raise AssertionError(f"unexpected: {frame.command}")
        except ConnectionEnded:
            assert got >= receipts, f"ended before the kill:\n{server.log_tail()}"
    server.process.wait()


def _check_messages(found: list[tuple[Position, bytes]], history: History) -> None:
    bodies = [body.decode() for _, body in found]
    assert len(set(bodies)) == len(bodies), "a message is there twice"
    assert [position for position, _ in found] == sorted(position for position, _ in found)
    by_position = {position: body.decode() for position, body in found}
    missing = {body: place for body, place in history.receipts.items() if place not in by_position}
    assert not missing, f"{len(missing)} acknowledged messages are lost: {list(missing)[:5]}"
    assert all(by_position[place] == body for body, place in history.receipts.items())
    # In each round an unbroken beginning of what was sent, and the rounds in their order.
    numbers = [tuple(map(int, body.split(":"))) for body in bodies]
    assert numbers == sorted(numbers)
    for round_number, sent in history.sent.items():
        kept = [n for each, n in numbers if each == round_number]
        assert kept == list(range(len(kept)))
        assert len(kept) <= sent


def _check_acknowledgements(found: list[tuple[Position, bytes]], history: History) -> None:
    assert history.resumed == sorted(history.resumed), "a subscription went back"
    assert len(history.resumed) > ROUNDS // 2
    assert history.acknowledged in {position for position, _ in found}


def test_flushed_acknowledgements_are_not_repeated(start: Starter) -> None:
    server = start()
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.subscribe(TOPIC, "kept")
        client.flow(100)
        for n in range(20):
            client.publish(n, b"%d" % n)
        for n in range(15):
            position, body = client.next_message()
            assert body == b"%d" % n
            client.ack(*position)
        time.sleep(6)  # the process is another one, which flushes twice a second of real time
        server.kill()
    with RawClient(start().address) as client:
        client.subscribe(TOPIC, "kept")
        client.flow(100)
        assert [client.next_message()[1] for _ in range(5)] == [b"%d" % n for n in range(15, 20)]


def test_unacknowledged_messages_come_again_after_a_kill(start: Starter) -> None:
    server = start()
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.subscribe(TOPIC, "kept")
        for n in range(10):
            client.publish(n, b"%d" % n)
        client.flow(10)
        for _ in range(10):
            client.next_message()
        server.kill()
    with RawClient(start().address) as client:
        client.subscribe(TOPIC, "kept")
        client.flow(10)
        frames = [client.wait_for(BaseCommand.MESSAGE) for _ in range(10)]
        assert [body_of(frame) for frame in frames] == [b"%d" % n for n in range(10)]
