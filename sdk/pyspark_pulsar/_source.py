"""The data source as Spark sees it (spec SP-01, SP-05, SP-06)."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class PulsarDataSource(DataSource):
    """`format("pulsar")`."""

    @classmethod
    def name(cls) -> str:
        """How queries call it."""
        return "pulsar"
