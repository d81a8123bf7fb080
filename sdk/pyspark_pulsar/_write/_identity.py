"""Names of producers and the start of their sequence ids (spec SP-06).

With deduplication the broker drops messages that a producer name has sent before, by sequence id.
So each attempt of a task uses the same name and ids: the name has the job or query and the
partition's number, a sequence id is (epoch, number of messages before).
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
"""Spark's local property with the query's id, which the checkpoint keeps."""
EPOCH = "streaming.sql.batchId"
"""Spark's local property with the number of the micro-batch."""


@dataclass(frozen=True)
class Identity:
    """The identity of one attempt of one task. With deduplication all attempts have the same
    `name`.
    """

    partition: int
    """Spark's number of the frame's partition."""
    epoch: int
    name: str | None
    """The producers' name; None: the broker chooses one."""
    is_lasting: bool
    """Whether sequence ids count."""

    @property
    def first_sequence_id(self) -> int:
        """The sequence id of the first message to each partition of a topic."""
        return self.epoch << ROW_BITS

    def among(self, partitions: int) -> Identity:
        """The identity for a topic with this many partitions. When their number changes, rows go to
        other partitions and ids mean other rows: with the old name the broker would drop rows that
        it doesn't have.
        """
        if not self.is_lasting or partitions == 1:
            return self
        return replace(self, name=f"{self.name}-of-{partitions}")


def identity_of(options: WriteOptions, job_id: str | None) -> Identity:
    """The identity of the running task. `job_id` is that of a batch write, None in a stream. Raises
    ConnectorError outside of a task, and if Spark doesn't provide the micro-batch.
    """
    context = TaskContext.get()
    if context is None:
        raise ConnectorError("rows can be written only in a task of Spark")
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
                "option deduplication: Spark gives this task no query and no micro-batch; use a "
                "trigger with micro-batches, not a continuous one"
            )
        return _lasting(partition, int(epoch), f"{prefix}-{query}")
    if options.epoch is not None:
        return _lasting(partition, options.epoch, prefix)
    return _lasting(partition, 0, f"{prefix}-{job_id}")


def _lasting(partition: int, epoch: int, name: str) -> Identity:
    if epoch > EPOCH_MAX:
        raise ConnectorError(f"option deduplication: micro-batch {epoch} is above {EPOCH_MAX}")
    return Identity(partition, epoch, f"{name}-{partition}", is_lasting=True)
