"""Encodes Arrow columns as JSON objects, all rows of a batch at once (spec SP-06; JSONSchema of the
Java client: bytes as Base64, enums by name, times as the numbers of their Avro types).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pulsar._encode import _columns as columns
from pyspark_pulsar._encode._cells import Mask, all_of
from pyspark_pulsar._encode._plan import Plan
from pyspark_pulsar.errors import SchemaMismatch

_encoder = msgspec.json.Encoder()


def json_rows(plan: Plan, array: pa.Array) -> list[bytes]:
    """The JSON of each row, without white space; `null` for null rows. Raises SchemaMismatch for a
    value that the definition or JSON doesn't allow.
    """
    values = _values(plan, array, columns.valid(array))
    # Line ends in strings are escaped, so the remaining ones separate the rows.
    lines = _encoder.encode_lines(values).split(b"\n")
    return lines[: len(values)]


def _values(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    """Values for msgspec, None for nulls."""
    found = columns.present_in(plan, array, present)
    values = _VALUES[plan.kind](plan, array, found)
    if found.all():
        return values
    return [value if here else None for value, here in zip(values, found.tolist(), strict=True)]


def _null(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    return [None] * len(array)


def _whole(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    found: list[Any] = columns.whole(plan, array).tolist()
    return found


def _boolean(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    found: list[Any] = columns.flags(array).astype(np.bool_).tolist()
    return found


def _real(kind: pa.DataType) -> Callable[[Plan, pa.Array, Mask], list[Any]]:
    def listed(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
        found = columns.real(array, kind)
        wrong = ~np.isfinite(found) & present
        if wrong.any():
            value = float(found[int(np.argmax(wrong))])
            raise SchemaMismatch(
                f"column {plan.column}",
                f"has {value}, which JSON can't represent; use schemaType=avro",
            )
        if kind == pa.float32():
            # As the shortest text of the float, not of the double that it converts to.
            shortest = pc.fill_null(array.cast(kind).cast(pa.string()), "0")
            return [float(text) for text in shortest.to_pylist()]
        values: list[Any] = found.tolist()
        return values

    return listed


def _text(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    found: list[Any] = array.to_pylist()
    return found


def _fixed(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    found: list[Any] = columns.fixed_texts(plan, array, present).to_pylist()
    return found


def _enum(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    columns.symbols(plan, array, present)
    return _text(plan, array, present)


def _decimal(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    wanted = pa.decimal128(38, plan.scale)
    found: list[decimal.Decimal | None] = pc.cast(array, wanted).to_pylist()
    return found


def _record(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    names = [each.name for each in array.type]
    fields = dict(zip(names, array.flatten(), strict=True))
    known = [(name, child) for name, child in plan.children if name in fields]
    lists = [_values(child, fields[name], present) for name, child in known]
    # Nullable fields without a column are left out, as by the Java client.
    keys = [name for name, _ in known]
    if not keys:
        return [{} for _ in range(len(array))]
    return [dict(zip(keys, row, strict=True)) for row in zip(*lists, strict=True)]


def _array(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    ((_, child),) = plan.children
    array = columns.tidy(array, present)
    offsets, begin, end = columns.span(array)
    items = _values(child, array.values[begin:end], all_of(end - begin))
    edges = offsets.tolist()
    return [items[a:b] for a, b in pairwise(edges)]


def _map(plan: Plan, array: pa.Array, present: Mask) -> list[Any]:
    ((_, child),) = plan.children
    array = columns.tidy(array, present)
    offsets, begin, end = columns.span(array)
    keys = array.keys[begin:end].to_pylist()
    items = _values(child, array.items[begin:end], all_of(end - begin))
    edges = offsets.tolist()
    return [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(edges)]


_VALUES: dict[str, Callable[[Plan, pa.Array, Mask], list[Any]]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole,
    "long": _whole,
    "float": _real(pa.float32()),
    "double": _real(pa.float64()),
    "string": _text,
    "bytes": _text,
    "fixed": _fixed,
    "enum": _enum,
    "decimal": _decimal,
    "record": _record,
    "array": _array,
    "map": _map,
}
