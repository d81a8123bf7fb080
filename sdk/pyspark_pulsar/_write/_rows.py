"""Rows to batches, for PySpark 4.0's writer of streams."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pyarrow as pa
from pyspark.sql.types import Row, StructType

ROWS_MAX = 10_000
"""Rows of one batch."""
_HOMES = ("pyspark.sql.conversion", "pyspark.sql.connect.conversion")
"""Where PySpark has its conversion, newest first."""


def batches_of(schema: StructType, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """The rows as PySpark itself makes Arrow of them."""
    convert = _conversion()
    left = iter(rows)
    while chunk := list(islice(left, ROWS_MAX)):
        table: pa.Table = convert(chunk, schema, False)
        yield from table.to_batches()


def _conversion() -> Callable[[list[Row], StructType, bool], pa.Table]:
    for home in _HOMES:
        try:
            home_of_it = importlib.import_module(home).LocalDataToArrowConversion
        except (ImportError, AttributeError):
            continue
        convert: Callable[[list[Row], StructType, bool], pa.Table] = home_of_it.convert
        return convert
    raise ImportError(f"this PySpark has LocalDataToArrowConversion in none of {_HOMES}")
