"""Drivers of the cluster tests, each a process of its own: `python -m ... SCENARIO JSON`.

It imports nothing of Geminga: one test runs it where nothing of that is installed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, functions

from compat_tests.spark.session import spark_session

VICTIM_ROWS = 150
"""Rows that the killed executor has read; a part of the topic has more."""
COLUMNS = "value bigint, __partition int"


def read(spark: SparkSession, given: dict[str, Any], columns: str = COLUMNS) -> DataFrame:
    """The topic, in six parts of small batches."""
    reader = spark.read.format("pulsar").options(**given["options"])
    reader = reader.options(topic=given["topic"], minPartitions="6", maxRowsPerBatch="50")
    return reader.schema(columns).load()


def write(frame: DataFrame, given: dict[str, Any]) -> None:
    """To the other topic, once each."""
    writer = frame.write.format("pulsar").mode("append").options(**given["options"])
    writer.options(topic=given["target"], deduplication="true").save()


def place(value: int) -> str:
    """Which executor reads it: each has a folder of its own."""
    return os.getcwd()


class DiesOnce:
    """Passes values on; the first attempt of the first task kills its executor on the way."""

    def __init__(self) -> None:
        self._seen = 0

    def __call__(self, value: int) -> int:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            self._seen += 1
            if self._seen == VICTIM_ROWS:
                kill_executor()
        return value


def kill_executor() -> None:
    """SIGKILL for the JVM above this Python: no task of it ends in order."""
    pid = os.getpid()
    while pid > 1:
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pid = int(status[1])
    raise RuntimeError("no executor above this process")


def spread(spark: SparkSession, given: dict[str, Any]) -> Iterator[object]:
    """Read everywhere, and write what was read."""
    frame = read(spark, given)
    executor = functions.udf(place, "string")("value")
    yield [row["count"] for row in frame.groupBy(executor).count().collect()]
    yield frame.agg(functions.sum("value")).collect()[0][0]
    write(frame.select("value"), given)


def killed(spark: SparkSession, given: dict[str, Any]) -> Iterator[object]:
    """An executor dies while its tasks read, and write what they read."""
    before = len(executors(spark))
    value = functions.udf(DiesOnce(), "bigint")("value").alias("value")
    write(read(spark, given).select(value), given)
    yield before


def executors(spark: SparkSession) -> list[str]:
    """All that the driver knows now, without itself."""
    context: Any = spark.sparkContext
    infos = context._jsc.sc().statusTracker().getExecutorInfos()
    return [info.host() for info in infos][1:]


def shipped(spark: SparkSession, given: dict[str, Any]) -> Iterator[object]:
    """The connector comes with the job."""
    spark.sparkContext.addPyFile(given["wheel"])
    from pyspark_pulsar import DefaultSource

    spark.dataSource.register(DefaultSource)
    yield DefaultSource.__module__
    yield from spread(spark, given)


def spread_and_killed(spark: SparkSession, given: dict[str, Any]) -> Iterator[object]:
    """One after the other: an engine and its executors take long to start."""
    yield from spread(spark, given)
    yield from killed(spark, {**given, "target": given["killed_target"]})


SCENARIOS: dict[str, Callable[[SparkSession, dict[str, Any]], Iterator[object]]] = {
    "spread_and_killed": spread_and_killed,
    "shipped": shipped,
}


def main() -> None:
    """Run one, and print a line for each of its answers."""
    given = json.loads(sys.argv[2])
    session = spark_session(
        Path(given["folder"]), master=given["master"], settings=given["settings"]
    )
    with session as spark:
        for answer in SCENARIOS[sys.argv[1]](spark, given):
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
