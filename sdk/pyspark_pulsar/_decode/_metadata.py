"""The metadata columns of a message (spec SP-02).

Each column is made for all rows of a record batch at once: values of an entry are read once an
entry and repeated for its rows by Arrow; values of a message are read only if their column is
wanted.

There are no columns with Kafka's names: its `offset`, a count of a partition's messages, has no
equivalent here, and an invented one would hide gaps (decision 18).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from inspect import signature
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from geminga import EntryBatch, MessageId
from pyspark_pulsar.errors import SchemaMismatch

T = TypeVar("T")
TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999; later times are shown as this."""
_TIMESTAMP = pa.timestamp("us", "UTC")
_SIGN = 1 << 63
_to_arrow: Callable[..., pa.Schema] = to_arrow_schema
_ZONE = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Before PySpark 4.2 timestamps are always in UTC."""


class EntrySlice(NamedTuple):
    """Messages of one entry: `indexes[first:stop]`."""

    entry: EntryBatch
    first: int
    stop: int


class EntrySlices:
    """The rows of one record batch: messages of entries, in order."""

    def __init__(self, each: Sequence[EntrySlice]) -> None:
        self.each = each
        self.rows = sum(stop - first for _, first, stop in each)

    def spread(self, get: Callable[[EntryBatch], object], kind: pa.DataType) -> pa.Array:
        """A column of a value that all messages of an entry share."""
        values = pa.array([get(entry_slice.entry) for entry_slice in self.each], kind)
        return values if self._owners is None else values.take(self._owners)

    def listed(self, get: Callable[[EntryBatch], list[T]]) -> list[T]:
        """A list of a value that each message has."""
        found: list[T] = []
        for entry, first, stop in self.each:
            values = get(entry)
            found += values if stop - first == len(values) else values[first:stop]
        return found

    @cached_property
    def _owners(self) -> pa.Array | None:
        """The index of each row's entry; None if all entries have one row."""
        if self.rows == len(self.each):
            return None
        counts = [stop - first for _, first, stop in self.each]
        return pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))

    @cached_property
    def indexes(self) -> pa.Array:
        """The batch index of each row, -1 for a message that isn't batched."""
        each = chain.from_iterable(entry.indexes[a:b] for entry, a, b in self.each)
        return pa.array(np.fromiter(each, np.int32, self.rows))

    @cached_property
    def _are_in_batches(self) -> pa.Array:
        return pc.greater_equal(self.indexes, 0)

    def ids_as_text(self) -> pa.Array:
        """ "ledger:entry", and ":index" of messages in batches."""
        entries = self.spread(lambda entry: f"{entry.ledger_id}:{entry.entry_id}", pa.string())
        if not pc.any(self._are_in_batches).as_py():
            return entries
        full = pc.binary_join_element_wise(entries, pc.cast(self.indexes, pa.string()), ":")
        return pc.if_else(self._are_in_batches, full, entries)

    def ids_as_bytes(self) -> pa.Array:
        """As `MessageId.serialize` returns them."""
        whole = self.spread(_whole_id, pa.binary())
        if not pc.any(self._are_in_batches).as_py():
            return whole
        # The ids of a batch's messages differ only in a number in the middle.
        most = pc.max(self.indexes).as_py()
        numbers = pa.array([b"\x20" + _varint(n) for n in range(most + 1)], pa.binary())
        middles = numbers.take(pc.if_else(self._are_in_batches, self.indexes, 0))
        starts = self.spread(_id_start, pa.binary())
        ends = self.spread(lambda entry: b"\x30" + _varint(entry.message_count), pa.binary())
        nothing = pa.scalar(b"", pa.binary())
        full = pc.binary_join_element_wise(starts, middles, ends, nothing)
        return pc.if_else(self._are_in_batches, full, whole)


def _whole_id(entry: EntryBatch) -> bytes:
    """The id of an entry with one message."""
    if entry.indexes[0] >= 0:
        return b""
    return entry.message_ids()[0].serialize()


def _id_start(entry: EntryBatch) -> bytes:
    """The bytes before the batch index in the ids of an entry's messages."""
    place = MessageId(entry.ledger_id, entry.entry_id, entry.partition)
    # Without the batch size (the last two bytes), since it isn't a batch.
    return place.serialize()[:-2]


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _times(values: Iterable[int | None]) -> pa.Array:
    """Timestamps from ms since 1970."""
    # Unsigned on the wire: a value may be larger than any timestamp.
    capped = [each if each is None or each <= TIME_MS_MAX else TIME_MS_MAX for each in values]
    return pc.multiply(pa.array(capped, pa.int64()), 1000).cast(_TIMESTAMP)


def _publish_times(slices: EntrySlices) -> pa.Array:
    times = _times(entry_slice.entry.publish_time_ms for entry_slice in slices.each)
    places = iter(range(len(slices.each)))
    return times.take(slices.spread(lambda _: next(places), pa.int32()))


def _properties(slices: EntrySlices) -> pa.Array:
    each = slices.listed(lambda entry: entry.properties())
    if not any(each):
        nothing = pa.array([], pa.string())
        offsets = pa.array(np.zeros(len(each) + 1, np.int32))
        return pa.MapArray.from_arrays(offsets, nothing, nothing)
    counts = np.fromiter(map(len, each), np.int32, len(each))
    offsets = pa.array(np.concatenate((np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32))))
    names = pa.array(list(chain.from_iterable(each)), pa.string())
    values = pa.array(list(chain.from_iterable(one.values() for one in each)), pa.string())
    return pa.MapArray.from_arrays(offsets, names, values)


def _sequence_ids(slices: EntrySlices) -> pa.Array:
    each = slices.listed(lambda entry: entry.sequence_ids())
    # Unsigned on the wire, a Java long elsewhere.
    return pa.array([n - 2 * _SIGN if n >= _SIGN else n for n in each], pa.int64())


class MetadataColumn(NamedTuple):
    """One column: its name, Spark's and Arrow's type, whether it is nullable, whether it is in the
    default schema, and the function that makes it for the rows of a record batch.
    """

    name: str
    spark: DataType
    arrow: pa.DataType
    nullable: bool
    in_default: bool
    make: Callable[[EntrySlices], pa.Array]

    @property
    def field(self) -> StructField:
        """As Spark's field."""
        return StructField(self.name, self.spark, self.nullable)


_TEXT, _BYTES, _INT, _LONG = StringType(), BinaryType(), IntegerType(), LongType()
_TIME, _MAP = TimestampType(), MapType(_TEXT, _TEXT)
_ARROW: dict[DataType, pa.DataType] = {
    _TEXT: pa.string(),
    _BYTES: pa.binary(),
    _INT: pa.int32(),
    _LONG: pa.int64(),
    _TIME: _TIMESTAMP,
    _MAP: pa.map_(pa.string(), pa.string()),
}


def _made(
    name: str,
    spark: DataType,
    make: Callable[[EntrySlices], pa.Array],
    *,
    nullable: bool = False,
    in_default: bool = True,
) -> MetadataColumn:
    return MetadataColumn(name, spark, _ARROW[spark], nullable, in_default, make)


def _of_entries(
    name: str, spark: DataType, get: Callable[[EntryBatch], object], **about: bool
) -> MetadataColumn:
    """A column of a value that all messages of an entry share."""
    return _made(name, spark, lambda slices: slices.spread(get, _ARROW[spark]), **about)


def _of_messages(
    name: str, spark: DataType, get: Callable[[EntryBatch], list[T]], **about: bool
) -> MetadataColumn:
    """A column of a value that each message has, or hasn't."""
    make = partial(_listed, get, _ARROW[spark])
    return _made(name, spark, make, nullable=True, **about)


def _listed(
    get: Callable[[EntryBatch], list[T]], kind: pa.DataType, slices: EntrySlices
) -> pa.Array:
    return pa.array(slices.listed(get), kind)


def _event_times(slices: EntrySlices) -> pa.Array:
    return _times(slices.listed(lambda entry: entry.event_times_ms()))


_ALL = (
    _of_messages("__key", _TEXT, lambda entry: entry.keys()),
    _of_messages("__keyBytes", _BYTES, lambda entry: entry.keys_as_bytes(), in_default=False),
    _of_entries("__topic", _TEXT, lambda entry: entry.topic_name),
    _of_entries("__partition", _INT, lambda entry: entry.partition),
    _made("__messageId", _TEXT, EntrySlices.ids_as_text),
    _made("__messageIdBytes", _BYTES, EntrySlices.ids_as_bytes, in_default=False),
    _of_entries("__ledgerId", _LONG, lambda entry: entry.ledger_id, in_default=False),
    _of_entries("__entryId", _LONG, lambda entry: entry.entry_id, in_default=False),
    _made("__batchIndex", _INT, lambda slices: slices.indexes, in_default=False),
    _made("__publishTime", _TIME, _publish_times),
    _made("__eventTime", _TIME, _event_times, nullable=True),
    _made("__messageProperties", _MAP, _properties),
    _of_messages("__orderingKey", _BYTES, lambda entry: entry.ordering_keys()),
    _made("__sequenceId", _LONG, _sequence_ids),
    _of_entries("__producerName", _TEXT, lambda entry: entry.producer_name),
    _of_entries("__redeliveryCount", _INT, lambda entry: entry.redelivery_count),
    _of_entries(
        "__schemaVersion",
        _BYTES,
        lambda entry: entry.schema_version,
        nullable=True,
        in_default=False,
    ),
)
METADATA = {column.name: column for column in _ALL}
"""All metadata columns by name, in order."""


def is_metadata(name: str) -> bool:
    """Whether a metadata column has this name."""
    return name in METADATA


def default_fields(*, include_properties: bool = True) -> list[StructField]:
    """The metadata columns of the default schema. All are nullable for Spark, as in most schemas
    that users write.
    """
    return [
        StructField(column.name, column.spark)
        for column in _ALL
        if column.in_default and (include_properties or column.name != "__messageProperties")
    ]


def check_columns(schema: StructType) -> None:
    """Raises SchemaMismatch for a metadata column of another type, or a NOT NULL one that can be
    null.
    """
    for field in schema.fields:
        column = METADATA.get(field.name)
        if column is None:
            continue
        wanted, given = column.spark.simpleString(), field.dataType.simpleString()
        if wanted != given:
            raise SchemaMismatch(f"column {field.name}", f"is of type {wanted}, not {given}")
        if column.nullable and not field.nullable:
            raise SchemaMismatch(f"column {field.name}", "may be null: leave NOT NULL out")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of record batches with these columns."""
    return _to_arrow(schema, **_ZONE)
