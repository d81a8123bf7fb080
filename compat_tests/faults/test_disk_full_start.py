"""A broker that is killed on a disk without a byte of room starts again: it serves reads, refuses
writes, says so once, and takes writes when space is back."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from compat_tests.faults.conftest import SMALL_DISK, TOPIC, Starter
from compat_tests.wire.raw import ConnectionEnded, RawClient, read_all, send_frame
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand

STARTS = 4
_BODY = b"x" * 60_000


def fill_up(filler: Path) -> None:
    """Leave no byte: what a process frees, others take."""
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    stat = os.statvfs(filler)
    assert stat.f_bavail == 0


@pytest.mark.alone
@pytest.mark.slow
def test_start_on_a_full_disk(small_disk: Path, start: Starter) -> None:
    data = small_disk  # so that the server's output, beside it, is on another file system
    filler = data / "filler"
    server = start(data, settings=SMALL_DISK)
    receipts: dict[tuple[int, int], bytes] = {}
    with RawClient(server.address) as client:
        client.producer(TOPIC)
        client.subscribe(TOPIC, "holder")  # what no subscription needs may be trimmed
        for number in range(100):
            body = b"%d " % number + _BODY
            receipts[client.publish(number, body)] = body
    draft = data / "bookie" / "journal" / "next.tmp"
    while draft.exists():  # a start would have the room that an unfinished one holds
        time.sleep(0.1)
    fill_up(filler)
    server.kill()
    for _ in range(STARTS):
        fill_up(filler)
        before = server.log_path.stat().st_size
        server = start(data, settings=SMALL_DISK)
        found = dict(read_all(server.address, TOPIC))
        assert all(found.get(place) == body for place, body in receipts.items())
        with RawClient(server.address) as client:
            client.producer(TOPIC)
            client.send_bytes(send_frame(1, 0, b"refused"))
            refusals = (BaseCommand.SEND_ERROR, BaseCommand.CLOSE_PRODUCER)
            assert client.next_frame().type in refusals
        time.sleep(2.5)  # failures that are tried again are not told again
        said = server.log_path.read_bytes()[before:].decode()
        assert said.count("health bookie is read-only") == 1, said
        assert said.count(" ERROR ") == 0, said
        server.kill()
    fill_up(filler)
    server = start(data, settings=SMALL_DISK)
    filler.unlink()
    _publish_again(server.address, receipts)
    ballasts = [
        data / "metadata.sqlite.ballast",
        data / "bookie" / "journal" / "ballast",
        data / "bookie" / "ledgers" / "ballast",
    ]
    deadline = time.monotonic() + 60
    while any(path.stat().st_size < 4 << 20 for path in ballasts):
        assert time.monotonic() < deadline, "the ballast must be made whole again"
        _publish_again(server.address, receipts)
        time.sleep(0.5)
    server.kill()
    found = dict(read_all(start(data, settings=SMALL_DISK).address, TOPIC))
    lost = [place for place, body in receipts.items() if found.get(place) != body]
    assert not lost, f"{len(lost)} of {len(receipts)} acknowledged messages are lost"


def _publish_again(address: tuple[str, int], receipts: dict[tuple[int, int], bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with RawClient(address, timeout_s=5) as client:
                client.producer(TOPIC)
                body = b"again %d" % len(receipts)
                receipts[client.publish(1, body)] = body
                return
        except (RuntimeError, ConnectionEnded, TimeoutError):
            assert time.monotonic() < deadline, "space is back and it still refuses"
            time.sleep(0.5)
