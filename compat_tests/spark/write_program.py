"""Drivers that write to a topic and are made to fail: `python -m compat_tests.spark.write_program`.

retry URL TOPIC FOLDER DEDUPLICATION   a batch write whose first attempt fails in the middle
stream URL TOPIC FOLDER BLOCK          a stream of the text files in FOLDER/in; with BLOCK=yes its
                                       second micro-batch stops half-way, for ever
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession, functions

from compat_tests.spark.session import spark_session

ROWS = 6000
"""Of the batch write, in two tasks."""
ROWS_PER_FILE = 3000
FILES = 4
FILL = "x" * 300
"""Makes rows large enough to leave the pipes between Spark's processes."""


def failing(number: int) -> str:
    """The text of a row; the first attempt of each task fails after two thirds of its rows."""
    context = TaskContext.get()
    assert context is not None
    if not context.attemptNumber() and number % (ROWS // 2) > ROWS // 3:
        raise RuntimeError("this attempt fails in the middle")
    return f"{number} {FILL}"


def blocking(text: str) -> str:
    """The row; in the second micro-batch half of them, and then nothing more happens."""
    context = TaskContext.get()
    assert context is not None
    is_second = context.getLocalProperty("streaming.sql.batchId") == "1"
    if is_second and int(text.split()[0]) % ROWS_PER_FILE > ROWS_PER_FILE // 2:
        threading.Event().wait()
    return text


def retry(spark: SparkSession, url: str, topic: str, deduplication: str) -> None:
    """The batch write."""
    value = functions.udf(failing, "string")("id").alias("value")
    frame = spark.range(0, ROWS, 1, 2).select(value)
    writer = frame.write.format("pulsar").mode("append").option("service.url", url)
    writer.options(topic=topic, deduplication=deduplication).save()


def stream(spark: SparkSession, url: str, topic: str, folder: Path, block_it: str) -> None:
    """The stream, a file each micro-batch, until all are done."""
    frame = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "in"))
    if block_it == "yes":
        frame = frame.select(functions.udf(blocking, "string")("value").alias("value"))
    writer = frame.writeStream.format("pulsar").option("service.url", url)
    writer = writer.option("topic", topic).option("deduplication", "true")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    """One of them."""
    what, url, topic, place, choice = sys.argv[1:]
    folder = Path(place)
    settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": "500"}
    with spark_session(folder, master="local[2,3]", settings=settings) as spark:
        if what == "retry":
            retry(spark, url, topic, choice)
        else:
            stream(spark, url, topic, folder, choice)
    print(json.dumps({"done": True}))


if __name__ == "__main__":
    main()
