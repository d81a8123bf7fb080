"""Spark reads and writes Pulsar topics: `spark.read.format("pulsar")` on PySpark 4, without a JAR
(spec SP).

PySpark imports every top-level package named `pyspark_*` and registers its `DefaultSource`, so it
only has to be installed. A program that imports it before starting Spark gets workers of its own
Python (`_workers.py`). The import is light: Spark's workers do it for every query, also for those
without Pulsar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pulsar._workers import ensure_workers_python

if TYPE_CHECKING:
    from pyspark_pulsar._source import PulsarDataSource as DefaultSource
    from pyspark_pulsar._source import PulsarDataSource as PulsarDataSource
    from pyspark_pulsar.errors import (
        ConnectorError,
        DataLoss,
        InvalidOption,
        MalformedMessage,
        OffsetOutOfRange,
        SchemaMismatch,
        TopicMissing,
        WriteFailed,
    )

_ERRORS = (
    "ConnectorError",
    "DataLoss",
    "InvalidOption",
    "MalformedMessage",
    "OffsetOutOfRange",
    "SchemaMismatch",
    "TopicMissing",
    "WriteFailed",
)
__all__ = [
    "ConnectorError",
    "DataLoss",
    "DefaultSource",
    "InvalidOption",
    "MalformedMessage",
    "OffsetOutOfRange",
    "PulsarDataSource",
    "SchemaMismatch",
    "TopicMissing",
    "WriteFailed",
]

ensure_workers_python()


def __getattr__(name: str) -> object:
    """Import names lazily."""
    if name in ("DefaultSource", "PulsarDataSource"):
        from pyspark_pulsar._source import PulsarDataSource

        return PulsarDataSource
    if name in _ERRORS:
        from pyspark_pulsar import errors

        found: object = getattr(errors, name)
        return found
    raise AttributeError(f"module 'pyspark_pulsar' has no attribute {name!r}")
