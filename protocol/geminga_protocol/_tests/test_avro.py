"""Avro schemas: parsing, equality, compatibility."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_protocol.avro_resolve import can_read
from geminga_protocol.avro_schema import DEPTH_MAX, AvroSchema, AvroSchemaError, parse_avro, pretty

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def schema(source: object) -> AvroSchema:
    return parse_avro(json.dumps(source))


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    found = [{"name": each, "type": "int"} if isinstance(each, str) else each for each in fields]
    return {"type": "record", "name": name, "fields": found}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def numbered(source: Any, count: list[int]) -> Any:
    """The same schema with unique names of types and fields."""
    if isinstance(source, list):
        return [numbered(each, count) for each in source]
    if not isinstance(source, dict):
        return source
    found = {key: numbered(value, count) for key, value in source.items()}
    if found.get("type") in ("record", "enum", "fixed"):
        count[0] += 1
        found["name"] = f"T{count[0]}"
    for index, each in enumerate(found.get("fields", ())):
        each["name"] = f"f{index}"
    return found


def _nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.builds(lambda kind: {"name": "", "type": kind}, inner), max_size=3)
    return st.one_of(
        st.builds(lambda kind: {"type": "array", "items": kind}, inner),
        st.builds(lambda kind: {"type": "map", "values": kind}, inner),
        st.builds(lambda found: {"type": "record", "name": "", "fields": found}, fields),
        st.builds(lambda kind: ["null", kind], inner.filter(_is_branch)),
    )


def _is_branch(kind: Any) -> bool:
    return kind != "null" and not isinstance(kind, list)


SCHEMAS = st.recursive(
    st.sampled_from(PRIMITIVES)
    | st.just({"type": "enum", "name": "", "symbols": ["A", "B"]})
    | st.just({"type": "fixed", "name": "", "size": 4}),
    _nest,
    max_leaves=6,
).map(lambda source: numbered(copy.deepcopy(source), [0]))

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from((*PRIMITIVES, "record", "enum", "array", "x", "", "R")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("type", "name", "fields", "symbols", "size", "items", "aliases")),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(SCHEMAS)
def test_every_schema_reads_itself_and_equals_itself_however_it_is_written(source: Any) -> None:
    one = schema(source)
    other = parse_avro(json.dumps(source, indent=3, sort_keys=True))
    assert one.canonical == other.canonical
    assert can_read(one, other)


@given(SCHEMAS, SCHEMAS)
def test_a_union_of_both_reads_both(left: Any, right: Any) -> None:
    one = schema(left)
    if isinstance(left, list) or isinstance(right, list):
        return
    both = numbered(copy.deepcopy([left, right]), [0])
    try:
        union = schema(both)
    except AvroSchemaError:
        return  # the same branch twice
    assert can_read(one, union) or "enum" in str(both) or "fixed" in str(both)
    assert can_read(union, union)
    assert can_read(union, one) <= (can_read(one, one) and can_read(schema(both[1]), one))


@given(SCHEMAS)
def test_a_field_with_default_may_come_and_go(source: Any) -> None:
    plain = {"type": "record", "name": "Root", "fields": [field("a", source)]}
    more = copy.deepcopy(plain)
    more["fields"].append(field("b", "int", default=3))
    assert can_read(schema(plain), schema(more))
    assert can_read(schema(more), schema(plain))
    del more["fields"][1]["default"]
    assert not can_read(schema(plain), schema(more))


@given(JSON)
def test_invalid_schemas_raise_avro_schema_error(source: Any) -> None:
    try:
        parsed = schema(source)
    except AvroSchemaError:
        return
    assert can_read(parsed, parsed) or "default" in str(source)


@given(st.text(max_size=40))
def test_any_text(text: str) -> None:
    try:
        parse_avro(text)
    except AvroSchemaError:
        return


def test_depth_has_a_bound() -> None:
    source: Any = "int"
    for _ in range(DEPTH_MAX + 5):
        source = {"type": "array", "items": source}
    with pytest.raises(AvroSchemaError):
        schema(source)
    with pytest.raises(AvroSchemaError):
        parse_avro('{"type":"array","items":' * 100_000)


def test_deepest_records_are_read() -> None:
    source: Any = "int"
    for depth in range(DEPTH_MAX // 2):
        source = record(field("a", [source, "null"] if depth % 2 else source), name=f"R{depth}")
    assert can_read(schema(source), schema(source))


LINKED = record("value", field("next", ["null", "R"], default=None))


@pytest.mark.parametrize(
    ("writer", "reader", "readable"),
    [
        ("int", "long", True),
        ("int", "string", False),
        ("long", "int", False),
        ("float", "double", True),
        ("string", "bytes", True),
        ("bytes", "string", True),
        ("int", ["null", "int"], True),
        ("int", ["null", "double"], True),
        ("int", ["null", "string"], False),
        (["null", "int"], "int", False),
        (["int"], "long", True),
        (["int", "null"], ["null", "int"], True),
        (record("a"), record("a", name="Other"), True),
        (record("a", "b"), record("a"), True),
        (record("a"), record("a", "b"), False),
        (record("old"), record(field("new", "int", aliases=["old"])), True),
        (LINKED, LINKED, True),
        (LINKED, {**LINKED, "fields": [field("v", "int")]}, False),
        (record("a"), record("a", field("b", "int", default="x")), False),
        (record("a"), record("a", field("b", ["null", "int"], default=None)), True),
        (record("a"), record("a", field("b", ["null", "int"], default=1)), False),
        (record("a"), record("a", field("b", {"type": "array", "items": "int"}, default=[])), True),
        (record("a"), record("a", field("b", record("x", name="X"), default={})), False),
    ],
)
def test_reading(writer: Any, reader: Any, readable: bool) -> None:
    assert can_read(schema(writer), schema(reader)) is readable


def test_names_matter_as_in_java() -> None:
    def enum(name: str, *symbols: str) -> AvroSchema:
        return schema({"type": "enum", "name": name, "symbols": list(symbols)})

    def fixed(name: str, size: int) -> AvroSchema:
        return schema({"type": "fixed", "name": name, "size": size})

    assert can_read(enum("E", "A", "B"), enum("E", "A"))
    assert can_read(enum("a.E", "A"), enum("b.E", "A"))
    assert not can_read(enum("E", "A"), enum("F", "A"))
    assert can_read(fixed("F", 3), fixed("F", 3))
    assert not can_read(fixed("F", 3), fixed("F", 4))
    assert not can_read(fixed("F", 3), fixed("G", 3))
    renamed = {"type": "enum", "name": "F", "symbols": ["A"], "aliases": ["E"]}
    assert can_read(enum("E", "A"), schema(renamed))
    assert not can_read(enum("D", "A"), schema(renamed))


def test_a_record_finds_the_branch_that_it_fits() -> None:
    written = schema(record("a"))
    asks_more, fits = record("a", "b", name="X"), record("a", name="Y")
    assert can_read(written, schema([asks_more, fits]))
    assert not can_read(written, schema([asks_more]))


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (record("a"), record("a") | {"doc": "d"}, True),
        (record("a"), record("a") | {"extra": 1}, False),
        (record("a"), record("a", name="n.R"), False),
        (record("a"), record("a", name="n.R") | {"namespace": "n"}, False),
        (record("a", name="n.R"), record("a") | {"namespace": "n"}, True),
        (record(field("a", "int", default=1)), record(field("a", "int", default=1.0)), False),
        (record(field("a", "int", default=1)), record("a"), False),
        (record(field("a", ["null"], default=None)), record(field("a", ["null"])), False),
        (record("a", "b"), record("b", "a"), False),
        (
            record(field("a", {"type": "long", "logicalType": "timestamp-millis"})),
            record(field("a", "long")),
            False,
        ),
    ],
)
def test_equality(one: Any, other: Any, equal: bool) -> None:
    assert (schema(one).canonical == schema(other).canonical) is equal


def test_pretty_is_as_java_prints() -> None:
    text = pretty(record("a") | {"fields": [field("a", ["null", "int"], default=None)], "x": {}})
    assert text == (
        '{\n  "type" : "record",\n  "name" : "R",\n  "fields" : [ {\n    "name" : "a",\n'
        '    "type" : [ "null", "int" ],\n    "default" : null\n  } ],\n  "x" : { }\n}'
    )
