"""Queries over streams as the tests run them: into files that Spark writes once for each
micro-batch, or into the test's own memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from compat_tests.spark.topics import WAIT_S
from pyspark_pulsar._spark_api import HAS_READ_LIMITS

QUERY_S = 200
NOT_CONNECTED = "Python worker failed to connect back"
"""Spark gives a source's Python process ten seconds to start; no setting says so. On a busy machine
they may not do.
"""
STARTS = 5
LOOK_S = 1
"""Spark tells nobody when a query has begun. Whole seconds only."""


def start(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query whose source is ours; again, if its Python process started too late."""
    for _ in range(STARTS):
        query = writer.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            with suppress(StreamingQueryException):
                query.awaitTermination(LOOK_S)
        error = query.exception()
        if error is None or NOT_CONNECTED not in str(error):
            break
    return query


def drain(
    frame: DataFrame, folder: Path, *, checkpoint: str = "checkpoint", limited: bool = False
) -> StreamingQuery:
    """Run the query until it has read what is there now, into `folder/out`. Raises
    StreamingQueryException.
    """
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return finish(writer.option("checkpointLocation", str(folder / checkpoint)), limited=limited)


def finish(writer: DataStreamWriter, *, limited: bool = False) -> StreamingQuery:
    """Run a query until it has read what is there now. Before PySpark 4.2 available-now has one
    micro-batch only, so that one that is `limited` by options goes on until nothing is left.
    """
    if limited and not HAS_READ_LIMITS:
        query = start(writer)
        query.processAllAvailable()
        query.stop()
    else:
        query = start(writer.trigger(availableNow=True))
        assert query.awaitTermination(QUERY_S), "the query doesn't end"
    return query


def written(spark: SparkSession, folder: Path) -> list[str]:
    """The values in `folder/out`, as texts, sorted as numbers are."""
    rows = spark.read.parquet(str(folder / "out")).selectExpr("string(value) as value").collect()
    return sorted((row.value for row in rows), key=lambda value: (len(value), value))


def texts(first: int, stop: int) -> list[str]:
    """What `written` gives of `numbers`."""
    return [str(n) for n in range(first, stop)]


def numbers(first: int, stop: int) -> list[bytes]:
    """Messages."""
    return [b"%d" % n for n in range(first, stop)]


class Seen:
    """The values of a running query, by micro-batch."""

    def __init__(self) -> None:
        self._batches: dict[int, list[str]] = {}
        self._changed = threading.Condition()
        self.query: StreamingQuery | None = None

    def take(self, frame: DataFrame, number: int) -> None:
        """For `foreachBatch`; a micro-batch that is done again takes the place of the first."""
        rows = [row.value for row in frame.selectExpr("string(value) as value").collect()]
        with self._changed:
            self._batches[number] = rows
            self._changed.notify_all()

    @property
    def values(self) -> list[str]:
        """All of them, sorted as numbers are."""
        found = [value for rows in list(self._batches.values()) for value in rows]
        return sorted(found, key=lambda value: (len(value), value))

    def wait_for(self, count: int) -> list[str]:
        """Until there are so many. Raises AssertionError if they don't come."""

        def is_done() -> bool:
            query = self.query
            ended = query is not None and not query.isActive
            return ended or len(self.values) >= count

        until_s = time.monotonic() + 4 * WAIT_S
        with self._changed:
            while time.monotonic() < until_s and not is_done():
                # Looks whether the query has failed meanwhile.
                self._changed.wait(1)
        assert len(self.values) >= count, (
            self.values,
            self.query and self.query.exception(),
        )
        return self.values


@contextmanager
def running(frame: DataFrame, checkpoint: Path, seen: Seen | None = None) -> Iterator[Seen]:
    """The query runs until the block ends. What an earlier run has `seen` may be gone on with."""
    seen = seen or Seen()
    writer: Any = frame.writeStream.foreachBatch(seen.take)
    writer = writer.option("checkpointLocation", str(checkpoint))
    seen.query = start(writer.trigger(processingTime="200 milliseconds"))
    try:
        yield seen
    finally:
        seen.query.stop()
