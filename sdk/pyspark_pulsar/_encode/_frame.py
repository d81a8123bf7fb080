"""What a frame's columns are for: the payload, or what describes the message (spec SP-06)."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as t

from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar._encode._plan import Plan, Planner
from pyspark_pulsar._encode._single import INFOS, check_single
from pyspark_pulsar._encode._spark_types import Definer, arrow_of, simple_name
from pyspark_pulsar._options._write_options import SchemaChoice, WriteOptions
from pyspark_pulsar.errors import InvalidOption, SchemaMismatch

VALUE = "value"
"""The column that is the whole payload when no other is."""
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
"""Column, in small letters -> what it is for, and Spark's types that it may have."""
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
"""Columns of a read that the broker or the producer makes anew."""


@dataclass(frozen=True)
class Layout:
    """Which column is what; plain data that pickles. Columns that a frame hasn't are None."""

    values: tuple[str, ...]
    topic: str | None = None
    key: str | None = None
    event_time: str | None = None
    properties: str | None = None
    ordering_key: str | None = None
    partition: str | None = None


@dataclass(frozen=True)
class Frame:
    """How a frame is written: its layout and its messages' schema."""

    layout: Layout
    info: SchemaInfo
    is_struct: bool = False
    """Whether the record is what stands in the one column `value`, not the columns."""

    @property
    def is_record(self) -> bool:
        """Whether payloads are records, of Avro or JSON."""
        return self.info.type in (SchemaType.AVRO, SchemaType.JSON)

    @property
    def definition(self) -> object:
        """The Avro definition of a record."""
        return json.loads(self.info.schema)


def schema_of_frame(schema: t.StructType, options: WriteOptions) -> SchemaInfo:
    """The schema that messages of such a frame get. Raises SchemaMismatch and InvalidOption."""
    return frame_of(schema, options).info


def layout_of(schema: t.StructType, options: WriteOptions) -> Layout:
    """What each column is for. Raises SchemaMismatch and InvalidOption, naming the column."""
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


def frame_of(
    schema: t.StructType, options: WriteOptions, topic_info: SchemaInfo | None = None
) -> Frame:
    """How such a frame is written, with the topic's schema where that is asked for. Raises
    SchemaMismatch and InvalidOption.
    """
    layout = layout_of(schema, options)
    choice = options.schema_choice
    if choice is SchemaChoice.TOPIC:
        frame = _by_topic(layout, schema, topic_info)
    elif choice in (SchemaChoice.BYTES, SchemaChoice.STRING):
        kind = "binary" if choice is SchemaChoice.BYTES else "string"
        frame = Frame(_alone(layout, schema, options), INFOS[kind])
    else:
        frame = _by_columns(layout, schema, options)
    arrow = pa.schema([(name, arrow_of(schema[name].dataType, name)) for name in layout.values])
    plan_for(frame, arrow)
    return frame


def plan_for(frame: Frame, arrow: pa.Schema) -> Plan:
    """How the columns of the payload are written by the schema. Raises SchemaMismatch if they
    can't be.
    """
    if not frame.is_record:
        column = arrow.field(0)
        check_single(frame.info, column.type, column.name)
        return Plan("single", column.name)
    planner = Planner(frame.definition)
    if frame.is_struct:
        return planner.plan(frame.definition, arrow.field(0).type, VALUE)
    return planner.record(frame.definition, ((each.name, each.type) for each in arrow))


def _alone(layout: Layout, schema: t.StructType, options: WriteOptions) -> Layout:
    """A key that is a column by itself is no part of the payload here."""
    left = [name for name in layout.values if name != options.key_field] or list(layout.values)
    if len(left) != 1:
        raise SchemaMismatch(
            f"columns {', '.join(left)}",
            f"can't all be the payload with schemaType={options.schema_choice.value}; select one",
        )
    return Layout(
        (left[0],),
        layout.topic,
        layout.key,
        layout.event_time,
        layout.properties,
        layout.ordering_key,
        layout.partition,
    )


def _by_columns(layout: Layout, schema: t.StructType, options: WriteOptions) -> Frame:
    only = schema[VALUE].dataType if layout.values == (VALUE,) else None
    if only is not None and options.schema_choice is SchemaChoice.AUTO:
        single = INFOS.get(simple_name(only))
        if single is not None:
            return Frame(layout, single)
    is_struct = isinstance(only, t.StructType)
    columns = t.StructType([schema[name] for name in layout.values])
    record = only if isinstance(only, t.StructType) else columns
    space, _, name = options.record_name.rpartition(".")
    made = Definer().record(record, name, VALUE if is_struct else "")
    if space:
        made = {"type": "record", "name": name, "namespace": space, "fields": made["fields"]}
    is_json = options.schema_choice is SchemaChoice.JSON
    text = json.dumps(made, separators=(",", ":"))
    kind = SchemaType.JSON if is_json else SchemaType.AVRO
    return Frame(layout, SchemaInfo(name, kind, text.encode()), is_struct)


def _by_topic(layout: Layout, schema: t.StructType, info: SchemaInfo | None) -> Frame:
    if info is None:
        raise InvalidOption(
            "schemaType", "is topic, but the topic has no schema; give avro, json, bytes or auto"
        )
    is_record = info.type in (SchemaType.AVRO, SchemaType.JSON)
    if is_record:
        is_struct = layout.values == (VALUE,) and isinstance(schema[VALUE].dataType, t.StructType)
        return Frame(layout, info, is_struct)
    if len(layout.values) != 1:
        raise SchemaMismatch(
            f"columns {', '.join(layout.values)}",
            f"can't all be the payload: the topic's schema is {info.type.name}; select one",
        )
    return Frame(layout, info)
