"""Payloads to the connector's Arrow columns, beside the SDK decoding them one by one to objects, in
one process, in CPU time.

``python -m compat_tests.bench.spark_decode COUNT`` is the load itself; it prints one JSON line.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from compat_tests.bench.model import Measure, Row
from compat_tests.bench.side import Side, run_program
from compat_tests.bench.spark_values import FIRST_ID, Sale, sales
from geminga.schema import Avro, Json
from pyspark_pulsar._decode import Decoder, columns_of
from pyspark_pulsar._options import ParseMode

ROUNDS = 3
"""Of each the fastest counts."""
TOGETHER = 10_000
"""Messages of one record batch."""
TIMES_MAX = 1 / 3
"""Avro to columns may cost a third of Avro to objects."""


def measured(count: int) -> dict[str, float]:
    """Microseconds of CPU time a message."""
    found: dict[str, float] = {}
    values = list(sales(FIRST_ID, min(count, TOGETHER)))
    times = max(1, count // len(values))
    gc.disable()
    for name, kind in (("avro", Avro(Sale)), ("json", Json(Sale))):
        payloads = [kind.encode(each) for each in values]
        found[f"{name}_bytes"] = sum(map(len, payloads)) / len(payloads)
        found[f"{name}_objects_us"] = _cpu_us(_one_by_one(kind, payloads), len(payloads), times)
        for columns in (0, 1):
            decode = _columns(kind, payloads, columns)
            told = "columns" if not columns else "column"
            found[f"{name}_{told}_us"] = _cpu_us(decode, len(payloads), times)
        found[f"{name}_times"] = found[f"{name}_columns_us"] / found[f"{name}_objects_us"]
    return found


def _one_by_one(kind: Any, payloads: list[bytes]) -> Callable[[], object]:
    return lambda: [kind.decode(each) for each in payloads]


def _columns(kind: Any, payloads: list[bytes], count: int) -> Callable[[], object]:
    """The first columns, all for 0."""
    wanted = [each.arrow for each in columns_of(kind.info)][: count or None]
    decoder = Decoder(wanted, lambda version: kind.info, ParseMode.FAILFAST)
    nulls = [False] * len(payloads)
    return lambda: decoder.decode(payloads, nulls, None, None)


def _cpu_us(function: Callable[[], object], messages: int, times: int) -> float:
    best_s = float("inf")
    for _ in range(ROUNDS):
        began_s = time.process_time()
        for _ in range(times):
            function()
        best_s = min(best_s, time.process_time() - began_s)
    return best_s / times / messages * 1e6


def decoding(side: Side) -> Mapping[str, float]:
    """No broker has a part in it."""
    count = str(int(side.seconds(100_000, 10_000)))
    return run_program([sys.executable, "-m", "compat_tests.bench.spark_decode", count])


DECODE_ROWS = (
    Row(
        "spark-decode",
        "Spark: payloads of 200 bytes to Arrow columns, beside the SDK's objects",
        decoding,
        (
            Measure("avro_times", "Avro: columns / objects", "", geminga_max=TIMES_MAX),
            Measure("json_times", "JSON: columns / objects", ""),
            Measure("avro_columns_us", "Avro, all columns", "µs"),
            Measure("avro_column_us", "Avro, one column", "µs"),
            Measure("avro_objects_us", "Avro, objects one by one", "µs"),
            Measure("json_columns_us", "JSON, all columns", "µs"),
            Measure("json_column_us", "JSON, one column", "µs"),
            Measure("json_objects_us", "JSON, objects one by one", "µs"),
        ),
        geminga_only=True,
    ),
)


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
