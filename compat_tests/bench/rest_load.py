"""Calls of the admin REST over connections that are kept:
``python -m compat_tests.bench.rest_load MODE --url WEB_URL``. Prints one JSON line.

"create": topics of a namespace, one after the other or by some connections at once. "stats": what
each of them does, one after the other. "get": one path, so often, the median and the longest time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

_TIMEOUT_S = 60.0


def main() -> None:
    """Run the load."""
    modes: Mapping[str, Callable[[argparse.Namespace], Mapping[str, float]]]
    modes = {"create": create, "stats": stats, "get": get}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=modes)
    parser.add_argument("--url", required=True, help="of the web service")
    parser.add_argument("--namespace", default="public/default")
    parser.add_argument("--first", type=int, default=0, help="number of the first topic")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=1, help="connections")
    parser.add_argument("--path", default="/", help="what is got")
    options = parser.parse_args()
    print(json.dumps(modes[options.mode](options)))


class Peer:
    """One connection to a web service."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=_TIMEOUT_S
        )

    def call(self, method: str, path: str) -> bytes:
        """The body of the answer. Raises RuntimeError unless it is a success."""
        self._connection.request(method, path)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {body[:200]!r}")
        return body


def topic_path(options: argparse.Namespace, number: int) -> str:
    """Of one topic."""
    return f"/admin/v2/persistent/{options.namespace}/topic-{number}"


def create(options: argparse.Namespace) -> Mapping[str, float]:
    """Topics without partitions."""
    failures: list[Exception] = []

    def some(first: int) -> None:
        peer = Peer(options.url)
        try:
            for number in range(first, options.count, options.at_once):
                peer.call("PUT", topic_path(options, options.first + number))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=some, args=(n,)) for n in range(options.at_once)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if failures:
        raise failures[0]
    return {"created_per_s": options.count / seconds}


def stats(options: argparse.Namespace) -> Mapping[str, float]:
    """Of each topic once."""
    peer = Peer(options.url)
    began = time.perf_counter()
    for number in range(options.count):
        peer.call("GET", topic_path(options, options.first + number) + "/stats")
    return {"stats_per_s": options.count / (time.perf_counter() - began)}


def get(options: argparse.Namespace) -> Mapping[str, float]:
    """One path, time after time."""
    peer = Peer(options.url)
    taken: list[float] = []
    size = 0
    for _ in range(options.count):
        began = time.perf_counter()
        size = len(peer.call("GET", options.path))
        taken.append((time.perf_counter() - began) * 1e3)
    return {"ms_p50": statistics.median(taken), "ms_max": max(taken), "bytes": size}


if __name__ == "__main__":
    main()
