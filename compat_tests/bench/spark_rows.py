"""Spark reading and writing topics, beside our SDK doing the same in one process, and Parquet.

A core's worth is compared: messages per second of processor time of Spark's Python workers, and of
the SDK's process. Wall times are told too, but on a machine of two cores broker, engine and workers
share them. What the engine (the JVM) uses on top is told by itself: it is Spark's own, and Parquet
has it too.

Ten minutes of a stream, by hand, with the memory every half a minute and its growth at the end:

    python -m compat_tests.bench.spark_rows --minutes 10
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from compat_tests.bench.model import GEMINGA, Measure, Row
from compat_tests.bench.side import Side
from compat_tests.processes import ROOT, guarded

PARTITIONS = 4
PER_CORE_TIMES_MAX = 1 / 0.6
"""The processor time of a message, the connector's over the SDK's: 0.6 of its rate per core."""
METADATA_TIMES_MAX = 1 / 3
"""The time of a count without values over that of one with them."""
WORKER_MAX_MB = 500.0
RATE = 10_000


def spark_read(side: Side) -> Mapping[str, float]:
    """2 million records of 200 bytes in 4 partitions: the SDK first, then Spark."""
    count = int(side.seconds(2_000_000, 100_000))
    topic = _topic(side, PARTITIONS)
    side.module("spark_load", "write", topic=topic, count=count)
    sdk = side.module("spark_load", "read", topic=topic, count=count)
    found = side.module("spark_job", "read", topic=topic, count=count)
    found["sdk_per_s"], found["sdk_us"] = sdk["per_s"], sdk["client_cpu_us"]
    for name in ("count", "group", "default"):
        found[f"{name}_times"] = found[f"{name}_python_us"] / found["sdk_us"]
    found["count_all_times"] = (found["count_python_us"] + found["count_engine_us"]) / sdk[
        "client_cpu_us"
    ]
    found["metadata_times"] = found["metadata_s"] / found["count_s"]
    found["metadata_of_default"] = found["metadata_s"] / found["default_s"]
    return found


def spark_write(side: Side) -> Mapping[str, float]:
    """A million records, to one topic and to 4 partitions: the SDK first, then Spark."""
    count = int(side.seconds(1_000_000, 50_000))
    found: dict[str, float] = {}
    for name, partitions in (("one", 0), ("four", PARTITIONS)):
        sdk = side.module("spark_load", "write", topic=_topic(side, partitions), count=count)
        found[f"sdk_{name}_per_s"], found[f"sdk_{name}_us"] = sdk["per_s"], sdk["client_cpu_us"]
    topics = {"topic": _topic(side, 0), "partitioned": _topic(side, PARTITIONS)}
    found |= side.module("spark_job", "write", count=count, **topics)
    for name in ("one", "four"):
        found[f"{name}_times"] = found[f"{name}_python_us"] / found[f"sdk_{name}_us"]
    return found


def spark_stream(side: Side) -> Mapping[str, float]:
    """10 000 messages a second for 10 s that aren't counted, and 30 that are."""
    options = _stream_options(side, side.seconds(30, 3), side.seconds(10, 3))
    return side.module("spark_job", "stream", **options)


def _stream_options(side: Side, seconds: float, warmup_s: float) -> Mapping[str, object]:
    topic = _topic(side, PARTITIONS)
    # The query asks for columns: the topic has its schema before its first message.
    side.module("spark_load", "write", topic=topic, count=0)
    count = int((warmup_s + seconds) * RATE)
    return {"topic": topic, "count": count, "rate": RATE, "warmup_s": warmup_s}


def _topic(side: Side, partitions: int) -> str:
    """A new one, whose messages a subscription keeps."""
    topic = side.topic()
    path = topic.replace("://", "/")
    if partitions:
        _request(side, "PUT", f"{path}/partitions", partitions)
    else:
        _request(side, "PUT", path, {})
    _request(side, "PUT", f"{path}/subscription/kept", {"ledgerId": -1, "entryId": -1})
    return topic


def _request(side: Side, method: str, path: str, body: object) -> None:
    request = urllib.request.Request(
        f"{side.server.web_url}/admin/v2/{path}",
        method=method,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=30).close()


def _per_core(name: str, title: str) -> Measure:
    return Measure(
        f"{name}_times",
        f"{title}: Python CPU of a message, connector's over SDK's",
        "×",
        geminga_max=PER_CORE_TIMES_MAX,
    )


_WORKER = Measure(
    "worker_rss_mb", "highest memory of a Python worker", "MB", geminga_max=WORKER_MAX_MB
)
_ENGINE = Measure("engine_rss_mb", "highest memory of the engine (JVM, heap of 1 GiB)", "MB")

SPARK_ROWS = (
    Row(
        "spark-read",
        "Spark reads 2 million Avro messages of 200 bytes, local[2], by processor time",
        spark_read,
        (
            _per_core("count", "count over values"),
            _per_core("group", "group-by"),
            Measure("default_times", "count over values and all default columns: the same", "×"),
            Measure("count_all_times", "count over values: the same with the engine's CPU", "×"),
            Measure("sdk_us", "SDK: CPU of a message (receive_batch, value)", "µs"),
            Measure("count_python_us", "count over values: Python CPU of a message", "µs"),
            Measure("group_python_us", "group-by: Python CPU of a message", "µs"),
            Measure("count_engine_us", "count over values: engine's CPU of a message", "µs"),
            Measure("sdk_per_s", "SDK, one process", "msg/s"),
            Measure("count_per_s", "count over values", "msg/s"),
            Measure("group_per_s", "group-by", "msg/s"),
            Measure("default_per_s", "count over values and all default columns", "msg/s"),
            Measure("parquet_count_per_s", "count over values, from Parquet", "msg/s"),
            Measure("parquet_group_per_s", "group-by, from Parquet", "msg/s"),
            Measure("metadata_per_s", "count without values", "msg/s"),
            Measure(
                "metadata_times",
                "time of the count without values over that with them",
                "×",
                geminga_max=METADATA_TIMES_MAX,
            ),
            Measure("metadata_of_default", "the same over that with all default columns", "×"),
            Measure("metadata_s", "count without values, warm", "s"),
            Measure("count_s", "count over values, warm", "s"),
            Measure("first_s", "count over values, the session's first", "s"),
            Measure("session_s", "start of the session", "s"),
            _WORKER,
            _ENGINE,
        ),
        geminga_only=True,
    ),
    Row(
        "spark-stream",
        "A stream with a trigger of 1 s at 10 000 messages a second",
        spark_stream,
        (
            Measure("ms_p50", "published to seen in foreachBatch, p50", "ms"),
            Measure("ms_p99", "published to seen in foreachBatch, p99", "ms"),
            Measure("ms_max", "published to seen in foreachBatch, the oldest", "ms"),
            Measure("reached_per_s", "reached at 10 000/s", "msg/s"),
            Measure("python_us", "Python CPU of a message at 10 000/s", "µs"),
            Measure("engine_us", "engine's CPU of a message at 10 000/s", "µs"),
            Measure("catch_up_per_s", "sustained, in micro-batches of 100 000", "msg/s"),
            _WORKER,
            Measure("python_mb", "highest memory of all Python workers together", "MB"),
            _ENGINE,
        ),
        geminga_only=True,
    ),
    Row(
        "spark-write",
        "Spark writes a million rows, local[2], by processor time",
        spark_write,
        (
            _per_core("one", "one topic"),
            _per_core("four", "4 partitions"),
            Measure("sdk_one_us", "SDK, one topic: CPU of a message", "µs"),
            Measure("one_python_us", "one topic: Python CPU of a message", "µs"),
            Measure("one_engine_us", "one topic: engine's CPU of a message", "µs"),
            Measure("sdk_four_us", "SDK, 4 partitions: CPU of a message", "µs"),
            Measure("four_python_us", "4 partitions: Python CPU of a message", "µs"),
            Measure("sdk_one_per_s", "SDK, one topic", "msg/s"),
            Measure("one_per_s", "one topic", "msg/s"),
            Measure("sdk_four_per_s", "SDK, 4 partitions", "msg/s"),
            Measure("four_per_s", "4 partitions", "msg/s"),
            _WORKER,
            _ENGINE,
        ),
        geminga_only=True,
    ),
)


def main() -> int:
    """The long stream; what it prints is the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    work_dir = Path(tempfile.mkdtemp(prefix="spark-rows-"))
    side = Side(GEMINGA, work_dir, quick=False)
    try:
        options = {**_stream_options(side, minutes * 60, 10.0), "tell": 1}
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        program = [sys.executable, "-m", "compat_tests.bench.spark_job", "stream"]
        command = guarded([*program, f"--url={side.server.service_url}", *arguments])
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    finally:
        side.stop()
        shutil.rmtree(work_dir, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
