"""A full disk: publishing fails with an error, reading goes on, and space back is service back."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from compat_tests.faults.conftest import SMALL_DISK, SMALL_DISK_BYTES, TOPIC, Starter
from compat_tests.wire.raw import ConnectionEnded, RawClient, read_all, send_frame
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

_BODY = b"x" * 60_000


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
