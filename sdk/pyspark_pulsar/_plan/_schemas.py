"""Schemas of a planned read: its default columns, and a check of the columns that a user asks for
(spec SP-02, SP-10).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import geminga.blocking
from geminga.schema import SchemaInfo
from pyspark_pulsar._clients import for_each
from pyspark_pulsar._decode import check_columns, columns_of
from pyspark_pulsar._decode._metadata import arrow_schema, default_fields, is_metadata
from pyspark_pulsar._decode._metadata import check_columns as check_metadata
from pyspark_pulsar._options import ReadOptions
from pyspark_pulsar._options._parser import nearest
from pyspark_pulsar._positions import TopicPartition
from pyspark_pulsar.errors import SchemaMismatch

logger = logging.getLogger("pyspark_pulsar")

NO_SCHEMA = "bytes, no schema"


def default_schema(
    client: geminga.blocking.Client, options: ReadOptions, parts: Sequence[TopicPartition]
) -> StructType:
    """The value's columns by the topics' schemas, then the metadata columns. Raises SchemaMismatch
    if topics differ and must not, or two columns have the same name.
    """
    infos = _infos(client, options, parts)
    if _differ(infos):
        if not options.allow_different_topic_schemas:
            raise _difference(infos)
        logger.warning("the topics have different schemas: values are read as bytes")
        infos = {}
    info = next(iter(infos.values()), None)
    fields = [column.spark for column in columns_of(info)]
    corrupt = options.corrupt_record_column
    if corrupt is not None:
        taken = {field.name.lower() for field in fields}
        if is_metadata(corrupt) or corrupt.lower() in taken:
            raise SchemaMismatch(
                f"column {corrupt}",
                "already exists: choose another name by columnNameOfCorruptRecord",
            )
        fields.append(StructField(corrupt, StringType()))
    return StructType(fields + default_fields(include_properties=options.include_properties))


def checked_options(
    client: geminga.blocking.Client,
    options: ReadOptions,
    parts: Sequence[TopicPartition],
    schema: StructType,
) -> ReadOptions:
    """The options, with `schema_mode` raw if topics differ and are read as bytes. Raises
    SchemaMismatch, naming the column and what the topic has, if a topic can't provide a column of
    the schema.
    """
    check_metadata(schema)
    _check_corrupt(options, schema)
    values = StructType(
        [
            field
            for field in schema.fields
            if not is_metadata(field.name) and field.name != options.corrupt_record_column
        ]
    )
    if not values.fields:
        return options
    infos = _infos(client, options, parts)
    if options.allow_different_topic_schemas and _are_bytes(values) and _differ(infos):
        return replace(options, schema_mode="raw")
    for topic, info in infos.items():
        _check_values(topic, info, values)
    return options


def _infos(
    client: geminga.blocking.Client, options: ReadOptions, parts: Sequence[TopicPartition]
) -> dict[str, SchemaInfo | None]:
    """The newest schema of each topic; None with `schemaMode=raw`."""
    topics = list(dict.fromkeys(part.parent for part in parts))
    if options.schema_mode == "raw":
        return dict.fromkeys(topics[:1])
    return dict(zip(topics, for_each(client.get_schema, topics), strict=True))


def _differ(infos: Mapping[str, SchemaInfo | None]) -> bool:
    """Whether the topics' columns differ. Definitions may differ in form only."""
    known = {_key(info): info for info in infos.values()}
    if len(known) < 2:
        return False
    each = [columns_of(info) for info in known.values()]
    return any(columns != each[0] for columns in each)


def _key(info: SchemaInfo | None) -> tuple[object, bytes] | None:
    return None if info is None else (info.type, info.schema)


def _difference(infos: Mapping[str, SchemaInfo | None]) -> SchemaMismatch:
    (topic, info), *others = infos.items()
    other, unlike = next(
        (name, each) for name, each in others if columns_of(each) != columns_of(info)
    )
    return SchemaMismatch(
        f"topic {other}",
        f"its schema ({_told(unlike)}) is not that of topic {topic} ({_told(info)}); give a schema "
        "of columns that both have, or allowDifferentTopicSchemas=true to read bytes",
    )


def _told(info: SchemaInfo | None) -> str:
    if info is None:
        return NO_SCHEMA
    columns = ", ".join(f"{c.name} {c.spark.dataType.simpleString()}" for c in columns_of(info))
    return f"{info.type.name}: {columns}"


def _are_bytes(values: StructType) -> bool:
    return [(field.name, field.dataType) for field in values] == [("value", BinaryType())]


def _check_corrupt(options: ReadOptions, schema: StructType) -> None:
    name = options.corrupt_record_column
    if name is None:
        return
    found = next((field for field in schema.fields if field.name == name), None)
    if found is None:
        reason = "columnNameOfCorruptRecord names it, but the schema doesn't have it"
        raise SchemaMismatch(f"column {name}", reason)
    if not isinstance(found.dataType, StringType | BinaryType) or not found.nullable:
        raise SchemaMismatch(f"column {name}", "must be a nullable string or binary")


def _check_values(topic: str, info: SchemaInfo | None, values: StructType) -> None:
    try:
        check_columns(list(arrow_schema(values)), info)
    except SchemaMismatch as error:
        reason = f"{error.reason} (topic {topic}: {_told(info)})"
        known = [column.name for column in columns_of(info)]
        if error.subject.lower() not in {name.lower() for name in known}:
            hint = nearest(error.subject, known)
            reason += f"; {hint}" if hint else ""
        raise SchemaMismatch(f"column {error.subject}", reason) from None
