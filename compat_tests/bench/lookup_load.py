"""Lookups by single connections, without a client library:
``python -m compat_tests.bench.lookup_load MODE --url URL``. Prints one JSON line.

"pipelined": many at once. "each": one at a time, each timed until its owner is known, as a client
would learn it: redirects are followed.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from geminga_protocol.commands import connection, lookup
from geminga_protocol.frames import FrameReader
from geminga_protocol.pb.pulsar_api_pb2 import CommandLookupTopicResponse

TOPICS = 1000
IN_FLIGHT = 500
REDIRECTS_MAX = 5


def main() -> None:
    """Run the load."""
    modes: Mapping[str, Callable[[argparse.Namespace], Mapping[str, float]]]
    modes = {"pipelined": pipelined, "each": each}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=modes)
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", default="persistent://public/default/lookup", help="a prefix")
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--warmup", type=int, default=20_000)
    parser.add_argument("--count", type=int, default=60_000)
    options = parser.parse_args()
    print(json.dumps(modes[options.mode](options)))


def pipelined(options: argparse.Namespace) -> Mapping[str, float]:
    """As many as the broker answers."""
    peer = Peer(options.url)
    names = [f"{options.topic}-{number}" for number in range(options.topics)]
    peer.look_up_all(names, options.warmup)
    seconds = peer.look_up_all(names, options.count)
    return {"lookups_per_s": options.count / seconds, "lookups": options.count}


def each(options: argparse.Namespace) -> Mapping[str, float]:
    """One after the other, of topics in any order."""
    chance = random.Random(1)
    peers = {options.url: Peer(options.url)}
    taken = []
    for _ in range(options.count):
        name = f"{options.topic}-{chance.randrange(options.topics)}"
        began = time.perf_counter()
        find(peers, options.url, name)
        taken.append((time.perf_counter() - began) * 1000)
    first, taken = max(taken[:100]), sorted(taken)
    return {
        "lookups": options.count,
        "lookup_ms_p50": taken[len(taken) // 2],
        "lookup_ms_p99": taken[int(len(taken) * 0.99)],
        "lookup_ms_max": taken[-1],
        "first_ms_max": first,
    }


def find(peers: dict[str, Peer], url: str, name: str) -> str:
    """The owner's address."""
    authoritative = False
    for _ in range(REDIRECTS_MAX):
        if url not in peers:
            peers[url] = Peer(url)
        found = peers[url].look_up(name, authoritative=authoritative)
        if found.response != CommandLookupTopicResponse.LookupType.Redirect:
            if found.response == CommandLookupTopicResponse.LookupType.Failed:
                raise SystemExit(f"{name}: {found.message}")
            return found.brokerServiceUrl
        url, authoritative = found.brokerServiceUrl, found.authoritative
    raise SystemExit(f"{name}: redirected {REDIRECTS_MAX} times")


class Peer:
    """A connection to a broker."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._reader = FrameReader()
        self._socket.sendall(connection.connect("lookups"))
        self._read(1)

    def look_up(self, name: str, *, authoritative: bool) -> CommandLookupTopicResponse:
        """One lookup."""
        self._socket.sendall(lookup.lookup(name, 1, authoritative=authoritative))
        while True:
            for frame in self._reader.feed(self._received()):
                return frame.command.lookupTopicResponse

    def look_up_all(self, names: Sequence[str], count: int) -> float:
        """So many lookups, up to IN_FLIGHT at once. Returns the seconds that it took."""
        frames = [lookup.lookup(names[number % len(names)], number + 1) for number in range(count)]
        room = threading.Semaphore(IN_FLIGHT)

        def send() -> None:
            for frame in frames:
                room.acquire()
                self._socket.sendall(frame)

        began = time.perf_counter()
        sender = threading.Thread(target=send)
        sender.start()
        self._read(count, room)
        sender.join()
        return time.perf_counter() - began

    def _read(self, count: int, room: threading.Semaphore | None = None) -> None:
        while count > 0:
            found = len(list(self._reader.feed(self._received())))
            count -= found
            if room is not None:
                room.release(found)

    def _received(self) -> bytes:
        data = self._socket.recv(256 * 1024)
        if not data:
            raise SystemExit("the broker closed the connection")
        return data


if __name__ == "__main__":
    main()
