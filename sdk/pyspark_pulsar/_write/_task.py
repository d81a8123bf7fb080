"""One task: writes batches of rows to the partitions of topics (spec SP-06)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

import geminga
from geminga.schema import SchemaInfo
from pyspark_pulsar._encode import Encoder, Frame, Messages
from pyspark_pulsar._options._write_options import WriteOptions
from pyspark_pulsar._write._faults import explained
from pyspark_pulsar._write._identity import Identity
from pyspark_pulsar._write._partition_writer import MessageOptions, PartitionWriter
from pyspark_pulsar._write._routing import Router

if TYPE_CHECKING:
    from geminga.blocking import Client

PRODUCERS_MAX = 500
"""Producers that a task keeps open; the least recently used one is closed."""


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote."""

    task: int
    epoch: int
    rows: int
    partitions: int
    """The number of partitions of topics written to."""


class _Writers:
    """The writers of all partitions that the task has sent to; closed ones keep their counts and
    reopen when used.
    """

    def __init__(self, client: Client, info: SchemaInfo, options: WriteOptions, who: Identity):
        self._client = client
        self._info = info
        self._options = options
        self._who = who
        self._all: dict[str, PartitionWriter] = {}
        self._open: OrderedDict[str, PartitionWriter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def send(
        self,
        topic: str,
        of: int,
        payloads: Sequence[bytes | None],
        told: Iterator[MessageOptions] | None,
    ) -> None:
        """Send messages to one partition of `of`. Raises ConnectorError."""
        writer = self._all.get(topic)
        if writer is None:
            who = self._who.among(of)
            writer = PartitionWriter(self._client, topic, self._info, self._options, who)
            self._all[topic] = writer
        self._open[topic] = writer
        self._open.move_to_end(topic)
        writer.send(payloads, told)
        if len(self._open) > PRODUCERS_MAX:
            self._open.popitem(last=False)[1].finish()

    def finish(self) -> None:
        """Wait until each message has its receipt. Raises ConnectorError if one fails."""
        for each in self._open.values():
            each.finish()

    def abandon(self) -> None:
        """Close all without waiting for receipts."""
        for each in self._open.values():
            each.abandon()


class _Topic:
    """The partitions of one topic, and their router."""

    def __init__(self, client: Client, topic: str, options: WriteOptions, who: Identity) -> None:
        try:
            self.partitions = client.list_partitions(topic)
        except geminga.GemingaError as error:
            raise explained(topic, error) from error
        settings = options.producer
        self._router = Router(
            len(self.partitions),
            options.routing,
            options.hashing,
            settings.batching_max_messages if settings.batching_enabled else 1,
            who.partition + who.epoch,
        )

    def send(self, messages: Messages, rows: Sequence[int] | None, writers: _Writers) -> None:
        """Send some of the messages, or all. Raises ConnectorError."""
        count = len(messages.payloads) if rows is None else len(rows)
        keys = _picked(messages.keys, rows)
        told = messages.partitions
        if told is not None and rows is not None:
            told = told[list(rows)]
        chosen = self._router.choose(count, keys, told)
        first = int(chosen[0])
        if (chosen == first).all():
            self._send(first, messages, rows, writers)
            return
        order = np.arange(count) if rows is None else np.asarray(rows)
        for partition in np.unique(chosen).tolist():
            self._send(partition, messages, order[chosen == partition].tolist(), writers)

    def _send(
        self, partition: int, messages: Messages, rows: Sequence[int] | None, writers: _Writers
    ) -> None:
        payloads = messages.payloads if rows is None else [messages.payloads[n] for n in rows]
        of = len(self.partitions)
        writers.send(self.partitions[partition], of, payloads, _message_options(messages, rows))


def _picked(
    column: Sequence[str | bytes | None] | None, rows: Sequence[int] | None
) -> Sequence[str | bytes | None] | None:
    return column if column is None or rows is None else [column[row] for row in rows]


def _message_options(
    messages: Messages, rows: Sequence[int] | None
) -> Iterator[MessageOptions] | None:
    """Keywords of `submit`, None if no message needs any. A generator: keeping thousands at a
    time makes work for Python's garbage collector.
    """
    columns = [
        (name, column)
        for name, column in (
            ("partition_key", messages.keys),
            ("event_time_ms", messages.event_times_ms),
            ("properties", messages.properties),
            ("ordering_key", messages.ordering_keys),
        )
        if column is not None
    ]
    if not columns:
        return None
    names = [name for name, _ in columns]
    lists = [each if rows is None else [each[row] for row in rows] for _, each in columns]
    return (
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*lists, strict=True)
    )


class Task:
    """Writes the rows of one task. Succeeds only if each message has its receipt."""

    def __init__(self, client: Client, frame: Frame, options: WriteOptions, who: Identity) -> None:
        self._client = client
        self._options = options
        self._who = who
        self._encoder = Encoder(frame)
        self._writers = _Writers(client, frame.info, options, who)
        self._topics: dict[str, _Topic] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write all rows. Raises ConnectorError."""
        rows = 0
        try:
            for batch in batches:
                if batch.num_rows:
                    rows += batch.num_rows
                    self._send(self._encoder.encode(batch))
            self._writers.finish()
        except BaseException:
            self._writers.abandon()
            raise
        return Written(self._who.partition, self._who.epoch, rows, len(self._writers))

    def _send(self, messages: Messages) -> None:
        if messages.topics is None:
            self._topic(str(self._options.topic)).send(messages, None, self._writers)
            return
        by_topic: dict[str, list[int]] = {}
        for row, topic in enumerate(messages.topics):
            by_topic.setdefault(topic, []).append(row)
        for topic, rows in by_topic.items():
            self._topic(topic).send(messages, rows, self._writers)

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            found = _Topic(self._client, name, self._options, self._who)
            self._topics[name] = found
        return found
