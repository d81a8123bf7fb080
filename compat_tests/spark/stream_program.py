"""A driver that reads a stream and may be killed: `python -m compat_tests.spark.stream_program URL
TOPIC FOLDER RATE`.

It reads the topic from its beginning into `FOLDER/out`, once for each micro-batch of 300 messages,
each task at most RATE messages a second (0: as fast as it can), until it has what was there when it
began. It prints a line with the process of Spark's engine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from compat_tests.spark.session import spark_session
from compat_tests.spark.streams import drain

BATCH = 300


def main() -> None:
    """Reads."""
    url, topic, place, rate = sys.argv[1:]
    folder = Path(place)
    # So that it tells of tasks that were lost.
    settings = {"spark.log.level": "WARN"}
    with spark_session(folder, master="local[2,4]", settings=settings) as spark:
        gateway: Any = SparkContext._gateway
        print(json.dumps({"engine": gateway.proc.pid}), flush=True)
        reader = spark.readStream.format("pulsar").option("service.url", url)
        reader = reader.options(topic=topic, startingOffsets="earliest")
        reader = reader.option("maxMessagesPerTrigger", str(BATCH))
        if rate != "0":
            # Few at once, so that a task really is in the middle for a while.
            reader = reader.option("maxMessagesPerSecond", rate).option("maxRowsPerBatch", "10")
        drain(reader.load(), folder, limited=True)
    print(json.dumps({"done": True}))


if __name__ == "__main__":
    main()
