"""Chooses the schema of a DataFrame: by its columns, or the topic's own (spec SP-06)."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as t

from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar._encode._layout import Frame, Layout, layout_of
from pyspark_pulsar._encode._pairs import pair_of_columns, pair_of_topic
from pyspark_pulsar._encode._plan import Plan, Planner
from pyspark_pulsar._encode._single import INFOS, check_single
from pyspark_pulsar._encode._spark_types import arrow_of, record_info, simple_name
from pyspark_pulsar._options._write_options import SchemaChoice, WriteOptions
from pyspark_pulsar.errors import InvalidOption, SchemaMismatch

VALUE = "value"
"""The column that is the whole payload if it is the only one."""


def schema_of_frame(schema: t.StructType, options: WriteOptions) -> SchemaInfo:
    """The schema of a frame's messages. Raises SchemaMismatch and InvalidOption."""
    return frame_of(schema, options).info


def frame_of(
    schema: t.StructType, options: WriteOptions, topic_info: SchemaInfo | None = None
) -> Frame:
    """How a frame is written. `topic_info` is the topic's schema, if known. Raises SchemaMismatch
    and InvalidOption.
    """
    layout = layout_of(schema, options)
    choice = options.schema_choice
    if choice is SchemaChoice.TOPIC or (choice is SchemaChoice.AUTO and _are_pairs(topic_info)):
        frame = _by_topic(layout, schema, options, topic_info)
    elif choice is SchemaChoice.KEYVALUE:
        frame = pair_of_columns(layout, schema, options, topic_info)
    elif choice in (SchemaChoice.BYTES, SchemaChoice.STRING):
        kind = "binary" if choice is SchemaChoice.BYTES else "string"
        frame = Frame(_alone(layout, schema, options), INFOS[kind])
    else:
        frame = _by_columns(layout, schema, options)
    for each in frame.halves or (frame,):
        names = each.layout.values
        plan_for(each, pa.schema([(name, arrow_of(schema[name].dataType, name)) for name in names]))
    return frame


def _are_pairs(info: SchemaInfo | None) -> bool:
    return info is not None and info.type is SchemaType.KEY_VALUE


def plan_for(frame: Frame, arrow: pa.Schema) -> Plan:
    """How the payload's columns are encoded with the schema. Raises SchemaMismatch if they can't
    be.
    """
    if not frame.is_record:
        column = arrow.field(0)
        check_single(frame.info, column.type, column.name)
        return Plan("single", column.name)
    planner = Planner(frame.definition)
    if frame.is_struct:
        column = arrow.field(0)
        return planner.plan(frame.definition, column.type, column.name)
    return planner.record(frame.definition, ((each.name, each.type) for each in arrow))


def _alone(layout: Layout, schema: t.StructType, options: WriteOptions) -> Layout:
    """The payload's columns without a separate key column."""
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
    is_json = options.schema_choice is SchemaChoice.JSON
    kind = SchemaType.JSON if is_json else SchemaType.AVRO
    info = record_info(record, kind, options.record_name, VALUE if is_struct else "")
    return Frame(layout, info, is_struct)


def _by_topic(
    layout: Layout, schema: t.StructType, options: WriteOptions, info: SchemaInfo | None
) -> Frame:
    if info is None:
        raise InvalidOption(
            "schemaType", "is topic, but the topic has no schema; give avro, json, bytes or auto"
        )
    if info.type is SchemaType.KEY_VALUE:
        return pair_of_topic(layout, options, info)
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
