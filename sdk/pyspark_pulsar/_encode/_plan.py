"""Plans how Arrow columns become values of an Avro definition, once for each task.

The definition was made from the DataFrame, or is the topic's, whose types may be wider than the
columns'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.types as kinds

from pyspark_pulsar.errors import SchemaMismatch

DAY_US = 86_400_000_000
"""Microseconds of a day."""
_MICROS = {"timestamp-micros": 1, "local-timestamp-micros": 1, "time-micros": 1}
_MILLIS = {"timestamp-millis": 1000, "local-timestamp-millis": 1000, "time-millis": 1000}
_DIVISORS = {**_MICROS, **_MILLIS}


@dataclass(frozen=True)
class Plan:
    """How one column is written; `kind` is Avro's name of the type, or `decimal`."""

    kind: str
    column: str
    """The column's full name, for errors."""
    null_branch: int | None = None
    """The branch of null in a union; None if null isn't allowed."""
    branch: int = 0
    """The branch of the value's type in a union."""
    divisor: int = 0
    """Divisor of times in microseconds; 0 for other types."""
    end: int = 0
    """Exclusive upper bound of values before division, from 0; 0: unlimited."""
    size: int = 0
    """Size of a `fixed`."""
    scale: int = 0
    precision: int = 0
    symbols: tuple[str, ...] = ()
    children: tuple[tuple[str, Plan], ...] = ()
    """Fields of a record, by name, of kind `absent` for null without a column; items of an array or
    map, without name.
    """


class Planner:
    """Makes plans for one definition. Raises SchemaMismatch, naming the column."""

    def __init__(self, definition: object) -> None:
        self._named: dict[str, Mapping[str, object]] = {}
        self._learn(definition, "")

    def _learn(self, schema: object, space: str) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._learn(each, space)
        elif isinstance(schema, Mapping):
            name = schema.get("name")
            if schema.get("type") in ("record", "enum", "fixed") and isinstance(name, str):
                space = str(schema.get("namespace") or name.rpartition(".")[0] or space)
                short = name.rpartition(".")[2]
                self._named.setdefault(short, schema)
                self._named[f"{space}.{short}" if space else short] = schema
                for field in _fields(schema):
                    self._learn(field["type"], space)
            else:
                for part in ("type", "items", "values"):
                    self._learn(schema.get(part), space)

    def record(self, schema: object, columns: Iterator[tuple[str, pa.DataType]]) -> Plan:
        """The plan of a frame's columns as the fields of a record."""
        resolved = self._resolved(schema)
        if resolved.get("type") != "record":
            raise SchemaMismatch("the frame", "is a record, but the topic's schema is none")
        return self._record(resolved, dict(columns), "")

    def plan(self, schema: object, arrow: pa.DataType, column: str) -> Plan:
        """The plan of one column."""
        null_branch, branch = None, 0
        if isinstance(schema, list):
            others = [n for n, each in enumerate(schema) if each != "null"]
            null_branch = schema.index("null") if "null" in schema else None
            if len(others) != 1:
                if not others and kinds.is_null(arrow):
                    return Plan("null", column, null_branch, 0)
                raise SchemaMismatch(
                    f"column {column}", "is a union of several types in the topic's schema"
                )
            branch = others[0]
            schema = schema[branch]
        found = self._value(self._resolved(schema), arrow, column)
        return replace(found, null_branch=null_branch, branch=branch)

    def _value(self, schema: Mapping[str, object], arrow: pa.DataType, column: str) -> Plan:
        kind = str(schema["type"])
        if kind == "record" and kinds.is_struct(arrow):
            fields = {each.name: each.type for each in arrow}
            return self._record(schema, fields, column)
        if kind in ("array", "map"):
            inner = _inner(kind, arrow)
            if inner is not None:
                part = schema["items" if kind == "array" else "values"]
                child = self.plan(part, inner, f"{column}[]")
                return Plan(kind, column, children=(("", child),))
        elif kind != "record":
            simple = _simple(schema, kind, arrow, column)
            if simple is not None:
                return simple
        logical = schema.get("logicalType")
        told = f"{kind} ({logical})" if logical else kind
        raise SchemaMismatch(f"column {column}", f"is {arrow}, but {told} in the topic's schema")

    def _record(
        self, schema: Mapping[str, object], columns: dict[str, pa.DataType], column: str
    ) -> Plan:
        children: list[tuple[str, Plan]] = []
        left = dict(columns)
        for field in _fields(schema):
            name = str(field["name"])
            place = f"{column}.{name}" if column else name
            arrow = left.pop(name, None)
            if arrow is None:
                children.append((name, _absent(field["type"], place)))
            else:
                children.append((name, self.plan(field["type"], arrow, place)))
        if left:
            name = next(iter(left))
            place = f"{column}.{name}" if column else name
            raise SchemaMismatch(
                f"column {place}", "isn't in the topic's schema; drop it or rename it"
            )
        return Plan("record", column, children=tuple(children))

    def _resolved(self, schema: object) -> Mapping[str, object]:
        """The definition of a named type, as a mapping."""
        if isinstance(schema, Mapping):
            kind = schema.get("type")
            return self._resolved(kind) if isinstance(kind, Mapping) else schema
        return self._named.get(str(schema), {"type": schema})


def _fields(schema: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = schema.get("fields")
    return found if isinstance(found, list) else []


def _absent(schema: object, column: str) -> Plan:
    """A field without a column: null, if allowed."""
    if schema == "null":
        return Plan("null", column)
    if isinstance(schema, list) and "null" in schema:
        return Plan("absent", column, schema.index("null"))
    raise SchemaMismatch(
        f"column {column}", "is missing: it is in the topic's schema and can't be null"
    )


def _inner(kind: str, arrow: pa.DataType) -> pa.DataType | None:
    """The item type of an array or map."""
    if kind == "array" and (kinds.is_list(arrow) or kinds.is_large_list(arrow)):
        return arrow.value_type
    if kind == "map" and kinds.is_map(arrow) and is_text(arrow.key_type):
        return arrow.item_type
    return None


def is_text(arrow: pa.DataType) -> bool:
    """Whether the type is a string."""
    return bool(kinds.is_string(arrow) or kinds.is_large_string(arrow))


def is_bytes(arrow: pa.DataType) -> bool:
    """Whether the type is binary."""
    return bool(kinds.is_binary(arrow) or kinds.is_large_binary(arrow))


def is_time_of_day(arrow: pa.DataType) -> bool:
    """Whether the type is a time of day, or its microseconds as reads return it."""
    return bool(kinds.is_time64(arrow) or kinds.is_int64(arrow))


def _simple(
    schema: Mapping[str, object], kind: str, arrow: pa.DataType, column: str
) -> Plan | None:
    logical = str(schema.get("logicalType") or "")
    if kind == "null" or kinds.is_null(arrow):
        return Plan("null", column)
    if kind in ("bytes", "fixed") and logical == "decimal" and kinds.is_decimal128(arrow):
        scale, precision = _whole(schema, "scale"), _whole(schema, "precision")
        if arrow.scale > scale or arrow.precision - arrow.scale > precision - scale:
            return None
        size = _whole(schema, "size")
        return Plan("decimal", column, size=size, scale=scale, precision=precision)
    if kind == "fixed" and is_bytes(arrow):
        return Plan("fixed", column, size=_whole(schema, "size"))
    if kind == "enum" and is_text(arrow):
        listed = schema.get("symbols")
        symbols = tuple(map(str, listed)) if isinstance(listed, list) else ()
        return Plan("enum", column, symbols=symbols)
    if not _fits(kind, logical, arrow):
        return None
    end = DAY_US if logical.startswith("time-") else 0
    return Plan(kind, column, divisor=_DIVISORS.get(logical, 0), end=end)


def _whole(schema: Mapping[str, object], name: str) -> int:
    found = schema.get(name, 0)
    return found if isinstance(found, int) else 0


def _fits(kind: str, logical: str, arrow: pa.DataType) -> bool:
    """Whether all values of the column fit the type."""
    if kind in ("int", "long"):
        if logical == "date":
            return bool(kinds.is_date32(arrow))
        if logical.startswith("time-"):
            return is_time_of_day(arrow)
        if logical in _DIVISORS:
            is_local = logical.startswith("local-")
            return bool(kinds.is_timestamp(arrow)) and (arrow.tz is None) is is_local
        return bool(kinds.is_signed_integer(arrow)) and (kind == "long" or arrow.bit_width <= 32)
    if kind == "boolean":
        return bool(kinds.is_boolean(arrow))
    if kind == "float":
        return bool(kinds.is_float32(arrow))
    if kind == "double":
        is_small = kinds.is_signed_integer(arrow) and arrow.bit_width <= 32
        return bool(kinds.is_float32(arrow) or kinds.is_float64(arrow) or is_small)
    if kind == "string":
        return is_text(arrow)
    return kind == "bytes" and logical != "decimal" and is_bytes(arrow)
