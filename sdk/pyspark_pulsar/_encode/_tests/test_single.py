"""Single values beside the SDK's own schemas for them."""

from __future__ import annotations

import datetime
import zoneinfo
from typing import Any

import pyarrow as pa
import pytest

from geminga import schema as schemas
from geminga.schema import SchemaInfo, SchemaType
from pyspark_pulsar._encode._single import INFOS, check_single, single_rows
from pyspark_pulsar.errors import SchemaMismatch

UTC = datetime.UTC
MOMENTS = [
    datetime.datetime(2026, 11, 22, 1, 2, 3, 456789, UTC),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
]
LOCAL = [each.replace(tzinfo=None) for each in MOMENTS]
TIMES = [each.time() for each in MOMENTS]


@pytest.mark.parametrize(
    ("schema", "kind", "values"),
    [
        (schemas.Boolean(), pa.bool_(), [True, False]),
        (schemas.Int8(), pa.int8(), [-128, 127]),
        (schemas.Int16(), pa.int16(), [-300, 300]),
        (schemas.Int32(), pa.int32(), [-(1 << 31), (1 << 31) - 1]),
        (schemas.Int64(), pa.int64(), [-(1 << 63), (1 << 63) - 1]),
        (schemas.Int64(), pa.int16(), [-1, 300]),
        (schemas.Float(), pa.float32(), [0.5, float("-inf")]),
        (schemas.Double(), pa.float64(), [0.1, -1e300]),
        (schemas.Double(), pa.float32(), [0.5]),
        (schemas.String(), pa.string(), ["", "ä€"]),
        (schemas.Bytes(), pa.binary(), [b"", b"\xff"]),
        (schemas.LocalDate(), pa.date32(), [each.date() for each in MOMENTS]),
        (schemas.Instant(), pa.timestamp("us", "UTC"), MOMENTS),
        (schemas.Timestamp(), pa.timestamp("us", "Asia/Tokyo"), MOMENTS),
        (schemas.Date(), pa.timestamp("us", "UTC"), MOMENTS),
        (schemas.LocalDateTime(), pa.timestamp("us"), LOCAL),
        (schemas.LocalTime(), pa.time64("ns"), TIMES),
        (schemas.Time(), pa.time64("us"), TIMES),
    ],
)
def test_payloads_equal_the_sdks(
    schema: schemas.Schema[Any], kind: pa.DataType, values: list[Any]
) -> None:
    info = schema.info
    check_single(info, kind, "value")
    array = pa.array([*values, None], kind)
    assert single_rows(info, "value", array).to_pylist()[:-1] == [
        schema.encode(each) for each in values
    ]
    assert single_rows(info, "value", array[1:]).to_pylist()[:-1] == [
        schema.encode(each) for each in values[1:]
    ]


def test_infos_are_the_sdks() -> None:
    known = {
        each.info.type: each.info
        for each in (
            schemas.Boolean(), schemas.Int8(), schemas.Int16(), schemas.Int32(), schemas.Int64(),
            schemas.Float(), schemas.Double(), schemas.String(), schemas.Bytes(),
            schemas.LocalDate(), schemas.Instant(), schemas.LocalDateTime(), schemas.LocalTime(),
        )
    }  # fmt: skip
    for info in INFOS.values():
        assert known[info.type] == info


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (SchemaType.INT32, pa.int64()),
        (SchemaType.FLOAT, pa.float64()),
        (SchemaType.STRING, pa.binary()),
        (SchemaType.BYTES, pa.int32()),
        (SchemaType.INSTANT, pa.timestamp("us")),
        (SchemaType.LOCAL_DATE_TIME, pa.timestamp("us", "UTC")),
        (SchemaType.KEY_VALUE, pa.binary()),
    ],
)
def test_what_does_not_fit_is_refused(kind: SchemaType, column: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=kind.name):
        check_single(SchemaInfo("x", kind), column, "value")


@pytest.mark.parametrize("schema", [schemas.Time(), schemas.LocalTime()])
def test_times_of_day_as_they_are_read(schema: schemas.Schema[Any]) -> None:
    micros = [(each.hour * 60 + each.minute) * 60_000_000 + each.second * 1_000_000
              + each.microsecond for each in TIMES]  # fmt: skip
    check_single(schema.info, pa.int64(), "value")
    found = single_rows(schema.info, "value", pa.array(micros)).to_pylist()
    assert found == [schema.encode(each) for each in TIMES]
    with pytest.raises(SchemaMismatch, match="column value: must have microseconds of a day"):
        single_rows(schema.info, "value", pa.array([86_400_000_000]))


def test_time_zones_do_not_matter() -> None:
    zone = zoneinfo.ZoneInfo("America/New_York")
    array = pa.array([MOMENTS[0].astimezone(zone)], pa.timestamp("us", "America/New_York"))
    found = single_rows(schemas.Instant().info, "value", array).to_pylist()
    assert found == [schemas.Instant().encode(MOMENTS[0])]
