"""The stream reader as Spark calls it (spec SP-05)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_pulsar._options import ReadOptions
from pyspark_pulsar._positions import TopicRange
from pyspark_pulsar._scan._task import ScanPlan, scan
from pyspark_pulsar._spark_api import (
    HAS_READ_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark_pulsar._stream._offsets import Offsets

if TYPE_CHECKING:
    from pyspark_pulsar._stream._planner import StreamPlanner

logger = logging.getLogger("pyspark_pulsar")


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("pulsar")`.

    Spark keeps one in a separate process beside the driver for planning, and sends copies of
    another to the tasks, which only call `read`.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Connects only when Spark first needs it."""
        self._plan = ScanPlan(options, schema)
        self._planner: StreamPlanner | None = None

    @property
    def _planning(self) -> StreamPlanner:
        if self._planner is None:
            # Not needed in tasks.
            from pyspark_pulsar._stream._planner import StreamPlanner

            options = self._plan.options
            self._planner = StreamPlanner(options)
            limit = options.max_messages_per_trigger or options.max_bytes_per_trigger
            if limit and not HAS_READ_LIMITS:
                logger.warning(
                    "before PySpark 4.2 a query with availableNow ends after one micro-batch, which"
                    " has no more than maxMessagesPerTrigger and maxBytesPerTrigger"
                )
        return self._planner

    def initialOffset(self) -> dict[str, object]:
        """The start of a new query. Raises InvalidOption, TopicMissing, OffsetOutOfRange,
        GemingaError.
        """
        return self._planning.initial().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the options. Several kinds apply together; Spark gets one."""
        options = self._plan.options
        if options.max_messages_per_trigger is not None:
            return ReadMaxRows(options.max_messages_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_messages_per_trigger is not None:
            return ReadMinRows(options.min_messages_per_trigger)
        return ReadAllAvailable()

    def latestOffset(
        self, start: Mapping[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """The end of the next micro-batch. PySpark before 4.2 passes no arguments; later versions
        may ask for everything, whatever the options' limits are.

        Raises DataLoss, GemingaError if the broker is away for longer than `pollTimeoutMs`.
        """
        began = None if start is None else Offsets.parse(start)
        limited = limit is None or not isinstance(limit, ReadAllAvailable)
        return self._planning.latest(began, limited=limited).as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Set the query's end to the current ends of the topics."""
        self._planning.prepare_available_now()

    def reportLatestOffset(self) -> dict[str, object] | None:
        """The last positions of the topics when the last micro-batch was planned, and `lag`, how
        far behind its end was. Spark shows it as `latestOffset` in the query's progress.
        """
        return self._planning.report()

    def stop(self) -> None:
        """The query ended. Not every version of PySpark calls it."""
        if self._planner is not None:
            self._planner.close()

    def partitions(
        self, start: Mapping[str, object], end: Mapping[str, object]
    ) -> Sequence[InputPartition]:
        """The parts of a micro-batch; always the same messages."""
        ranges = self._planning.ranges(Offsets.parse(start), Offsets.parse(end))
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the messages of one part as Arrow record batches. Raises as `scan`."""
        return scan(cast("TopicRange", partition.value), self._plan)

    def commit(self, end: Mapping[str, object]) -> None:
        """Everything up to `end` is done: move the subscription."""
        self._planning.committed(Offsets.parse(end))
