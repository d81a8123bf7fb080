"""Who writes: names of producers and the beginning of their sequence ids (spec SP-06).

With deduplication the broker drops what a producer's name has sent before, by its sequence id. So
an attempt of a task has the name and the numbers of the attempt before it: the name says job or
query and the number of the partition, a sequence id (epoch, how many messages came before).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from pyspark import TaskContext

from pyspark_pulsar._options._write_options import EPOCH_MAX, WriteOptions
from pyspark_pulsar.errors import ConnectorError

ROW_BITS = 32
ROWS_MAX = 1 << ROW_BITS
"""Messages that one task may send to one partition of a topic, with deduplication."""
QUERY_ID = "sql.streaming.queryId"
"""Spark's name of the local property: the id that the checkpoint keeps."""
EPOCH = "streaming.sql.batchId"
"""Spark's name of the local property: the number of the micro-batch."""


@dataclass(frozen=True)
class Identity:
    """Of one attempt of one task. With deduplication all attempts have one `name`."""

    partition: int
    """Of the frame, as Spark counts."""
    epoch: int
    name: str | None
    """Of its producers; None: the broker gives them one."""
    is_lasting: bool
    """Whether sequence ids count."""

    @property
    def first_sequence_id(self) -> int:
        """Of the first message to each partition of a topic."""
        return self.epoch << ROW_BITS

    def among(self, partitions: int) -> Identity:
        """The same for a topic of so many partitions. Once it has more, rows go to others and
        numbers mean other rows: by the old name the broker would drop rows that it doesn't have.
        """
        if not self.is_lasting or partitions == 1:
            return self
        return replace(self, name=f"{self.name}-of-{partitions}")


def identity_of(options: WriteOptions, job_id: str | None) -> Identity:
    """Of the task that runs here. `job_id` is that of a batch write, None in a stream. Raises
    ConnectorError outside of a task, and if Spark doesn't tell which micro-batch it is.
    """
    context = TaskContext.get()
    if context is None:
        raise ConnectorError("rows can be written in a task of Spark only")
    partition = context.partitionId()
    prefix = options.producer_name or "spark"
    if not options.deduplication:
        name = f"{prefix}-{partition}-{uuid.uuid4().hex}" if options.producer_name else None
        return Identity(partition, 0, name, is_lasting=False)
    if job_id is None:
        query = context.getLocalProperty(QUERY_ID)
        epoch = context.getLocalProperty(EPOCH)
        if not query or epoch is None or not epoch.isdecimal():
            raise ConnectorError(
                "option deduplication: Spark tells its tasks neither query nor micro-batch; it "
                "works with micro-batches, not with a continuous trigger"
            )
        return _lasting(partition, int(epoch), f"{prefix}-{query}")
    if options.epoch is not None:
        return _lasting(partition, options.epoch, prefix)
    return _lasting(partition, 0, f"{prefix}-{job_id}")


def _lasting(partition: int, epoch: int, name: str) -> Identity:
    if epoch > EPOCH_MAX:
        raise ConnectorError(f"option deduplication: micro-batch {epoch} is above {EPOCH_MAX}")
    return Identity(partition, epoch, f"{name}-{partition}", is_lasting=True)
