"""Pipelined lookups of many topics by one connection, without a client library:
``python -m compat_tests.bench.lookup_load lookup --url URL``. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import socket
import threading
import time
from urllib.parse import urlsplit

from geminga_protocol.commands import connection, lookup
from geminga_protocol.frames import FrameReader

TOPICS = 1000
IN_FLIGHT = 500


def main() -> None:
    """Run the load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["lookup"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--warmup", type=int, default=20_000)
    parser.add_argument("--count", type=int, default=60_000)
    options = parser.parse_args()
    url = urlsplit(options.url)
    with socket.create_connection((url.hostname or "", url.port or 0)) as peer:
        reader = FrameReader()
        peer.sendall(connection.connect("lookups"))
        _read(peer, reader, 1)
        _look_up(peer, reader, options.warmup)
        seconds = _look_up(peer, reader, options.count)
    print(json.dumps({"lookups_per_s": options.count / seconds, "lookups": options.count}))


def _look_up(peer: socket.socket, reader: FrameReader, count: int) -> float:
    frames = [
        lookup.lookup(f"persistent://public/default/lookup-{number % TOPICS}", number + 1)
        for number in range(count)
    ]
    room = threading.Semaphore(IN_FLIGHT)

    def send() -> None:
        for frame in frames:
            room.acquire()
            peer.sendall(frame)

    began = time.perf_counter()
    sender = threading.Thread(target=send)
    sender.start()
    _read(peer, reader, count, room)
    sender.join()
    return time.perf_counter() - began


def _read(
    peer: socket.socket, reader: FrameReader, count: int, room: threading.Semaphore | None = None
) -> None:
    while count > 0:
        data = peer.recv(256 * 1024)
        if not data:
            raise SystemExit("the broker closed the connection")
        found = len(list(reader.feed(data)))
        count -= found
        if room is not None:
            room.release(found)


if __name__ == "__main__":
    main()
