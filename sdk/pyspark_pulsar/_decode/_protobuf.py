"""Decodes payloads of a PROTOBUF_NATIVE schema, which contains the descriptors (spec SP-02)."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from pyspark_pulsar._decode._buffer import Flags
from pyspark_pulsar._decode._match import Part, RecordPlan, only_plan
from pyspark_pulsar._decode._objects import Builder, Columns
from pyspark_pulsar._decode._shapes import (
    Array,
    Field,
    Kind,
    Leaf,
    Map,
    Record,
    Shape,
    Union,
    leaf_type,
)

_KINDS: dict[int, Kind] = {
    FieldDescriptor.CPPTYPE_BOOL: Kind.BOOLEAN,
    FieldDescriptor.CPPTYPE_INT32: Kind.INT,
    FieldDescriptor.CPPTYPE_INT64: Kind.LONG,
    FieldDescriptor.CPPTYPE_UINT32: Kind.UINT32,
    FieldDescriptor.CPPTYPE_UINT64: Kind.UINT64,
    FieldDescriptor.CPPTYPE_FLOAT: Kind.FLOAT,
    FieldDescriptor.CPPTYPE_DOUBLE: Kind.DOUBLE,
    FieldDescriptor.CPPTYPE_STRING: Kind.STRING,
}


def message_shape(kind: type[Message]) -> Record:
    """The shape of a class of messages. Fields with presence are null if not set."""
    descriptor: Any = kind.DESCRIPTOR
    return _Shaping().record(descriptor)


class _Shaping:
    def __init__(self) -> None:
        self._known: dict[str, Record] = {}

    def record(self, descriptor: Descriptor) -> Record:
        known = self._known.get(descriptor.full_name)
        if known is None:
            known = self._known[descriptor.full_name] = Record(descriptor.full_name)
            known.fields.extend(Field(each.name, self._field(each)) for each in descriptor.fields)
        return known

    def _field(self, field: FieldDescriptor) -> Shape:
        message: Any = field.message_type
        if message is not None and message.GetOptions().map_entry:
            return Map(self._single(message.fields_by_name["value"]))
        single = self._single(field)
        if field.is_repeated:
            return Array(single)
        if message is not None or (field.has_presence and not field.has_default_value):
            return Union((Leaf(Kind.NULL), single))
        return single

    def _single(self, field: FieldDescriptor) -> Shape:
        if field.message_type is not None:
            return self.record(field.message_type)
        if field.enum_type is not None:
            values = field.enum_type.values
            names = tuple(each.name for each in values)
            return Leaf(Kind.ENUM, symbols=names, numbers=tuple(each.number for each in values))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return Leaf(Kind.BYTES)
        return Leaf(_KINDS[field.cpp_type])


class ProtobufReader:
    """Decodes Protobuf messages."""

    def __init__(self, kind: type[Message], plan: RecordPlan, *, is_single: bool) -> None:
        """With `is_single` the message is the one column rather than its fields."""
        self._read = kind.FromString
        self._plan = plan
        self._is_single = is_single

    def columns(self, payloads: Sequence[bytes]) -> Columns:
        """The wanted columns, and the errors of malformed payloads."""
        builder = Builder(_MessageSource())
        rows: list[object] = []
        good: list[int] = []
        for number, payload in enumerate(payloads):
            try:
                rows.append(self._read(payload))
                good.append(number)
            except DecodeError as error:
                builder.notes[number] = f"not a valid Protobuf message: {error}"
        owners = np.array(good, np.int64)
        if self._is_single:
            arrays = [builder.build(only_plan(self._plan), rows, owners)]
        else:
            arrays = builder.columns(self._plan, rows, owners)
        return Columns(
            [builder.placed(each, good, len(payloads)) for each in arrays], builder.notes
        )


class _MessageSource:
    """Values as Protobuf messages."""

    def field(self, number: int, part: Part) -> Callable[[object], object]:
        """By name; None for a field with presence that isn't set."""
        name, shape = part.name, part.shape

        def given(message: Any) -> object:
            return getattr(message, name) if message.HasField(name) else None

        if isinstance(shape, Union):
            return given
        if isinstance(shape, Array):
            return lambda message: list(getattr(message, name))
        if isinstance(shape, Map):
            return lambda message: dict(getattr(message, name).items())
        return lambda message: getattr(message, name)

    def branch(self, value: object) -> tuple[int, object]:
        """Messages have no unions of several."""
        return 0, value

    def leaves(self, leaf: Leaf, values: list[object]) -> tuple[pa.Array, Flags | None]:
        """Values for Arrow; enums by name, unknown ones by number."""
        if leaf.kind is Kind.ENUM:
            names: dict[object, str] = dict(zip(leaf.numbers, leaf.symbols, strict=True))
            texts = [None if v is None else names.get(v) or str(v) for v in values]
            return pa.array(texts, pa.string()), None
        if leaf.kind is Kind.UINT64:
            values = [None if v is None else decimal.Decimal(str(v)) for v in values]
        return pa.array(values, leaf_type(leaf)), None
