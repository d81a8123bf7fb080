"""JSON payloads by columns: of the SDK, of Java, and malformed ones."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from geminga.schema import Json, SchemaInfo, SchemaType
from pyspark_pulsar._decode._objects import Columns
from pyspark_pulsar._decode._readers import fields_of, reader_of
from pyspark_pulsar._decode._tests.samples import (
    LEAF_DEFINITIONS,
    UTC,
    expected,
    records,
    values,
)
from pyspark_pulsar._decode._tests.test_avro import broken, rows_of, told

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def info_of(*fields: tuple[str, Any]) -> SchemaInfo:
    made = [{"name": name, "type": kind} for name, kind in fields]
    text = json.dumps({"type": "record", "name": "R", "fields": made})
    return SchemaInfo("", SchemaType.JSON, text.encode())


def read(info: SchemaInfo, *payloads: bytes) -> Columns:
    return reader_of(info, fields_of(info), strict=True).columns(payloads)


def column(info: SchemaInfo, *payloads: bytes) -> list[Any]:
    found = read(info, *payloads)
    assert not found.notes
    return list(found.arrays[0].to_pylist())


@st.composite
def topics(draw: st.DrawFn) -> tuple[Any, list[Any], list[str]]:
    definition = draw(records(LEAF_DEFINITIONS, unions=False))
    some = draw(st.lists(values(definition), min_size=1, max_size=6))
    names = [each["name"] for each in definition["fields"]]
    return definition, some, draw(st.lists(st.sampled_from(names), min_size=1, unique=True))


@pytest.mark.slow
@relaxed
@given(topics())
def test_columns_equal_the_values_written_by_the_sdk(
    topic: tuple[Any, list[Any], list[str]],
) -> None:
    definition, some, names = topic
    assume("inf" not in repr(some))
    schema = Json(json.dumps(definition))
    payloads = [schema.encode(each) for each in some]
    for chosen in ([each["name"] for each in definition["fields"]], names):
        fields = [each for each in fields_of(schema.info) if each.name in chosen]
        columns = [each.name for each in fields]
        found = reader_of(schema.info, fields, strict=True).columns(payloads)
        assert not found.notes
        for array, field in zip(found.arrays, fields, strict=True):
            array.validate(full=True)
            assert array.type == field.type
        kept = [{name: expected(definition, each)[name] for name in columns} for each in some]
        assert told(rows_of(found, columns)) == told(kept)


@pytest.mark.slow
@relaxed
@given(topics(), st.integers(0, 1 << 32))
def test_broken_payloads_do_not_affect_others(
    topic: tuple[Any, list[Any], list[str]], seed: int
) -> None:
    definition, some, _ = topic
    chance = random.Random(seed)
    schema = Json(json.dumps(definition))
    good = [schema.encode(each) for each in some] * 3
    hit = set(chance.sample(range(len(good)), 2))
    payloads = [broken(each, chance) if n in hit else each for n, each in enumerate(good)]
    whole, found = read(schema.info, *good), read(schema.info, *payloads)
    assert set(found.notes) <= hit
    for one, other in zip(whole.arrays, found.arrays, strict=True):
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        assert all(told(a) == told(b) for n, (a, b) in enumerate(pairs) if n not in hit)


def test_fields_omitted_by_java_are_null_or_the_default() -> None:
    fields = [
        {"name": "a", "type": ["null", "string"], "default": None},
        {"name": "b", "type": "long"},
        {"name": "c", "type": "string", "default": "x"},
        {"name": "d", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
    ]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    info = SchemaInfo("", SchemaType.JSON, text.encode())
    found = read(info, b"{}", b'{"a":"y","b":1,"c":null,"d":[3,null],"e":{"f":[]}}')
    assert not found.notes
    assert rows_of(found, list("abcd")) == [
        {"a": None, "b": None, "c": "x", "d": [1, 2]},
        {"a": "y", "b": 1, "c": None, "d": [3, None]},
    ]


def test_numbers_without_a_json_form() -> None:
    info = info_of(("a", "double"))
    found = column(info, b'{"a":"NaN"}', b'{"a":"-Infinity"}', b'{"a":1}', b'{"a":1.5e3}')
    assert repr(found) == "[nan, -inf, 1.0, 1500.0]"


AT = datetime.datetime(2023, 11, 14, 22, 13, 20)


def at(micros: int) -> datetime.datetime:
    return AT.replace(microsecond=micros, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        ("timestamp-millis", "1700000000123", at(123000)),
        ("timestamp-millis", '"2023-11-14T22:13:20.123456Z"', at(123456)),
        ("timestamp-millis", '"2023-11-14T23:13:20+01:00"', at(0)),
        ("timestamp-micros", "1700000000123456", at(123456)),
        ("local-timestamp-micros", '"2023-11-14T22:13:20"', AT),
        ("time-micros", '"00:00:01.5"', 1_500_000),
        ("time-micros", "7", 7),
        ("time-millis", "7", 7000),
        ("date", "1", datetime.date(1970, 1, 2)),
        ("date", '"1970-01-02"', datetime.date(1970, 1, 2)),
    ],
)  # fmt: skip
def test_times_are_numbers_or_texts(kind: str, written: str, read: Any) -> None:
    base = "int" if kind in ("date", "time-millis") else "long"
    info = info_of(("a", {"type": base, "logicalType": kind}))
    payload = f'{{"a":{written}}}'.encode()
    assert column(info, payload) == [read]
    # Beside one of the other sort each is still itself.
    other = b'{"a":0}' if '"' in written else None
    if other is not None:
        assert column(info, payload, other)[0] == read


def test_decimals_and_bytes() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    found = column(info_of(("a", money)), b'{"a":"1.50"}', b'{"a":12.25}', b'{"a":3}')
    assert found == [Decimal("1.50"), Decimal("12.25"), Decimal("3.00")]
    assert column(info_of(("a", "bytes")), b'{"a":"AAH/"}') == [b"\x00\x01\xff"]
    assert list(read(info_of(("a", money)), b'{"a":"1.505"}', b'{"a":1}').notes) == [0]


def test_unions_of_several_types_are_texts() -> None:
    info = info_of(("a", ["null", "string", "long", {"type": "array", "items": "int"}]))
    found = column(info, b'{"a":"x"}', b'{"a":7}', b'{"a":[1, 2]}', b'{"a":null}', b"{}")
    assert found == ['"x"', "7", "[1, 2]", None, None]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"[]", b"7", b"null", b'{"a":"1"}', b'{"a":1}{"a":2}', b'{"a":1},', b'{"a":1.5}',
        b'{"a":2147483648}', b'{"a":true}', b'{"a":[1]}', b"\xff", b'{"a":1,}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_unfitting_values_are_malformed(payload: bytes) -> None:
    found = read(info_of(("a", "int")), b'{"a":1}', payload, b'{"a":2}')
    assert list(found.notes) == [1]
    assert found.arrays[0].to_pylist()[::2] == [1, 2]


def test_values_that_are_no_texts() -> None:
    info = info_of(("a", "string"), ("b", "string"))
    found = read(info, b'{"a":"\xff"}', b'{"a":"\\ud800","b":"ok"}', b'{"a":"ok"}')
    assert list(found.notes) == [0, 1]
    assert found.arrays[0][2].as_py() == "ok"


def test_values_that_are_no_objects() -> None:
    info = SchemaInfo("", SchemaType.JSON, b'{"type":"array","items":"int"}')
    assert fields_of(info)[0].name == "value"
    found = read(info, b"[1,2]", b"{}", b"[]")
    assert found.arrays[0].to_pylist() == [[1, 2], None, []]
    assert list(found.notes) == [1]


def test_nested_objects_and_maps() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": ["null", "int"]}]}
    info = info_of(
        ("a", inner),
        ("b", {"type": "map", "values": ["null", "I"]}),
        ("c", {"type": "enum", "name": "E", "symbols": ["U"]}),
    )
    found = read(info, b'{"a":{"x":1},"b":{"k":{"x":2},"l":null},"c":"U"}', b'{"a":null}')
    assert found.arrays[0].type == pa.struct([pa.field("x", pa.int32())])
    assert rows_of(found, list("abc")) == [
        {"a": {"x": 1}, "b": [("k", {"x": 2}), ("l", None)], "c": "U"},
        {"a": None, "b": None, "c": None},
    ]
