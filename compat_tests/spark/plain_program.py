"""A driver as a user writes it, which says nothing of the workers' Python:
`python -m compat_tests.spark.plain_program FIRST FOLDER` prints what is read or raised. FIRST is
"connector" or "spark": which of them is imported first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Ask for a topic without a broker: whoever finds the connector is told of the option."""
    first, folder = sys.argv[1:]
    if first == "connector":
        import pyspark_pulsar
    from pyspark.sql import SparkSession

    from compat_tests.spark.session import spark_settings

    builder: Any = SparkSession.builder.master("local[1]")
    for key, value in spark_settings(Path(folder)).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    if first == "spark":
        import pyspark_pulsar  # noqa: F401
    try:
        spark.read.format("pulsar").option("topic", "t").load()
    except Exception as error:
        print(json.dumps(str(error)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
