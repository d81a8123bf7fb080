"""The value columns of a topic (spec SP-02)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField

from geminga.schema import SchemaInfo
from pyspark_pulsar._columns import METADATA
from pyspark_pulsar._values._readers import NO_SCHEMA, VALUE, fields_of
from pyspark_pulsar._values._shapes import check_names
from pyspark_pulsar.errors import SchemaMismatch


@dataclass(frozen=True)
class ValueColumn:
    """A column of messages' values. `path` leads to it in the topic's schema; it is empty if the
    column is the whole value.
    """

    name: str
    arrow: pa.Field
    spark: StructField
    path: tuple[str, ...]


def columns_of(info: SchemaInfo | None) -> tuple[ValueColumn, ...]:
    """The columns of a topic with that schema, None for no schema: the fields of records, `key` and
    `value` of pairs, else one `value`. All may be null.

    Raises SchemaMismatch, naming the field, for what no column can be.
    """
    fields = fields_of(info or NO_SCHEMA)
    check_names((each.name for each in fields), "")
    taken = {each.lower() for each in METADATA}
    made: list[ValueColumn] = []
    for each in fields:
        if each.name.lower() in taken:
            raise SchemaMismatch(
                each.name,
                "a column with metadata of messages has this name; read with a schema of your own "
                "that leaves the field out",
            )
        kind = from_arrow_type(each.type, prefer_timestamp_ntz=True)
        is_whole = len(fields) == 1 and each.name == VALUE
        spark = StructField(each.name, kind, nullable=True)
        made.append(ValueColumn(each.name, each, spark, () if is_whole else (each.name,)))
    return tuple(made)
