"""The stream of Spark's rows: how old messages are when a query with a trigger of a second has
them, and how fast it goes when they are there already.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from compat_tests.bench.spark_values import AMOUNTS, amount_of_all
from compat_tests.processes import ROOT, guarded

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from compat_tests.bench.spark_job import Figures, Job

TRIGGER = "1 second"
CATCH_UP_BATCHES = 4
"""Micro-batches that the query makes of all messages when it catches up."""
FIRST_MESSAGES = 2 * AMOUNTS
"""Messages that a query sees before the load: its first micro-batch starts processes."""
PATIENCE_S = 60.0
"""How long the last message may take."""
TOLD_EVERY_S = 30.0
Numbers = npt.NDArray[np.number[Any]]
_COLUMNS = "id bigint, amount double, __publishTime timestamp"


class Ages:
    """How old messages were when all rows of their micro-batch had come to the driver."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        self.seen = 0
        self.amount = 0.0
        self._batches: list[tuple[float, Numbers]] = []
        """When a micro-batch was there, and when its messages were published, in ms since 1970."""

    def take(self, frame: DataFrame, _epoch: int) -> None:
        """For `foreachBatch`."""
        table = frame.select(F.unix_millis("__publishTime").alias("ms"), "amount").toArrow()
        self.add(table["ms"].to_numpy(), table["amount"].to_numpy(), time.time() * 1000)

    def add(self, times_ms: Numbers, amounts: Numbers, now_ms: float) -> None:
        """Messages that were published at these times, and are here now."""
        if len(times_ms):
            self.seen += len(times_ms)
            self.amount += float(amounts.sum())
            self._batches.append((now_ms, times_ms))

    def figures(self, warmup_s: float) -> Figures:
        """Percentiles, and the rate between micro-batches, without the messages of the first
        seconds.
        """
        start_ms = min(times.min() for _, times in self._batches) + warmup_s * 1000
        ages = np.concatenate([now - times[times >= start_ms] for now, times in self._batches])
        later = [(now, len(times)) for now, times in self._batches if now >= start_ms]
        return {
            "ms_p50": float(np.percentile(ages, 50)),
            "ms_p99": float(np.percentile(ages, 99)),
            "ms_max": float(ages.max()),
            "micro_batches": len(later),
            "reached_per_s": sum(rows for _, rows in later[1:])
            / max(1e-3, (later[-1][0] - later[0][0]) / 1000),
        }


def stream(job: Job, folder: Path) -> Figures:
    """A query that has had its first messages, then the load; at its end a second query over the
    same messages.
    """
    count, ages = job.options.count, Ages()
    source = _source(job).load()
    query = (
        source.writeStream.foreachBatch(ages.take)
        .trigger(processingTime=TRIGGER)
        .option("checkpointLocation", f"{folder}/paced")
        .start()
    )
    try:
        _loaded(job, query, ages, FIRST_MESSAGES)
        ages.forget()
        before = job.engine.used()
        _loaded(job, query, ages, count)
        used = job.engine.used() - before
    finally:
        query.stop()
    found = ages.figures(job.options.warmup_s) | job.engine.memory()
    found["python_us"] = used.python_s * 1e6 / count
    found["engine_us"] = used.engine_s * 1e6 / count
    return found | _caught_up(job, folder)


def _source(job: Job) -> DataStreamReader:
    reader = job.spark.readStream.format("pulsar").schema(_COLUMNS)
    reader = reader.option("service.url", job.options.url).option("topic", job.options.topic)
    return reader.option("startingOffsets", "earliest")


def _loaded(job: Job, query: StreamingQuery, ages: Ages, count: int) -> None:
    """Until the query has seen so many messages more. Raises TimeoutError, ValueError, and what the
    query failed with.
    """
    options = job.options
    arguments = [f"--url={options.url}", f"--topic={options.topic}"]
    arguments += [f"--count={count}", f"--rate={options.rate}"]
    program = [sys.executable, "-m", "compat_tests.bench.spark_load", "paced", *arguments]
    load = subprocess.Popen(guarded(program), cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        _wait(job, query, ages, load, count)
    finally:
        load.kill()
        load.wait()
    if (ages.seen, ages.amount) != (count, amount_of_all(count)):
        raise ValueError(f"{ages.seen} messages of {count}, amount {ages.amount}")


def _wait(
    job: Job, query: StreamingQuery, ages: Ages, load: subprocess.Popen[bytes], count: int
) -> None:
    deadline = time.monotonic() + count / job.options.rate + PATIENCE_S
    told = time.monotonic()
    while ages.seen < count:
        if query.awaitTermination(1) or load.poll():
            raise ValueError(f"ended after {ages.seen} messages of {count}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{ages.seen} messages of {count}")
        if job.options.tell and time.monotonic() - told >= TOLD_EVERY_S:
            told = time.monotonic()
            progress = query.lastProgress
            durations = progress.durationMs if progress else {}
            figures = {"seen": ages.seen} | job.engine.memory() | durations
            text = ", ".join(f"{name} {value:.1f}" for name, value in figures.items())
            print(text, file=sys.stderr, flush=True)


def _caught_up(job: Job, folder: Path) -> Figures:
    """All that is there, in some micro-batches; the rate is that behind the first one, which has a
    query's beginning in it.
    """
    count = FIRST_MESSAGES + job.options.count
    rows: list[int] = []
    amounts: list[float] = []
    times: list[float] = []

    def take(frame: DataFrame, _epoch: int) -> None:
        row = frame.agg(F.count("*"), F.sum("amount")).collect()[0]
        rows.append(row[0])
        amounts.append(row[1] or 0.0)
        times.append(time.perf_counter())

    query = (
        _source(job)
        .option("maxMessagesPerTrigger", str(count // CATCH_UP_BATCHES))
        .load()
        .writeStream.foreachBatch(take)
        .trigger(availableNow=True)
        .option("checkpointLocation", f"{folder}/caught-up")
        .start()
    )
    query.awaitTermination()
    amount = amount_of_all(FIRST_MESSAGES) + amount_of_all(job.options.count)
    if (sum(rows), sum(amounts)) != (count, amount):
        raise ValueError(f"{rows} is not all of {count} messages")
    return {"catch_up_per_s": sum(rows[1:]) / (times[-1] - times[0])}
