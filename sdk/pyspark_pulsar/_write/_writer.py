"""Writers as Spark calls them (spec SP-06)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.types import Row, StructType

from pyspark_pulsar._clients import client_for
from pyspark_pulsar._encode import Frame
from pyspark_pulsar._options._write_options import WriteOptions
from pyspark_pulsar._spark_api import DataSourceStreamArrowWriter
from pyspark_pulsar._write._check import check_topic, planned
from pyspark_pulsar._write._identity import identity_of
from pyspark_pulsar._write._task import Task, Written
from pyspark_pulsar.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage

logger = logging.getLogger("pyspark_pulsar")

ROWS_MAX = 1000
"""Rows of one batch on PySpark 4.0."""


def make_writer(schema: StructType, options: WriteOptions, *, overwrite: bool) -> PulsarWriter:
    """The writer of `df.write`, after the driver's checks. Raises ConnectorError."""
    if overwrite:
        raise InvalidOption("mode", "must be append: messages of a topic can't be replaced")
    frame = planned(schema, options)
    check_topic(frame, options)
    return PulsarWriter(frame, options)


def make_stream_writer(
    schema: StructType, options: WriteOptions, *, overwrite: bool
) -> DataSourceStreamWriter:
    """The writer of `df.writeStream`. Spark creates one to plan a micro-batch, and another to
    commit it after all rows are written. A broker that fails then must not make Spark write the
    rows again, so checks with the broker are left to the tasks. Raises ConnectorError.
    """
    if overwrite:
        raise InvalidOption(
            "outputMode", "must be append or update: messages of a topic can't be replaced"
        )
    frame = planned(schema, options)
    if DataSourceStreamArrowWriter is None:
        return PulsarRowStreamWriter(frame, options, schema)
    return PulsarStreamWriter(frame, options)


class _Writer:
    """The common part of all writers. A batch has no `batchId`."""

    def __init__(self, frame: Frame, options: WriteOptions) -> None:
        self._frame = frame
        self._options = options

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        """All tasks (of the micro-batch) are done."""
        logger.info("%s: %d messages written", self._topics, _rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        """A task failed finally: written messages remain, and a micro-batch may run again."""
        logger.warning(
            "%s: the write failed; at least %d messages were written and remain",
            self._topics,
            _rows(messages),
        )

    @property
    def _topics(self) -> str:
        return self._options.topic or "topics of __topic"


class PulsarWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame in a batch."""

    def __init__(self, frame: Frame, options: WriteOptions) -> None:
        super().__init__(frame, options)
        self._job_id = uuid.uuid4().hex
        """Created on the driver: all attempts of all tasks share it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: write its rows, and wait for all receipts. Raises ConnectorError."""
        return _write(self._frame, self._options, iterator, self._job_id)


class PulsarRowStreamWriter(_Writer, DataSourceStreamWriter):
    """Writes a stream on PySpark 4.0, which passes rows."""

    def __init__(self, frame: Frame, options: WriteOptions, schema: StructType) -> None:
        super().__init__(frame, options)
        self._schema = schema

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """In a task: write its rows, and wait for all receipts. Raises ConnectorError."""
        return _write(self._frame, self._options, batches_of(self._schema, iterator), None)


if TYPE_CHECKING or DataSourceStreamArrowWriter is not None:

    class PulsarStreamWriter(_Writer, DataSourceStreamArrowWriter):
        """Writes a stream."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """In a task: write its rows, and wait for all receipts. Raises ConnectorError."""
            return _write(self._frame, self._options, iterator, None)


def batches_of(schema: StructType, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """The rows as Arrow batches, converted by PySpark."""
    # Imported only if needed: it is large.
    from pyspark.sql.conversion import LocalDataToArrowConversion

    convert: Callable[[list[Row], StructType, bool], pa.Table] = LocalDataToArrowConversion.convert
    left = iter(rows)
    while chunk := list(islice(left, ROWS_MAX)):
        yield from convert(chunk, schema, False).to_batches()


def _write(
    frame: Frame, options: WriteOptions, batches: Iterable[pa.RecordBatch], job_id: str | None
) -> Written:
    who = identity_of(options, job_id)
    return Task(client_for(options.client), frame, options, who).run(batches)


def _rows(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(each.rows for each in messages if isinstance(each, Written))
