"""Trains the JVM whose classes are archived for Spark's drivers and executors (see
`apache.archives`): `prepare`, which runs this module as a program, as a process has one Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import functions

from compat_tests.apache import archives
from compat_tests.apache.jars import require_java
from compat_tests.processes import ROOT
from compat_tests.spark.session import ARCHIVE, LIGHT_JIT, spark_session

_TIMEOUT_S = 300.0


def prepare() -> None:
    """Once for each installation of Spark. Raises PeerMissing without Java."""
    require_java("java")
    archives.make(ARCHIVE, _trained)


def _trained(fresh: Path) -> str:
    command = [sys.executable, "-m", "compat_tests.spark.training", str(fresh)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_TIMEOUT_S:g} s"
    return "" if done.returncode == 0 else done.stderr


def main(fresh: Path) -> None:
    """What the tests do: functions in Python, SQL, a stream, files."""
    options = " ".join([LIGHT_JIT, *archives.recorded(fresh)])
    os.environ.pop("SPARK_SUBMIT_OPTS", None)
    with tempfile.TemporaryDirectory(prefix="geminga-archive-") as name:
        folder = Path(name)
        settings = {"spark.driver.extraJavaOptions": f"{options} -Dderby.system.home={folder}"}
        with spark_session(folder, settings=settings, stop_timeout_s=_TIMEOUT_S) as spark:
            more = functions.udf(lambda value: value + 1, "bigint")
            numbers = spark.range(1000).select(more("id").alias("x"))
            numbers.groupBy((functions.col("x") % 7).alias("k")).agg(functions.sum("x")).collect()
            numbers.write.parquet(str(folder / "files"))
            spark.read.parquet(str(folder / "files")).createOrReplaceTempView("t")
            spark.sql("select * from t join (select 1 as x) using (x) order by x").collect()
            stored = spark.readStream.schema(numbers.schema).parquet(str(folder / "files"))
            stream = stored.writeStream.format("memory").queryName("q").trigger(availableNow=True)
            query = stream.option("checkpointLocation", str(folder / "point")).start()
            assert query.awaitTermination(int(_TIMEOUT_S)), "the stream doesn't end"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
