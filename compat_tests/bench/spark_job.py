"""Spark under load: ``python -m compat_tests.bench.spark_job MODE --url URL --topic TOPIC ...``.

Modes: ``read`` (batch reads of a topic, and of the same records as Parquet), ``write`` (records
from Parquet to topics), ``stream`` (a steady rate through a query with a trigger of one second,
then the same messages as fast as they come). Each is one Spark in local mode on two cores, with the
connector's defaults. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from compat_tests.bench.spark_processes import Engine
from compat_tests.bench.spark_stream import stream
from compat_tests.bench.spark_values import amount_of_all
from compat_tests.spark.session import spark_session

Figures = dict[str, float]
ROUNDS = 3
"""Of each query the median counts."""
METADATA = "__partition int"
"""A schema that leaves payloads alone."""


class Job:
    """A session, its processes, and what is read."""

    def __init__(self, spark: SparkSession, engine: Engine, options: argparse.Namespace) -> None:
        self.spark = spark
        self.engine = engine
        self.options = options
        self.began = time.perf_counter()

    def topic(self, schema: StructType | str | None = None) -> DataFrame:
        """The topic with these columns, or those that it has by itself."""
        reader = self.spark.read.format("pulsar").option("service.url", self.options.url)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.option("topic", self.options.topic).load()

    def values(self) -> StructType:
        """The columns of the topic's schema, without those about messages."""
        every = self.topic().schema
        return StructType([field for field in every if not field.name.startswith("__")])

    def timed(self, name: str, work: Callable[[], object], *, rounds: int = ROUNDS) -> Figures:
        """Wall time and microseconds of processor time a message, the medians of some rounds."""
        times: list[tuple[float, float, float]] = []
        for _ in range(rounds):
            before, began = self.engine.used(), time.perf_counter()
            work()
            seconds, used = time.perf_counter() - began, self.engine.used() - before
            times.append((seconds, used.python_s, used.engine_s))
        seconds, python_s, engine_s = map(statistics.median, zip(*times, strict=True))
        count = self.options.count
        return {
            f"{name}_s": seconds,
            f"{name}_per_s": count / seconds,
            f"{name}_python_us": python_s * 1e6 / count,
            f"{name}_engine_us": engine_s * 1e6 / count,
        }


def counted(frame: DataFrame, count: int) -> None:
    """A count that needs values. Raises ValueError if they aren't what was sent."""
    row = _only(frame.agg(F.count("*"), F.sum("amount"), F.sum(F.length("comment"))))
    if (row[0], row[1]) != (count, amount_of_all(count)):
        raise ValueError(f"{row[0]} messages of {count}, amount {row[1]}")


def grouped(frame: DataFrame, count: int) -> None:
    """Sums by a column of twenty values. Raises ValueError."""
    by_country = frame.groupBy("country").agg(F.count("*"), F.sum("amount"), F.avg("quantity"))
    rows = by_country.collect()
    if sum(row[1] for row in rows) != count:
        raise ValueError(f"not {count} messages in {rows}")


def numbered(frame: DataFrame, count: int) -> None:
    """A count without values. Raises ValueError."""
    found = frame.count()
    if found != count:
        raise ValueError(f"{found} messages of {count}")


def _only(frame: DataFrame) -> Row:
    return frame.collect()[0]


def read(job: Job, folder: Path) -> Figures:
    """Counts and groups over the topic and over Parquet, each after one that isn't measured."""
    count = job.options.count
    values = job.values()
    found = job.timed("first", lambda: counted(job.topic(values), count), rounds=1)
    grouped(job.topic(values), count)
    found |= job.timed("count", lambda: counted(job.topic(values), count))
    found |= job.timed("group", lambda: grouped(job.topic(values), count))
    found |= job.timed("metadata", lambda: numbered(job.topic(METADATA), count))
    counted(job.topic(), count)
    found |= job.timed("default", lambda: counted(job.topic(), count), rounds=1)
    found |= job.engine.memory()
    path = f"{folder}/sales"
    job.topic(values).write.parquet(path)
    frame = job.spark.read.parquet(path)
    counted(frame, count)
    grouped(frame, count)
    found |= job.timed("parquet_count", lambda: counted(frame, count))
    return found | job.timed("parquet_group", lambda: grouped(frame, count))


def write(job: Job, folder: Path) -> Figures:
    """Records from Parquet to a topic without partitions, and to one with: first a tenth that
    isn't measured, then some rounds.
    """
    count = job.options.count
    path = f"{folder}/sales"
    _made(job.spark, count).write.parquet(path)
    frame = job.spark.read.parquet(path)
    found = _written(job, "one", frame)
    job.options.topic = job.options.partitioned
    return found | _written(job, "four", frame) | job.engine.memory()


def _written(job: Job, name: str, frame: DataFrame) -> Figures:
    def send(rows: DataFrame) -> None:
        sink = rows.write.format("pulsar").mode("append").option("service.url", job.options.url)
        sink.option("topic", job.options.topic).save()

    count = job.options.count
    send(frame.limit(count // 10))
    found = job.timed(name, lambda: send(frame))
    numbered(job.topic(METADATA), count // 10 + ROUNDS * count)
    return found


def _made(spark: SparkSession, count: int) -> DataFrame:
    """As `spark_values.sales`, but for the comments, which repeat themselves thrice."""
    texts = {
        "id": "7000000000 + id",
        "amount": "id % 4000 * 0.25d",
        "country": "concat('C', chr(65 + id % 20))",
        "customer": "concat('customer-', lpad(string(id % 10000), 5, '0'))",
        "quantity": "id % 60",
        "comment": "left(repeat(sha2(string(id), 256), 3), 166)",
    }
    columns = [F.expr(text).alias(name) for name, text in texts.items()]
    return spark.range(0, count, 1, 2).select(*columns)


MODES: Mapping[str, Callable[[Job, Path], Figures]] = {
    "read": read,
    "write": write,
    "stream": stream,
}


def main() -> None:
    """Run one mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=list(MODES))
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitioned", default="", help="a second topic, to write to")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--warmup-s", type=float, default=10.0)
    parser.add_argument("--tell", type=int, default=0, help="tell the memory as time passes")
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="spark-") as name:
        folder = Path(name)
        # Compiled as Spark would by itself, not as little as the tests have it.
        java = f"-Djava.net.preferIPv4Stack=true -Dderby.system.home={folder}/derby"
        settings = {"spark.driver.extraJavaOptions": java}
        with spark_session(folder, settings=settings) as spark, Engine() as engine:
            figures = {"session_s": time.perf_counter() - began}
            figures |= MODES[options.mode](Job(spark, engine, options), folder)
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
