"""Rows to batches, for PySpark 4.0's writer of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pyarrow as pa
from pyspark.sql.types import Row, StructType

ROWS_MAX = 1000
"""Rows of one batch: these wait for each other."""


def batches_of(schema: StructType, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """The rows as PySpark itself makes Arrow of them."""
    # Only where rows come at all: it is large.
    from pyspark.sql.conversion import LocalDataToArrowConversion

    convert: Callable[[list[Row], StructType, bool], pa.Table] = LocalDataToArrowConversion.convert
    left = iter(rows)
    while chunk := list(islice(left, ROWS_MAX)):
        yield from convert(chunk, schema, False).to_batches()
