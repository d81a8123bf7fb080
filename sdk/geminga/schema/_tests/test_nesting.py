"""Payloads that are dangerous for fastavro's C code are refused, others pass."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.errors import UndecodableValueError
from geminga.schema import Avro
from geminga.schema._nesting import NESTING_MAX, guard_of

LIST = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "value", "type": ["null", "string", "double", {"type": "array", "items": "long"}]},
        {"name": "tags", "type": {"type": "map", "values": "boolean"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "next", "type": ["null", "Node"]},
    ],
}
CHAIN = {
    "type": "record",
    "name": "Chain",
    "fields": [{"name": "next", "type": ["null", "Chain"]}],
}
NOTHINGS = {
    "type": "record",
    "name": "Nothings",
    "fields": [{"name": "all", "type": {"type": "array", "items": "null"}}],
}
SCHEMAS = [Avro(definition) for definition in (LIST, CHAIN, NOTHINGS)]

values = st.one_of(
    st.none(), st.text(max_size=9), st.floats(allow_nan=False), st.lists(st.integers(-9, 9))
)
tags = st.dictionaries(st.text(max_size=5), st.booleans(), max_size=3)
nodes = st.recursive(
    st.none(),
    lambda inner: st.fixed_dictionaries(
        {
            "value": values,
            "tags": tags,
            "kind": st.sampled_from(["A", "B"]),
            "mark": st.binary(min_size=2, max_size=2),
            "next": inner,
        }
    ),
    max_leaves=9,
).filter(bool)


@given(nodes)
@pytest.mark.slow
def test_what_fastavro_writes_is_walked_to_its_end(node: dict[str, object]) -> None:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(LIST), node)
    guard = guard_of(json.dumps(LIST))
    assert guard is not None
    guard(buffer.getvalue())
    with pytest.raises(ValueError, match="it ends within"):
        guard(buffer.getvalue()[:-1])
    assert SCHEMAS[0].decode(buffer.getvalue()) == node


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    for schema in SCHEMAS:
        try:
            schema.decode(data)
        except UndecodableValueError:
            continue


def test_a_payload_nested_too_deep_is_refused_and_ends_no_process() -> None:
    schema = Avro(CHAIN)
    deepest = NESTING_MAX // 2 - 1
    found: object = schema.decode(b"\x02" * deepest + b"\x00")
    for _ in range(deepest):
        assert isinstance(found, dict)
        found = found["next"]
    assert found == {"next": None}
    with pytest.raises(UndecodableValueError, match="nested deeper than 1000 levels"):
        schema.decode(b"\x02" * 1_000_000 + b"\x00")


def test_items_without_bytes_are_bounded() -> None:
    assert Avro(NOTHINGS).decode(b"\x06\x00") == {"all": [None] * 3}
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"
    with pytest.raises(UndecodableValueError, match="announces"):
        Avro(NOTHINGS).decode(huge)


def test_plain_schemas_need_no_look() -> None:
    plain = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "long"}]}
    twice = {
        "type": "record",
        "name": "Twice",
        "fields": [{"name": "a", "type": plain}, {"name": "b", "type": ["null", "P"]}],
    }
    assert guard_of(json.dumps(plain)) is None
    assert guard_of(json.dumps(twice)) is None
