"""Converts Spark's types to Avro definitions and Arrow types (spec SP-06)."""

from __future__ import annotations

import json
import re

import pyarrow as pa
from pyspark.sql import types as t

from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar.errors import SchemaMismatch

Avro = str | list["Avro"] | dict[str, object]
"""An Avro definition."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: dict[str, tuple[Avro, pa.DataType]] = {
    "boolean": ("boolean", pa.bool_()),
    "tinyint": ("int", pa.int8()),
    "smallint": ("int", pa.int16()),
    "int": ("int", pa.int32()),
    "bigint": ("long", pa.int64()),
    "float": ("float", pa.float32()),
    "double": ("double", pa.float64()),
    "string": ("string", pa.string()),
    "binary": ("bytes", pa.binary()),
    "void": ("null", pa.null()),
    "date": ({"type": "int", "logicalType": "date"}, pa.date32()),
    "timestamp": ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
    "timestamp_ntz": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        pa.timestamp("us"),
    ),
    "time": ({"type": "long", "logicalType": "time-micros"}, pa.time64("ns")),
}
"""Spark's name of a type, without its parameters -> Avro and Arrow."""


def simple_name(kind: t.DataType) -> str:
    """The type's name without length, precision and collation: char, varchar and strings of any
    collation are strings.
    """
    name = kind.simpleString().partition("(")[0].partition(" ")[0]
    return "string" if name in ("char", "varchar") else name


class Definer:
    """Makes the definition of one record; nested records are named by their path, so that names are
    unique.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()

    def record(self, kind: t.StructType, name: str, where: str) -> dict[str, object]:
        """A record of a struct's fields, all nullable: Spark's nullability of a column differs
        between queries, which a topic's schema shouldn't. Raises SchemaMismatch.
        """
        self._names.add(name)
        fields: list[dict[str, object]] = []
        for each in kind.fields:
            place = f"{where}.{each.name}" if where else each.name
            if not _NAME.fullmatch(each.name):
                raise SchemaMismatch(
                    f"column {place}",
                    "is not a valid Avro name (letters, digits and _ only); rename it with alias",
                )
            if any(known["name"] == each.name for known in fields):
                raise SchemaMismatch(f"column {place}", "appears twice; rename one of them")
            made = self._optional(each.dataType, f"{name}_{each.name}", place)
            fields.append({"name": each.name, "type": made, "default": None})
        return {"type": "record", "name": name, "fields": fields}

    def _optional(self, kind: t.DataType, name: str, where: str) -> Avro:
        made = self.define(kind, name, where)
        return made if made == "null" else ["null", made]

    def define(self, kind: t.DataType, name: str, where: str) -> Avro:
        """The definition of any type; a record gets the name `name`. Raises SchemaMismatch, naming
        the column.
        """
        if isinstance(kind, t.DecimalType):
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": kind.precision,
                "scale": kind.scale,
            }
        if isinstance(kind, t.ArrayType):
            inner = self._optional(kind.elementType, name, f"{where}[]")
            if inner == "null":
                raise SchemaMismatch(
                    f"column {where}",
                    "is an array whose items have no type; cast it, for instance to array<string>",
                )
            return {"type": "array", "items": inner}
        if isinstance(kind, t.MapType):
            if simple_name(kind.keyType) != "string":
                raise SchemaMismatch(
                    f"column {where}",
                    f"is a map with keys of {kind.keyType.simpleString()}: only strings can be "
                    "keys in Avro and JSON; cast them",
                )
            inner = self._optional(kind.valueType, name, f"{where}[]")
            return {"type": "map", "values": inner}
        if isinstance(kind, t.StructType):
            return self.record(kind, self._free(name), where)
        return _simple(kind, where)[0]

    def _free(self, name: str) -> str:
        number = 1
        free = name
        while free in self._names:
            number += 1
            free = f"{name}_{number}"
        return free


def record_info(kind: t.StructType, of: SchemaType, full_name: str, where: str) -> SchemaInfo:
    """The schema of a struct as a record of Avro or JSON. Raises SchemaMismatch."""
    space, _, name = full_name.rpartition(".")
    made = Definer().record(kind, name, where)
    if space:
        made = {"type": "record", "name": name, "namespace": space, "fields": made["fields"]}
    return SchemaInfo(name, of, json.dumps(made, separators=(",", ":")).encode())


def _simple(kind: t.DataType, where: str) -> tuple[Avro, pa.DataType]:
    found = _SIMPLE.get(simple_name(kind))
    if found is None:
        raise SchemaMismatch(
            f"column {where}",
            f"is {kind.simpleString()}, which can't be written; cast it, for instance to string",
        )
    return found


def arrow_of(kind: t.DataType, where: str) -> pa.DataType:
    """The type in which Spark passes it to Python. Raises SchemaMismatch, naming the column."""
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        return pa.list_(arrow_of(kind.elementType, where))
    if isinstance(kind, t.MapType):
        return pa.map_(arrow_of(kind.keyType, where), arrow_of(kind.valueType, where))
    if isinstance(kind, t.StructType):
        return pa.struct(
            [pa.field(each.name, arrow_of(each.dataType, where)) for each in kind.fields]
        )
    return _simple(kind, where)[1]
