"""The reader of a schema's payloads, and the columns that a schema has (spec SP-02)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from google.protobuf.message import Message

from geminga import InvalidSchemaError
from geminga.schema import SchemaInfo, SchemaType, message_class
from pyspark_pulsar._decode._avro import AvroReader
from pyspark_pulsar._decode._avro_schema import avro_shape
from pyspark_pulsar._decode._json import JsonReader
from pyspark_pulsar._decode._leaves import spread
from pyspark_pulsar._decode._match import match_fields, widens
from pyspark_pulsar._decode._objects import Columns
from pyspark_pulsar._decode._pairs import HALVES, PairInfo, pair_info, split_all
from pyspark_pulsar._decode._primitives import (
    TIMES,
    FixedReader,
    VaryingReader,
    primitive_type,
    varies,
)
from pyspark_pulsar._decode._protobuf import ProtobufReader, message_shape
from pyspark_pulsar._decode._shapes import TIME, Field, Record, Shape, arrow_type, spark_name
from pyspark_pulsar.errors import SchemaMismatch

VALUE = "value"
NO_SCHEMA = SchemaInfo("Bytes", SchemaType.BYTES)


class Reader(Protocol):
    """Decodes payloads of one schema."""

    def columns(self, payloads: Sequence[bytes]) -> Columns:
        """The wanted columns, and the errors of malformed payloads."""


def kind_of(info: SchemaInfo) -> SchemaType:
    """The type for decoding: types that only clients use (AUTO_CONSUME...) are bytes."""
    return SchemaType.BYTES if info.type < SchemaType.BYTES else info.type


def shape_of(info: SchemaInfo) -> Shape | None:
    """The shape of a schema with fields, None for others. Raises SchemaMismatch."""
    if info.type in (SchemaType.AVRO, SchemaType.JSON):
        return avro_shape(info.schema, is_json=info.type is SchemaType.JSON)
    if info.type is SchemaType.PROTOBUF_NATIVE:
        return message_shape(_message_class(info))
    return None


def _message_class(info: SchemaInfo) -> type[Message]:
    try:
        return message_class(info)
    except InvalidSchemaError as error:
        raise SchemaMismatch("schema", str(error)) from error


def fields_of(info: SchemaInfo) -> list[pa.Field]:
    """The columns of a topic's values: fields of records, `key` and `value` of pairs, else `value`.

    Raises SchemaMismatch, naming the field that no column can hold.
    """
    if info.type is SchemaType.KEY_VALUE:
        pair = pair_info(info)
        return [
            pa.field(name, _whole_type(half, name))
            for name, half in zip(HALVES, (pair.key, pair.value), strict=True)
        ]
    found = _whole_type(info, "")
    if isinstance(_shape_or_none(info), Record) and pa.types.is_struct(found):
        return list(found)
    return [pa.field(VALUE, found)]


def _shape_or_none(info: SchemaInfo) -> Shape | None:
    try:
        return shape_of(info)
    except SchemaMismatch:
        return None


def _whole_type(info: SchemaInfo, path: str) -> pa.DataType:
    known = primitive_type(kind_of(info))
    if known is not None:
        return known
    if info.type is SchemaType.PROTOBUF_NATIVE:
        # Descriptors may describe types that no column can hold; bytes always work.
        try:
            shape = shape_of(info)
            return pa.binary() if shape is None else arrow_type(shape, path)
        except SchemaMismatch:
            return pa.binary()
    shape = shape_of(info)
    if shape is None:
        raise SchemaMismatch(
            path or VALUE, f"schemas of type {info.type.name} can't be read as columns"
        )
    return arrow_type(shape, path)


def reader_of(
    info: SchemaInfo,
    wanted: Sequence[pa.Field],
    *,
    latest: SchemaInfo | None = None,
    strict: bool = False,
    is_half: bool = False,
) -> Reader:
    """The reader of a schema that isn't of pairs. With `is_half` records are one column.

    Raises SchemaMismatch, naming the column.
    """
    kind = kind_of(info)
    known = primitive_type(kind)
    if known is not None:
        column = _only(wanted, known, is_half=is_half)
        is_time = kind in TIMES and column.type.equals(TIME)
        if not widens(known, column.type) and not is_time:
            raise SchemaMismatch(
                column.name, f"{kind.name} can't be read as {spark_name(column.type)}"
            )
        return (VaryingReader if varies(kind) else FixedReader)(kind, column.type)
    if (
        len(wanted) == 1
        and pa.types.is_binary(wanted[0].type)
        and _is_raw(info, wanted[0], is_half)
    ):
        return VaryingReader(SchemaType.BYTES, wanted[0].type)
    return _record_reader(info, wanted, latest, strict=strict, is_half=is_half)


def _is_raw(info: SchemaInfo, column: pa.Field, is_half: bool) -> bool:
    """Whether the column is the raw payload in binary, which is possible for all records."""
    if not pa.types.is_binary(column.type) or (not is_half and column.name.lower() != VALUE):
        return False
    shape = _shape_or_none(info)
    if info.type is SchemaType.PROTOBUF_NATIVE and pa.types.is_binary(_whole_type(info, "")):
        return True
    if not isinstance(shape, Record):
        return shape is None
    return is_half or all(each.name.lower() != VALUE for each in shape.fields)


def _record_reader(
    info: SchemaInfo,
    wanted: Sequence[pa.Field],
    latest: SchemaInfo | None,
    *,
    strict: bool,
    is_half: bool,
) -> Reader:
    shape = shape_of(info)
    if shape is None:
        raise SchemaMismatch(VALUE, f"schemas of type {info.type.name} can't be read as columns")
    newest = shape_of(latest) if latest is not None and latest.type is info.type else None
    is_single = is_half or not isinstance(shape, Record)
    if not isinstance(shape, Record) or is_half:
        column = _only(wanted, arrow_type(shape, VALUE) if not wanted else None, is_half=is_half)
        name = column.name
        shape = Record("", [Field(name, shape)])
        newest = None if newest is None else Record("", [Field(name, newest)])
        wanted = [column]
    plan = match_fields(shape, wanted, latest=newest, strict=strict)
    if info.type is SchemaType.AVRO:
        return AvroReader(shape, plan)
    if info.type is SchemaType.JSON:
        return JsonReader(plan, is_single=is_single)
    return ProtobufReader(_message_class(info), plan, is_single=is_single)


def _only(wanted: Sequence[pa.Field], natural: pa.DataType | None, *, is_half: bool) -> pa.Field:
    """The only column of values without fields."""
    for each in wanted:
        if not is_half and each.name.lower() != VALUE:
            raise SchemaMismatch(
                each.name, f"the topic's values have no fields; read them as the column {VALUE!r}"
            )
    return wanted[0] if wanted else pa.field(VALUE, natural)


def read_some(reader: Reader, payloads: Sequence[bytes | None]) -> Columns:
    """The columns of payloads of which some are null."""
    if None not in payloads:
        return reader.columns(payloads)  # type: ignore[arg-type]
    index = np.array([n for n, each in enumerate(payloads) if each is not None], np.int64)
    found = reader.columns([each for each in payloads if each is not None])
    arrays = [spread(each, index, len(payloads)) for each in found.arrays]
    return Columns(arrays, {int(index[row]): note for row, note in found.notes.items()})


class PairReader:
    """Decodes messages of pairs."""

    def __init__(
        self,
        info: SchemaInfo,
        wanted: Sequence[pa.Field],
        *,
        latest: SchemaInfo | None = None,
        strict: bool = False,
    ) -> None:
        """Raises SchemaMismatch, naming the column."""
        pair = pair_info(info)
        newest: PairInfo | None = None
        if latest is not None and latest.type is SchemaType.KEY_VALUE:
            newest = pair_info(latest)
        self.is_separated = pair.is_separated
        self._readers: list[tuple[int, Reader]] = []
        for column in wanted:
            if column.name.lower() not in HALVES:
                raise SchemaMismatch(
                    column.name, "the topic's values are pairs, whose columns are 'key' and 'value'"
                )
            half = HALVES.index(column.name.lower())
            reader = reader_of(
                pair[half],  # type: ignore[arg-type]
                [column],
                latest=None if newest is None else newest[half],  # type: ignore[arg-type]
                strict=strict,
                is_half=True,
            )
            self._readers.append((half, reader))

    def columns(
        self, payloads: Sequence[bytes | None], keys: Sequence[bytes | None] | None
    ) -> Columns:
        """The wanted columns, and the errors of malformed ones. `keys` are the messages' keys."""
        notes: dict[int, str] = {}
        if self.is_separated:
            halves: tuple[Sequence[bytes | None], ...] = (keys or [None] * len(payloads), payloads)
        else:
            first, second, notes = split_all(payloads)
            halves = (first, second)
        arrays: list[pa.Array] = []
        for half, reader in self._readers:
            found = read_some(reader, halves[half])
            arrays += found.arrays
            for row, note in found.notes.items():
                notes.setdefault(row, f"{HALVES[half]}: {note}")
        return Columns(arrays, notes)
