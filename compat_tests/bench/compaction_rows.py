"""What a compaction costs those who publish and read beside it."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Mapping

from compat_tests.bench.model import Measure, Row
from compat_tests.bench.side import Side, settle
from compat_tests.bench.tail_rows import tail

_POLL_S = 0.1
_SIZE = 1024
_MESSAGES_PER_KEY = 2


def tail_beside_compaction(side: Side) -> Mapping[str, float]:
    """A steady 5 000 messages a second with a consumer, alone and beside compactions of another
    topic of 200 000 keys, one after the other. The first reads all its messages, the others what
    the one before them left.
    """
    keys = int(side.seconds(200_000, 2000))
    topic = side.topic()
    side.module("sdk_load", "produce", topic=topic, count=_MESSAGES_PER_KEY * keys, keys=keys)
    settle(side.seconds(5, 0.5))
    alone = tail(side)
    compactions = _Compactions(f"{side.server.web_url}/admin/v2/{topic.replace('://', '/')}")
    with compactions:
        beside = tail(side)
    kept_mb = keys * _SIZE / 1e6
    return {
        "alone_ms_p99": alone["tail_ms_p99"],
        "beside_ms_p99": beside["tail_ms_p99"],
        "alone_ms_p50": alone["tail_ms_p50"],
        "beside_ms_p50": beside["tail_ms_p50"],
        "slower": beside["tail_ms_p99"] / alone["tail_ms_p99"],
        "compactions": len(compactions.seconds),
        "kept_mb_per_s": kept_mb * len(compactions.seconds) / sum(compactions.seconds),
    }


class _Compactions:
    """Compacts a topic again and again in a thread of its own."""

    def __init__(self, url: str) -> None:
        self.seconds: list[float] = []
        self._url = url + "/compaction"
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._enough.is_set():
            began = time.monotonic()
            self._ask("PUT")
            while (status := json.loads(self._ask("GET"))["status"]) == "RUNNING":
                time.sleep(_POLL_S)
            if status != "SUCCESS":
                raise RuntimeError(f"a compaction ended with {status}")
            self.seconds.append(time.monotonic() - began)

    def _ask(self, method: str) -> bytes:
        request = urllib.request.Request(self._url, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            body: bytes = answer.read()
        return body


COMPACTION_ROWS: tuple[Row, ...] = (
    Row(
        "tail-compaction",
        "5 000 messages/s with a consumer, beside compactions of 200 000 keys of 1 KiB",
        tail_beside_compaction,
        (
            Measure("alone_ms_p50", "end to end p50, alone", "ms"),
            Measure("beside_ms_p50", "end to end p50, beside a compaction", "ms"),
            Measure("alone_ms_p99", "end to end p99, alone", "ms"),
            Measure("beside_ms_p99", "end to end p99, beside a compaction", "ms"),
            Measure("slower", "p99 beside a compaction over p99 alone", "×"),
            Measure("compactions", "compactions that ended", ""),
            Measure("kept_mb_per_s", "what a compaction keeps, over its time", "MB/s"),
        ),
    ),
)
