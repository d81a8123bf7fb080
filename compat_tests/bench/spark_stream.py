"""The stream of Spark's rows: how old messages are when a query with a trigger of a second has
them, and how fast it goes when they are there already.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compat_tests.bench.spark_values import amount_of_all
from compat_tests.processes import ROOT, guarded

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from compat_tests.bench.spark_job import Figures, Job

TRIGGER = "1 second"
CATCH_UP_MESSAGES = 100_000
"""Of one micro-batch of the query that catches up."""
PATIENCE_S = 60.0
"""How long the last message may take."""
TOLD_EVERY_S = 30.0
Numbers = npt.NDArray[np.number[Any]]
_COLUMNS = "id bigint, amount double, __publishTime timestamp"


class Ages:
    """How old messages were when all rows of their micro-batch had come to the driver."""

    def __init__(self) -> None:
        self.seen = 0
        self.amount = 0.0
        self._times_ms: list[Numbers] = []
        self._ages_ms: list[Numbers] = []

    def take(self, frame: DataFrame, _epoch: int) -> None:
        """For `foreachBatch`."""
        table = frame.select(F.unix_millis("__publishTime").alias("ms"), "amount").toArrow()
        self.add(table["ms"].to_numpy(), table["amount"].to_numpy(), time.time() * 1000)

    def add(self, times_ms: Numbers, amounts: Numbers, now_ms: float) -> None:
        """Messages that were published at these times, and are here now."""
        if len(times_ms):
            self.seen += len(times_ms)
            self.amount += float(amounts.sum())
            self._times_ms.append(times_ms)
            self._ages_ms.append(now_ms - times_ms)

    def figures(self, warmup_s: float) -> Figures:
        """Percentiles without the messages of the first seconds."""
        times, ages = np.concatenate(self._times_ms), np.concatenate(self._ages_ms)
        settled = ages[times >= times.min() + warmup_s * 1000]
        return {
            "ms_p50": float(np.percentile(settled, 50)),
            "ms_p99": float(np.percentile(settled, 99)),
            "ms_max": float(settled.max()),
            "micro_batches": len(self._ages_ms),
        }


def stream(job: Job, folder: Path) -> Figures:
    """A query, then the load; at its end a second query over the same messages."""
    count, ages = job.options.count, Ages()
    source = _source(job).load()
    query = (
        source.writeStream.foreachBatch(ages.take)
        .trigger(processingTime=TRIGGER)
        .option("checkpointLocation", f"{folder}/paced")
        .start()
    )
    try:
        with _load(job) as load:
            before, began = job.engine.used(), time.perf_counter()
            _wait(job, query, ages, load)
            seconds, used = time.perf_counter() - began, job.engine.used() - before
    finally:
        query.stop()
    if ages.amount != amount_of_all(count):
        raise ValueError(f"{ages.seen} messages of {count}, amount {ages.amount}")
    found = ages.figures(job.options.warmup_s) | job.engine.memory()
    found["reached_per_s"] = count / seconds
    found["python_us"] = used.python_s * 1e6 / count
    found["engine_us"] = used.engine_s * 1e6 / count
    return found | job.timed("catch_up", lambda: _caught_up(job, folder), rounds=1)


def _source(job: Job) -> DataStreamReader:
    reader = job.spark.readStream.format("pulsar").schema(_COLUMNS)
    reader = reader.option("service.url", job.options.url).option("topic", job.options.topic)
    return reader.option("startingOffsets", "earliest")


@contextmanager
def _load(job: Job) -> Iterator[subprocess.Popen[str]]:
    options = job.options
    arguments = [f"--url={options.url}", f"--topic={options.topic}"]
    arguments += [f"--count={options.count}", f"--rate={options.rate}"]
    program = [sys.executable, "-m", "compat_tests.bench.spark_load", "paced", *arguments]
    load = subprocess.Popen(guarded(program), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield load
    finally:
        load.kill()
        load.communicate()


def _wait(job: Job, query: StreamingQuery, ages: Ages, load: subprocess.Popen[str]) -> None:
    """Until all messages were seen. Raises TimeoutError, and what the query failed with."""
    count = job.options.count
    deadline = time.monotonic() + count / job.options.rate + PATIENCE_S
    told = time.monotonic()
    while ages.seen < count:
        if query.awaitTermination(1) or load.poll():
            raise ValueError(f"ended after {ages.seen} messages of {count}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{ages.seen} messages of {count}")
        if job.options.tell and time.monotonic() - told >= TOLD_EVERY_S:
            told = time.monotonic()
            figures = {"seen": ages.seen} | job.engine.memory()
            text = ", ".join(f"{name} {value:.1f}" for name, value in figures.items())
            print(text, file=sys.stderr, flush=True)


def _caught_up(job: Job, folder: Path) -> None:
    """All that is there, in micro-batches of a bounded number of messages."""
    found = [0, 0.0]

    def take(frame: DataFrame, _epoch: int) -> None:
        row = frame.agg(F.count("*"), F.sum("amount")).collect()[0]
        found[0] += row[0]
        found[1] += row[1] or 0.0

    query = (
        _source(job).option("maxMessagesPerTrigger", str(CATCH_UP_MESSAGES)).load()
        .writeStream.foreachBatch(take)
        .trigger(availableNow=True)
        .option("checkpointLocation", f"{folder}/caught-up")
        .start()
    )  # fmt: skip
    query.awaitTermination()
    if found != [job.options.count, amount_of_all(job.options.count)]:
        raise ValueError(f"{found} is not all of {job.options.count} messages")
