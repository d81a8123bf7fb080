"""The batch reader as Spark calls it (spec SP-01, SP-03, SP-04)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_pulsar._clients import client_for
from pyspark_pulsar._options import ReadOptions
from pyspark_pulsar._plan import _topics
from pyspark_pulsar._plan._filters import Narrowing
from pyspark_pulsar._plan._ranges import RangeResolver
from pyspark_pulsar._plan._schemas import checked_options
from pyspark_pulsar._plan._tasks import narrowed, split_ranges
from pyspark_pulsar._positions import TopicRange
from pyspark_pulsar._rest import check_admin
from pyspark_pulsar._spark_api import HAS_FILTERS
from pyspark_pulsar.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

logger = logging.getLogger("pyspark_pulsar")


class PulsarBatchReader(DataSourceReader):
    """One read. Created where Spark plans it, and pickled to the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing: Narrowing | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges that tasks read. Raises TopicMissing, SchemaMismatch, OffsetOutOfRange,
        InvalidOption, GemingaError.
        """
        options, narrowing = self._options, self._narrowing
        client = client_for(options.client)
        parts = _topics.expand(client, options.topics)
        check_admin(options.client, parts)
        self._options = options = checked_options(client, options, parts, self._schema)
        if narrowing is not None:
            parts = [each for each in parts if narrowing.allows(each.topic, each.partition)]
        ranges = RangeResolver(client, options).ranges(parts)
        if narrowing is not None:
            ranges = narrowed(client, options, narrowing, ranges)
        found = split_ranges(client, options, ranges)
        logger.info("reading %d topics in %d tasks", len(parts), len(found))
        return [InputPartition(each) for each in found]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read one range in a task."""
        from pyspark_pulsar._scan._task import ScanPlan, scan

        # If there are no parts, Spark still reads one: None, from PySpark 4.2 on a part with None.
        if partition is not None and isinstance(partition.value, TopicRange):
            plan = ScanPlan(self._options, self._schema, self._narrowing)
            yield from scan(partition.value, plan)


class NarrowedBatchReader(PulsarBatchReader):
    """A reader that takes filters. If `spark.sql.python.filterPushdown.enabled` is off (Spark's
    default), each read with it fails.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Narrow the read; returns the filters that Spark must still apply."""
        from pyspark_pulsar._plan._pushed import narrow

        self._narrowing, left = narrow(filters)
        return iter(left)


def batch_reader(options: ReadOptions, schema: StructType) -> PulsarBatchReader:
    """The reader for a query. Raises InvalidOption if this PySpark has no push-down."""
    if not options.push_down:
        return PulsarBatchReader(options, schema)
    if not HAS_FILTERS:
        raise InvalidOption("pushdown", "needs PySpark 4.1 or later")
    return NarrowedBatchReader(options, schema)
