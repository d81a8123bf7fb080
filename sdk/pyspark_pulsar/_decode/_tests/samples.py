"""Random Avro definitions and values, and the columns' values for the SDK's values."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

from hypothesis import strategies as st

EPOCH = datetime.datetime(1970, 1, 1)
UTC = datetime.UTC
MICRO = datetime.timedelta(microseconds=1)


def _logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def _millis(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**precision - 1
    context = decimal.Context(prec=60)
    return st.integers(-most, most).map(lambda n: decimal.Decimal(n).scaleb(-scale, context))


_MOMENTS = st.datetimes(timezones=st.just(UTC))
_LOCAL = st.datetimes().map(lambda moment: moment.replace(fold=0))
_TIMES = st.times()
_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text()),
    ("bytes", st.binary()),
    (_logical("string", "uuid"), st.uuids()),
    (_logical("int", "date"), st.dates()),
    (_logical("int", "time-millis"), _TIMES.map(_millis)),
    (_logical("long", "time-micros"), _TIMES),
    (_logical("long", "timestamp-millis"), _MOMENTS.map(_millis)),
    (_logical("long", "timestamp-micros"), _MOMENTS),
    (_logical("long", "local-timestamp-millis"), _LOCAL.map(_millis)),
    (_logical("long", "local-timestamp-micros"), _LOCAL),
    (_logical("bytes", "decimal", precision=10, scale=2), _decimals(10, 2)),
    (_logical("bytes", "decimal", precision=38, scale=10), _decimals(38, 10)),
    ({"type": "fixed", "size": 3}, st.binary(min_size=3, max_size=3)),
    ({"type": "enum", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
]  # fmt: skip
LEAF_DEFINITIONS = [definition for definition, _ in _LEAVES]


def _fields(types: list[Any]) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "fields": fields}


def _is_union(definition: Any) -> bool:
    return isinstance(definition, list)


def definitions(leaves: list[Any], *, unions: bool) -> st.SearchStrategy[Any]:
    """Types; unions of several have branches that Python's types tell apart."""

    def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        plain = inner.filter(lambda each: not _is_union(each))
        made = [
            st.builds(lambda item: {"type": "array", "items": item}, inner),
            st.builds(lambda value: {"type": "map", "values": value}, inner),
            st.lists(inner, min_size=1, max_size=3).map(_fields),
            plain.map(lambda each: ["null", each]),
            plain.map(lambda each: [each, "null"]),
        ]
        if unions:
            made.append(
                st.permutations(["null", "long", "string", "boolean", "bytes", _fields(["int"])])
                .flatmap(lambda some: st.integers(2, len(some)).map(lambda n: list(some[:n])))
            )  # fmt: skip
        return st.one_of(made)

    return st.recursive(st.sampled_from(leaves), wider, max_leaves=5)


def records(leaves: list[Any], *, unions: bool) -> st.SearchStrategy[Any]:
    """Records with names for all that need one."""
    kinds = definitions(leaves, unions=unions)
    return st.lists(kinds, min_size=1, max_size=5).map(lambda types: named(_fields(types)))


def named(definition: Any) -> Any:
    """The definition with a name for each record, enum and fixed."""
    count = 0

    def of(part: Any) -> Any:
        nonlocal count
        if isinstance(part, list):
            return [of(each) for each in part]
        if not isinstance(part, dict):
            return part
        made = dict(part)
        if made["type"] in ("record", "enum", "fixed"):
            count += 1
            made["name"] = f"N{count}"
        if "fields" in made:
            made["fields"] = [{**each, "type": of(each["type"])} for each in made["fields"]]
        for key in ("items", "values"):
            if key in made:
                made[key] = of(made[key])
        return made

    return of(definition)


def values(definition: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as fastavro takes them."""
    if isinstance(definition, list):
        return st.one_of([values(each) for each in definition])
    if definition == "null":
        return st.none()
    kind = definition["type"] if isinstance(definition, dict) else definition
    if kind == "record":
        return st.fixed_dictionaries(
            {each["name"]: values(each["type"]) for each in definition["fields"]}
        )
    if kind == "array":
        return st.lists(values(definition["items"]), max_size=4)
    if kind == "map":
        return st.dictionaries(st.text(max_size=3), values(definition["values"]), max_size=3)
    plain = definition
    if isinstance(definition, dict):
        plain = {key: part for key, part in definition.items() if key != "name"}
    return next(strategy for known, strategy in _LEAVES if known == plain)


_BRANCHES: dict[type, str] = {int: "long", str: "string", bool: "boolean", bytes: "bytes"}


def expected(definition: Any, value: Any) -> Any:
    """The column's value, as by Arrow's `to_pylist`, for a value that the SDK decoded."""
    if value is None:
        return None
    if isinstance(definition, list):
        real = [each for each in definition if each != "null"]
        if len(real) == 1:
            return expected(real[0], value)
        made: dict[str, Any] = dict.fromkeys(f"member{number}" for number in range(len(real)))
        wanted = _BRANCHES.get(type(value))
        number = next(n for n, each in enumerate(real) if isinstance(each, dict) or each == wanted
                      if isinstance(each, dict) == isinstance(value, dict))  # fmt: skip
        made[f"member{number}"] = expected(real[number], value)
        return made
    kind = definition["type"] if isinstance(definition, dict) else definition
    if kind == "record":
        return {
            each["name"]: expected(each["type"], value[each["name"]])
            for each in definition["fields"]
        }
    if kind == "array":
        return [expected(definition["items"], each) for each in value]
    if kind == "map":
        return [(key, expected(definition["values"], each)) for key, each in value.items()]
    return plain(value)


def plain(value: Any) -> Any:
    """The same of a value without parts."""
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, datetime.time):
        return (datetime.datetime.combine(EPOCH, value) - EPOCH) // MICRO
    return value
