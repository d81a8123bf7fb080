"""Converts Arrow batches to messages (spec SP-06)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from geminga.schema import SchemaType
from pyspark_pulsar._encode import _columns as columns
from pyspark_pulsar._encode._avro import avro_rows
from pyspark_pulsar._encode._cells import Whole
from pyspark_pulsar._encode._frame import plan_for
from pyspark_pulsar._encode._json import json_rows
from pyspark_pulsar._encode._layout import Frame
from pyspark_pulsar._encode._pairs import Half, inline
from pyspark_pulsar._encode._plan import Plan
from pyspark_pulsar._encode._single import single_rows
from pyspark_pulsar.errors import SchemaMismatch


@dataclass
class Messages:
    """The messages of one batch, by columns; missing columns are None."""

    payloads: list[bytes | None]
    """None: a null message."""
    topics: list[str] | None = None
    keys: list[str] | list[bytes] | list[str | None] | list[bytes | None] | None = None
    event_times_ms: list[int | None] | None = None
    properties: list[dict[str, str] | None] | None = None
    ordering_keys: list[bytes | None] | None = None
    partitions: Whole | None = None
    """-1: chosen by the key, or in turn."""


class Encoder:
    """Encodes the batches of one task."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._payloads = [_Payloads(each) for each in frame.halves or (frame,)]

    def encode(self, batch: pa.RecordBatch) -> Messages:
        """The messages of a batch, in its order. Raises SchemaMismatch, naming the column."""
        _check(batch)
        frame = self._frame
        layout = frame.layout
        topics = self._column(batch, layout.topic)
        times = self._column(batch, layout.event_time)
        properties = self._column(batch, layout.properties)
        ordering = self._column(batch, layout.ordering_key)
        partitions = self._column(batch, layout.partition)
        key = self._column(batch, layout.key)
        keys = None if key is None else key.to_pylist()
        payloads: list[bytes | None]
        if frame.halves and not frame.is_separated:
            payloads = [*inline([each.half(batch) for each in self._payloads])]
        else:
            # With separated pairs the first half is the message's key.
            *first, payloads = [each.listed(batch) for each in self._payloads]
            keys = first[0] if first else keys
        return Messages(
            payloads,
            None if topics is None else _topics(topics, str(layout.topic)),
            keys,
            None if times is None else _times_ms(times, str(layout.event_time)),
            None if properties is None else _properties(properties, str(layout.properties)),
            None if ordering is None else _binary(ordering).to_pylist(),
            None if partitions is None else _partitions(partitions),
        )

    @staticmethod
    def _column(batch: pa.RecordBatch, name: str | None) -> pa.Array | None:
        return None if name is None else batch.column(batch.schema.get_field_index(name))


class _Payloads:
    """Encodes the columns of payloads, or of half of each payload."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._plan: Plan | None = None

    def listed(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """The bytes of each row, None for null."""
        array = self._array(batch)
        encoded = self._encoded(array)
        found: list[bytes | None] = [*encoded] if isinstance(encoded, list) else encoded.to_pylist()
        if array.null_count:
            for row in np.flatnonzero(~columns.valid(array)).tolist():
                found[row] = None
        return found

    def half(self, batch: pa.RecordBatch) -> Half:
        """The same as an Arrow array."""
        array = self._array(batch)
        encoded = self._encoded(array)
        present = columns.valid(array)
        texts = pa.array(encoded, pa.large_binary()) if isinstance(encoded, list) else encoded
        return columns.texts(texts, present), present

    def _array(self, batch: pa.RecordBatch) -> pa.Array:
        """The array to encode: a column, or a struct of several."""
        frame = self._frame
        names = frame.layout.values
        arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
        if self._plan is None:
            types = [each.type for each in arrays]
            self._plan = plan_for(frame, pa.schema(list(zip(names, types, strict=True))))
        alone = frame.is_struct or not frame.is_record
        return arrays[0] if alone else pa.StructArray.from_arrays(arrays, names)

    def _encoded(self, array: pa.Array) -> pa.Array | list[bytes]:
        """Bytes of each row as large_binary or list; undefined for nulls."""
        frame = self._frame
        assert self._plan is not None
        if not frame.is_record:
            return single_rows(frame.info, frame.layout.values[0], array)
        if frame.info.type is SchemaType.JSON:
            return json_rows(self._plan, array)
        return avro_rows(self._plan, array)


def _check(batch: pa.RecordBatch) -> None:
    """Check that strings are UTF-8: Spark's may be any bytes. Raises SchemaMismatch. Takes a
    hundredth of the encoding's time.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise SchemaMismatch(
                    f"column {name}",
                    f"has a value that no message can hold: {error}; cast strings that aren't "
                    "UTF-8 to binary, or drop these rows",
                ) from None
        raise


def _topics(array: pa.Array, column: str) -> list[str]:
    if array.null_count:
        raise SchemaMismatch(
            f"column {column}", "has a null: each row needs a topic; filter these rows"
        )
    found: list[str] = array.to_pylist()
    return found


def _times_ms(array: pa.Array, column: str) -> list[int | None]:
    millis = columns.whole(Plan("long", column, divisor=1000), array)
    if ((millis <= 0) & columns.valid(array)).any():
        raise SchemaMismatch(
            f"column {column}",
            "has a time that isn't after the beginning of 1970, which can't be an event time; use "
            "null",
        )
    found: list[int | None] = millis.tolist()
    if array.null_count:
        for row in np.flatnonzero(~columns.valid(array)).tolist():
            found[row] = None
    return found


def _properties(array: pa.Array, column: str) -> list[dict[str, str] | None]:
    begin, end = int(array.offsets[0].as_py()), int(array.offsets[-1].as_py())
    if array.items[begin:end].null_count:
        raise SchemaMismatch(f"column {column}", "has a property whose value is null")
    found: list[list[tuple[str, str]] | None] = array.to_pylist()
    return [dict(each) if each else None for each in found]


def _binary(array: pa.Array) -> pa.Array:
    if kinds.is_string(array.type) or kinds.is_large_string(array.type):
        return array.cast(pa.large_string()).cast(pa.large_binary())
    return array


def _partitions(array: pa.Array) -> Whole:
    found: Whole = pc.fill_null(array.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return found
