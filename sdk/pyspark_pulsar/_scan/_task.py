"""A task of Spark: reads a range of a topic as Arrow record batches (spec SP-03)."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

import geminga
from geminga import ConsumerCryptoFailureAction, EntryBatch, MessageId
from geminga.schema import SchemaInfo
from pyspark_pulsar._clients import client_for
from pyspark_pulsar._decode._metadata import EntrySlice
from pyspark_pulsar._names import partition_of
from pyspark_pulsar._plan._topics import layout, open_reader
from pyspark_pulsar._positions import BEGIN, LedgerSpan, Position, TopicRange
from pyspark_pulsar._scan._chunk_search import cut_messages
from pyspark_pulsar._scan._loss import Continuity, check_start, lost
from pyspark_pulsar._scan._pace import Prefetch, Throttle
from pyspark_pulsar._scan._range_reader import EntryReader, RangeReader
from pyspark_pulsar._scan._rows import Rows

if TYPE_CHECKING:
    from pyspark_pulsar._options import ReadOptions
    from pyspark_pulsar._plan._filters import Narrowing

FEW_ENTRIES = 8
"""Up to this many entries are read one by one: a reader with a larger queue isn't worth opening."""


@dataclass(frozen=True)
class ScanPlan:
    """What all tasks of a read share; it pickles. `schema` are the columns to make."""

    options: ReadOptions
    schema: StructType
    narrowing: Narrowing | None = None


def scan(wanted: TopicRange, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """The messages of the range, each once, in record batches limited in rows and bytes.

    A chunked message belongs to the range with its last chunk. Raises DataLoss, MalformedMessage,
    GemingaError (OperationTimeoutError if an expected message doesn't arrive within
    `pollTimeoutMs`, CryptoError for one that can't be decrypted).
    """
    if wanted.is_empty:
        return
    task = _Task(wanted, plan)
    rows = Rows(plan.schema, plan.options, task.schema_of)
    try:
        for entry_slice in task.slices():
            yield from rows.add(entry_slice)
    except geminga.TopicNotFoundError:
        # Readers don't create topics.
        lost(wanted.topic, "it was deleted", fails=plan.options.fail_on_data_loss)
    yield from rows.flush()


class _Task:
    """The state of reading one range."""

    def __init__(self, wanted: TopicRange, plan: ScanPlan) -> None:
        self._wanted = wanted
        self._options = plan.options
        self._narrowing = plan.narrowing
        self._client = client_for(plan.options.client)
        self._throttle = Throttle(plan.options.messages_per_second, plan.options.bytes_per_second)
        self._prefetch = Prefetch(plan.options.receiver_queue_size, plan.options.batch_bytes_max)
        self._continuity: Continuity | None = None
        self._last: Position | None = None
        """The last entry received, by any reader."""

    def schema_of(self, version: bytes | None) -> SchemaInfo | None:
        """The topic's schema of that version; None with `schemaMode=raw`."""
        if self._options.schema_mode == "raw":
            return None
        return self._client.get_schema(partition_of(self._wanted.topic)[0], version)

    def slices(self) -> Iterator[EntrySlice]:
        """The messages of the range that become rows."""
        narrowing = self._narrowing
        for entry_slice in self._all():
            if not self._is_readable(entry_slice.entry):
                continue
            if narrowing is None:
                yield entry_slice
            elif narrowing.publish_ms.allow(entry_slice.entry.publish_time_ms):
                yield from (
                    [entry_slice]
                    if narrowing.keys is None
                    else _of_keys(entry_slice, narrowing.keys)
                )

    def _all(self) -> Iterator[EntrySlice]:
        at: Position | None = self._wanted.start
        while at is not None:
            at = yield from self._read_from(at)

    def _read_from(self, at: Position) -> Generator[EntrySlice, None, Position | None]:
        """The messages from `at` on. Returns where to continue with a reader of another queue size,
        None at the range's end.
        """
        wanted = replace(self._wanted, start=at)
        cut: set[Position] = set()
        with self._open(at, self._prefetch.queue_size) as reader:
            range_reader = self._range_reader(reader, wanted)
            for entry_slice in range_reader.slices():
                self._check(range_reader)
                cut |= self._cut(reader.incomplete_message_ids())
                place = Position(entry_slice.entry.ledger_id, entry_slice.entry.entry_id)
                if cut:
                    before = {each for each in cut if each < place}
                    yield from self._mended(before)
                    cut -= before
                yield entry_slice
                if self._wants_other_queue(entry_slice.entry, place):
                    # The next reader reports incomplete messages after this one again.
                    return place.after
            self._check(range_reader, is_over=True)
            cut |= self._cut(reader.incomplete_message_ids())
        yield from self._mended(cut)
        return None

    def _wants_other_queue(self, entry: EntryBatch, place: Position) -> bool:
        stop = self._wanted.stop
        if place >= stop.entry:
            return False
        is_much = place.ledger_id < stop.ledger_id or stop.entry_id - place.entry_id > FEW_ENTRIES
        return self._prefetch.took(len(entry.indexes), entry.size_bytes, more=is_much)

    def _mended(self, cut: set[Position]) -> Iterator[EntrySlice]:
        """Messages that begin before the range and end in it, one by one to keep their order."""
        topic, partition = self._wanted.topic, self._wanted.partition
        for position in sorted(cut):
            yield from cut_messages(
                topic, partition, {position}, self._open_far, self._range_reader, self._ledgers
            )

    def _open(
        self, at: Position, queue_size: int = 1
    ) -> AbstractContextManager[geminga.blocking.Reader]:
        topic = self._wanted.topic
        return open_reader(self._client, self._options, topic, at, queue_size=queue_size)

    def _open_far(self, at: Position) -> AbstractContextManager[geminga.blocking.Reader]:
        """A reader for many entries of which few are wanted."""
        return self._open(at, max(FEW_ENTRIES, self._prefetch.queue_size))

    def _range_reader(self, reader: EntryReader, wanted: TopicRange) -> RangeReader:
        return RangeReader(reader, wanted, self._throttle, self._options.poll_timeout_s)

    def _check(self, range_reader: RangeReader, *, is_over: bool = False) -> None:
        """Check whether messages up to here were lost. Raises DataLoss."""
        wanted = self._wanted
        fails = self._options.fail_on_data_loss
        waits_max_s = self._options.poll_timeout_s
        if self._options.read_compacted:
            # Compaction removes messages anywhere.
            return
        if self._continuity is None:
            # A filter may name any id.
            if self._narrowing is None:
                check_start(
                    self._open,
                    wanted.topic,
                    wanted.start,
                    range_reader.first_found,
                    fails=fails,
                    waits_max_s=waits_max_s,
                )
            self._continuity = Continuity(
                self._open, wanted.topic, fails=fails, waits_max_s=waits_max_s
            )
        self._last = range_reader.last_found or self._last
        if self._last is not None:
            self._continuity.came_to(self._last.ledger_id)
            if is_over:
                self._continuity.ended(self._last, wanted.stop)

    def _cut(self, ids: list[MessageId]) -> set[Position]:
        """The ends of messages that begin before the range and end in it."""
        found = {Position(each.ledger_id, each.entry_id) for each in ids}
        start, stop = self._wanted.start.entry, self._wanted.stop.entry
        return {position for position in found if start <= position <= stop}

    def _ledgers(self, before: Position) -> list[LedgerSpan]:
        return layout(self._client, self._wanted.topic, self._options, BEGIN, before)

    def _is_readable(self, entry: EntryBatch) -> bool:
        """Whether the entry is decrypted, or to be read encrypted. Raises CryptoError."""
        action = self._options.crypto_failure_action
        if not entry.is_encrypted or action is ConsumerCryptoFailureAction.CONSUME:
            return True
        if action is ConsumerCryptoFailureAction.DISCARD:
            return False
        raise geminga.CryptoError(
            f"message {entry.ledger_id}:{entry.entry_id} can't be decrypted: set "
            "pulsar.reader.privateKeyPath to its key, or skip such messages with "
            "pulsar.reader.cryptoFailureAction=DISCARD",
            topic=self._wanted.topic,
        )


def _of_keys(entry_slice: EntrySlice, keys: Container[str | None]) -> Iterator[EntrySlice]:
    """The messages with one of these keys, in contiguous slices."""
    entry, at, stop = entry_slice
    found = entry.keys()
    for is_wanted, run in groupby(range(at, stop), lambda n: found[n] in keys):
        if is_wanted:
            places = list(run)
            yield EntrySlice(entry, places[0], places[-1] + 1)
