"""A driver whose workers run another Python, without the connector:
`python -m compat_tests.spark.lost_program PYTHON FOLDER` prints what its user is told.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from compat_tests.spark.session import spark_settings
from pyspark_pulsar import DefaultSource


def main() -> None:
    """Ask for a topic as the connector is found, and as it is registered."""
    os.environ["PYSPARK_PYTHON"], folder = sys.argv[1:]
    # Where it is set, sources are looked for with it.
    os.environ.pop("PYSPARK_DRIVER_PYTHON", None)
    builder: Any = SparkSession.builder.master("local[1]")
    for key, value in spark_settings(Path(folder)).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    for _ in range(2):
        try:
            spark.read.format("pulsar").option("topic", "t").load()
        except Exception as error:
            print(json.dumps(str(error)), flush=True)
        spark.dataSource.register(DefaultSource)
    spark.stop()


if __name__ == "__main__":
    main()
