"""A full disk: publishing fails with an error, reading goes on, and space back is service back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from click.testing import CliRunner

import geminga.blocking
from compat_tests.faults.conftest import SMALL_DISK, SMALL_DISK_BYTES, TOPIC, Starter
from compat_tests.processes import ServerProcess
from compat_tests.wire.raw import ConnectionEnded, RawClient, read_all, send_frame
from geminga.cli.doctor import doctor
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

_BODY = b"x" * 60_000

ROOM_BYTES = 64 << 20
"""What clients find on the disk, with large messages."""
LOG = TOPIC.replace("persistent://public/default/", "public/default/persistent/")


@pytest.mark.slow
def test_full_disk(small_disk: Path, start: Starter) -> None:
    data = small_disk / "data"
    server = start(data, settings=SMALL_DISK)
    receipts: dict[tuple[int, int], bytes] = {}
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.subscribe(TOPIC, "holder")  # what no subscription needs may be trimmed
        for number in range(10):
            body = b"%d " % number + _BODY
            receipts[client.publish(number, body)] = body
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        except OSError:
            pass
    _publish_until_refused(server.address, receipts)
    found = dict(read_all(server.address, TOPIC))
    assert all(found[place] == body for place, body in receipts.items()), "reading must go on"
    filler.unlink()
    number = _publish_again(server.address, receipts)
    assert number > 0
    server.kill()
    found = dict(read_all(start(data, settings=SMALL_DISK).address, TOPIC))
    lost = [place for place, body in receipts.items() if found.get(place) != body]
    assert not lost, f"{len(lost)} of {len(receipts)} acknowledged messages are lost"


def _publish_until_refused(
    address: tuple[str, int], receipts: dict[tuple[int, int], bytes]
) -> None:
    """The journal has some room of its own; when it is used up an error must come."""
    with RawClient(address) as client:
        client.producer(TOPIC)
        for number in range(2 * SMALL_DISK_BYTES // len(_BODY)):
            body = b"full %d " % number + os.urandom(8) + _BODY
            client.send_bytes(send_frame(1, number, body))
            frame = client.next_frame()
            if frame.type != BaseCommand.SEND_RECEIPT:
                assert frame.type in (BaseCommand.SEND_ERROR, BaseCommand.CLOSE_PRODUCER)
                return
            place = frame.command.send_receipt.message_id
            receipts[place.ledgerId, place.entryId] = body
    raise AssertionError("twice the disk was written, it says")


def _publish_again(address: tuple[str, int], receipts: dict[tuple[int, int], bytes]) -> int:
    """Publish until it works again; the number of attempts that it took."""
    deadline = time.monotonic() + 120
    attempts = 0
    while time.monotonic() < deadline:
        attempts += 1
        try:
            with RawClient(address, timeout_s=5) as client:
                client.producer(TOPIC)
                body = b"again %d" % attempts
                receipts[client.publish(attempts, body)] = body
                return attempts
        except (RuntimeError, ConnectionEnded, TimeoutError):
            time.sleep(0.5)
    raise AssertionError("space is back and it still refuses")


@pytest.mark.slow
def test_what_clients_and_the_log_are_told(small_disk: Path, start: Starter) -> None:
    """The official client's send timer starts again whenever its producer is let in."""
    server = start(small_disk / "data", settings=SMALL_DISK)
    filler = small_disk / "filler"
    usage = os.statvfs(small_disk)
    filler.write_bytes(bytes(usage.f_bavail * usage.f_frsize - ROOM_BYTES))
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    official = pulsar.Client(server.service_url, logger=quiet)
    try:
        with geminga.blocking.connect(server.service_url) as ours:
            ours.subscribe(TOPIC, "holder").close()
            theirs = official.create_producer(TOPIC, send_timeout_millis=5000)
            own = ours.create_producer(TOPIC, send_timeout_s=5)
            error = _send_until_it_fails(own.send)
            assert isinstance(error, geminga.OperationTimeoutError)
            assert isinstance(error.__cause__, geminga.PersistenceError)
            assert "could not store messages: " in str(error)
            assert "no bookie takes writes" in str(error)
            began = time.monotonic()
            assert isinstance(_send_until_it_fails(theirs.send), pulsar.Timeout)
            assert time.monotonic() - began < 15
            _check_doctor(server)
            filler.unlink()
            _send_until_it_works(own.send)
            _send_until_it_works(theirs.send)
    finally:
        official.shutdown()
    lines = [line for line in server.log_path.read_text().splitlines() if " WARNING " in line]
    of_bookie = [line for line in lines if " bookie is " in line]
    of_topic = [line for line in lines if f"log={LOG}: " in line]
    assert len(of_bookie) == len(of_topic) == 2, lines
    assert len(lines) < 8, lines


def _send_until_it_fails(send: Callable[[bytes], object]) -> Exception:
    for _ in range(400):
        try:
            send(os.urandom(500_000))
        except Exception as error:
            return error
    raise AssertionError("more than the disk was sent")


def _send_until_it_works(send: Callable[[bytes], object]) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            send(b"again")
        except (geminga.GemingaError, pulsar.PulsarException):
            assert time.monotonic() < deadline, "space is back and it still refuses"
        else:
            return


def _check_doctor(server: ServerProcess) -> None:
    result = CliRunner().invoke(doctor, ["--admin-url", server.web_url, "-u", server.service_url])
    assert result.exit_code == 1
    (told,) = [line for line in result.output.splitlines() if line.startswith("fail: Bookie ")]
    assert " takes no writes: " in told
    assert "No space left on device" in told or "full" in told
