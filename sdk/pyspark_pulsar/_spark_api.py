"""PySpark's newer streaming names, where it has them: admission control came with 4.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """PySpark 4.0 and 4.1 ask for no limits, and hand in none."""

            def __init__(self, amount: int = 0) -> None:
                self.amount = amount

        ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadMinRows = ReadLimit
        SupportsTriggerAvailableNow = object

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]
