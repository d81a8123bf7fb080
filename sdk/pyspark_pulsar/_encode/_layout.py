"""The roles of a DataFrame's columns: payload, or metadata of the message (spec SP-06)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark.sql import types as t

from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar._encode._spark_types import simple_name
from pyspark_pulsar._options._write_options import WriteOptions
from pyspark_pulsar.errors import InvalidOption, SchemaMismatch

_TEXTS = ("string", "binary")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_ROLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "__topic": ("topic", ("string",)),
    "__key": ("key", _TEXTS),
    "__keybytes": ("key_bytes", ("binary",)),
    "__eventtime": ("event_time", ("timestamp",)),
    "__messageproperties": ("properties", ("map<string,string>",)),
    "__properties": ("properties", ("map<string,string>",)),
    "__orderingkey": ("ordering_key", _TEXTS),
    "__partition": ("partition", _WHOLE),
}
"""Column, in lower case -> its role, and Spark's types allowed for it."""
_LEFT_OUT = frozenset(
    name.lower()
    for name in (
        "__messageId",
        "__messageIdBytes",
        "__ledgerId",
        "__entryId",
        "__batchIndex",
        "__publishTime",
        "__sequenceId",
        "__producerName",
        "__redeliveryCount",
        "__schemaVersion",
    )
)
"""Columns of a read that the broker or the producer sets."""


@dataclass(frozen=True)
class Layout:
    """The column of each role; plain data that pickles. Missing columns are None."""

    values: tuple[str, ...]
    topic: str | None = None
    key: str | None = None
    event_time: str | None = None
    properties: str | None = None
    ordering_key: str | None = None
    partition: str | None = None


@dataclass(frozen=True)
class Frame:
    """How a DataFrame is written: its layout and its messages' schema."""

    layout: Layout
    info: SchemaInfo
    is_struct: bool = False
    """Whether the record is a struct in the one column, rather than the columns."""
    halves: tuple[Frame, ...] = ()
    """With pairs: the frames of the columns `key` and `value`."""
    is_separated: bool = False
    """With pairs: whether the key is the message's key."""

    @property
    def is_record(self) -> bool:
        """Whether payloads are Avro or JSON."""
        return self.info.type in (SchemaType.AVRO, SchemaType.JSON)

    @property
    def definition(self) -> object:
        """The Avro definition of a record."""
        return json.loads(self.info.schema)


def layout_of(schema: t.StructType, options: WriteOptions) -> Layout:
    """The roles of the columns. Raises SchemaMismatch and InvalidOption, naming the column."""
    roles: dict[str, str] = {}
    values: list[str] = []
    for each in schema.fields:
        role = _ROLES.get(each.name.lower())
        if role is not None:
            _check_role(each, role[1], roles.get(role[0]))
            roles[role[0]] = each.name
        elif each.name.lower() not in _LEFT_OUT:
            values.append(each.name)
    if not values:
        raise SchemaMismatch(
            "the frame", "has no column for the payload; add one, for instance value"
        )
    _check_topic(options, roles.get("topic"))
    key_bytes = roles.pop("key_bytes", None)
    key = roles.pop("key", None) or key_bytes
    if options.key_field is not None:
        key = _key_field(schema, options.key_field, key)
    return Layout(tuple(values), key=key, **roles)


def _check_role(each: t.StructField, allowed: tuple[str, ...], other: str | None) -> None:
    if other is not None:
        raise SchemaMismatch(f"column {each.name}", f"means the same as {other}; drop one of them")
    kind = each.dataType
    name = kind.simpleString() if isinstance(kind, t.MapType) else simple_name(kind)
    if name not in allowed:
        raise SchemaMismatch(
            f"column {each.name}",
            f"must be {' or '.join(allowed)}, not {kind.simpleString()}; cast it",
        )


def _check_topic(options: WriteOptions, column: str | None) -> None:
    if options.topic is None and column is None:
        raise InvalidOption("topic", "must be given, or a column __topic")
    if options.topic is not None and column is not None:
        raise InvalidOption(
            "topic",
            f"can't be given beside the column {column}: drop the column to write all rows to "
            f"{options.topic}, or leave the option out",
        )


def _key_field(schema: t.StructType, name: str, column: str | None) -> str:
    if column is not None:
        raise InvalidOption("keyField", f"can't be given beside the column {column}")
    if name not in schema.fieldNames():
        raise InvalidOption("keyField", f"there is no column {name}")
    kind = schema[name].dataType
    if simple_name(kind) not in _TEXTS:
        raise InvalidOption(
            "keyField",
            f"column {name} must be string or binary, not {kind.simpleString()}; cast it",
        )
    return name
