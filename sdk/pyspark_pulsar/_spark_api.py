"""What PySpark's versions have and don't have, found by looking for it, not by their numbers:
filters and an Arrow writer of streams came with 4.1, admission control with 4.2.
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
    # Without it streams are written row by row.
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
            """PySpark 4.0 and 4.1 ask for no limits, and hand in none."""

            amount: int = 0

        class ReadAllAvailable(ReadLimit):
            """No limit."""

        class ReadMaxRows(ReadLimit):
            """So many messages at most."""

        class ReadMaxBytes(ReadLimit):
            """So many bytes at most."""

        class ReadMinRows(ReadLimit):
            """So many messages at least."""

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
