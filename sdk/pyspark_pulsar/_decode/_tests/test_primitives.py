"""Primitive payloads by columns against the SDK's own decoders, one by one."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga import schema
from geminga.errors import UndecodableValueError
from pyspark_pulsar._decode._readers import fields_of, reader_of
from pyspark_pulsar._decode._tests.samples import UTC, plain

MOMENTS = st.datetimes(timezones=st.just(UTC))
KINDS: dict[str, tuple[schema.Schema[Any], st.SearchStrategy[Any]]] = {
    "boolean": (schema.Boolean(), st.booleans()),
    "int8": (schema.Int8(), st.integers(-(1 << 7), (1 << 7) - 1)),
    "int16": (schema.Int16(), st.integers(-(1 << 15), (1 << 15) - 1)),
    "int32": (schema.Int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "int64": (schema.Int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "float": (schema.Float(), st.floats(width=32)),
    "double": (schema.Double(), st.floats()),
    "string": (schema.String(), st.text()),
    "bytes": (schema.Bytes(), st.binary()),
    "date": (schema.Date(), MOMENTS),
    "time": (schema.Time(), st.times()),
    "timestamp": (schema.Timestamp(), MOMENTS),
    "instant": (schema.Instant(), MOMENTS),
    "local_date": (schema.LocalDate(), st.dates()),
    "local_time": (schema.LocalTime(), st.times()),
    "local_date_time": (schema.LocalDateTime(), st.datetimes()),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    if isinstance(one, datetime.datetime) and one.tzinfo is not None:
        return bool(one == other and other.tzinfo is not None)
    return type(one) is type(other) and bool(one == other)


@pytest.mark.parametrize("name", KINDS)
def test_columns_equal_the_values_decoded_by_the_sdk(name: str) -> None:
    kind, strategy = KINDS[name]
    fields = fields_of(kind.info)
    assert [each.name for each in fields] == ["value"]
    reader = reader_of(kind.info, fields, strict=True)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.one_of(strategy.map(kind.encode), st.binary(max_size=20)), max_size=9))
    def check(payloads: list[bytes]) -> None:
        found = reader.columns(payloads)
        assert found.arrays[0].type == fields[0].type
        found.arrays[0].validate(full=True)
        column = found.arrays[0].to_pylist()
        assert len(column) == len(payloads)
        for number, payload in enumerate(payloads):
            try:
                wanted = plain(kind.decode(payload))
            except UndecodableValueError:
                assert number in found.notes
            else:
                assert number not in found.notes
                assert same(wanted, column[number])

    check()


def test_wrong_sizes_are_reported() -> None:
    kind = schema.Int32()
    found = reader_of(kind.info, fields_of(kind.info)).columns([b"", kind.encode(7), b"12345"])
    assert found.notes == {
        0: "INT32: 0 bytes instead of 4",
        2: "INT32: 5 bytes instead of 4",
    }
    assert found.arrays[0][1].as_py() == 7


@pytest.mark.parametrize("extreme", [datetime.datetime.min, datetime.datetime.max])
def test_the_first_and_the_last_moment(extreme: datetime.datetime) -> None:
    for kind in (schema.Instant(), schema.LocalDateTime()):
        zone = UTC if isinstance(kind, schema.Instant) else None
        payload = kind.encode(extreme.replace(tzinfo=zone))
        found = reader_of(kind.info, fields_of(kind.info)).columns([payload])
        assert not found.notes
        assert found.arrays[0][0].as_py().replace(tzinfo=None) == extreme


def test_numbers_widen() -> None:
    kind = schema.Int16()
    for wanted in (pa.int32(), pa.int64(), pa.float32(), pa.float64()):
        found = reader_of(kind.info, [pa.field("value", wanted)]).columns([kind.encode(-3)])
        assert found.arrays[0].type == wanted
        assert found.arrays[0][0].as_py() == -3


def test_bytes_can_be_text() -> None:
    reader = reader_of(schema.Bytes().info, [pa.field("value", pa.string())])
    found = reader.columns([b"Zo\xc3\xab", b"\xff", b""])
    assert found.arrays[0].to_pylist() == ["Zoë", "", ""]
    assert found.notes == {1: "a string is not UTF-8"}
