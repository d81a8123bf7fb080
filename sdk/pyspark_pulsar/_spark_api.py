"""Differences between PySpark's versions, detected by feature, not by number: filters and an Arrow
writer of streams came with 4.1, admission control with 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import datasource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS: bool
else:
    # If missing, streams are written row by row.
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", None)
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )

        HAS_READ_LIMITS = True
    except ImportError:
        HAS_READ_LIMITS = False

        @dataclass
        class ReadLimit:
            """PySpark 4.0 and 4.1 pass no limits."""

            amount: int = 0

        class ReadAllAvailable(ReadLimit):
            """No limit."""

        class ReadMaxRows(ReadLimit):
            """At most this many messages."""

        class ReadMaxBytes(ReadLimit):
            """At most this many bytes."""

        class ReadMinRows(ReadLimit):
            """At least this many messages."""

        SupportsTriggerAvailableNow = object

HAS_FILTERS = hasattr(datasource.DataSourceReader, "pushFilters")
"""Whether filters can be pushed down."""

__all__ = [
    "DataSourceStreamArrowWriter",
    "HAS_FILTERS",
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]
