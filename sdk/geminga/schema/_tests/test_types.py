"""Python types as Avro and JSON schemas: round trips, resolution, refusals."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import msgspec
import pulsar.schema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga import errors, schema
from geminga.schema import Micros, Precision
from geminga.schema._auto import generic_reader
from geminga.schema._key_value import split_info, split_pair

UTC = datetime.UTC


class Color(Enum):
    RED = "r"
    GREEN = "g"


@dataclass
class Leaf:
    number: int
    text: str | None = None


@dataclass
class Other:
    flag: bool


@dataclass
class Everything:
    number: int
    small: Annotated[int, schema.Int32]
    ratio: float
    text: str
    data: bytes
    flag: bool
    color: Color
    leaf: Leaf
    leaves: list[Leaf]
    by_name: dict[str, Leaf]
    several: Leaf | Other | str | None
    numbers: tuple[int, ...]
    unique: frozenset[str]
    maybe_color: Color | None
    day: datetime.date
    at: datetime.datetime
    exactly: Annotated[datetime.datetime, Micros()]
    local: Annotated[datetime.datetime, schema.LocalDateTime]
    noon: datetime.time
    key: uuid.UUID
    price: Annotated[decimal.Decimal, Precision(10, 2)]


class Point(msgspec.Struct):
    x: int
    y: float = 0.5
    name: str | None = None
    inner: list[Leaf] = []


@dataclass
class Node:
    value: int
    next: Node | None = None
    children: list[Node] = field(default_factory=list)


LONGS = st.integers(-(2**63), 2**63 - 1)
LEAVES = st.builds(Leaf, LONGS, st.none() | st.text())
MILLIS = st.integers(-(10**12), 10**13).map(
    lambda n: datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(milliseconds=n)
)
EVERYTHING = st.builds(
    Everything,
    number=LONGS,
    small=st.integers(-(2**31), 2**31 - 1),
    ratio=st.floats(allow_nan=False),
    text=st.text(),
    data=st.binary(),
    flag=st.booleans(),
    color=st.sampled_from(Color),
    leaf=LEAVES,
    leaves=st.lists(LEAVES, max_size=3),
    by_name=st.dictionaries(st.text(), LEAVES, max_size=3),
    several=st.none() | st.text() | LEAVES | st.builds(Other, st.booleans()),
    numbers=st.lists(LONGS, max_size=3).map(tuple),
    unique=st.frozensets(st.text(), max_size=3),
    maybe_color=st.none() | st.sampled_from(Color),
    day=st.dates(),
    at=MILLIS,
    exactly=st.datetimes(
        datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(UTC)
    ),
    local=MILLIS.map(lambda at: at.replace(tzinfo=None)),
    noon=st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    key=st.uuids(),
    price=st.integers(-(10**9), 10**9).map(lambda n: decimal.Decimal(n).scaleb(-2)),
)
AVRO = schema.Avro(Everything)


@given(EVERYTHING)
@pytest.mark.slow
def test_avro_there_and_back(value: Everything) -> None:
    data = AVRO.encode(value)
    assert AVRO.decode(data) == value
    generic = generic_reader(AVRO.info, b"v")(data, None)
    assert isinstance(generic, schema.GenericRecord)
    assert generic["leaf"] == {"number": value.leaf.number, "text": value.leaf.text}


@given(st.builds(Point, LONGS, st.floats(allow_nan=False), st.none() | st.text(), st.lists(LEAVES)))
@pytest.mark.slow
def test_structs_there_and_back(value: Point) -> None:
    typed: schema.Schema[Point] = schema.Avro(Point)
    assert typed.decode(typed.encode(value)) == value
    typed = schema.Json(Point)
    if math.isinf(value.y):
        with pytest.raises(errors.InvalidValueError, match=r"Point\.y: JSON has no"):
            typed.encode(value)
    else:
        assert typed.decode(typed.encode(value)) == value


@given(
    st.recursive(
        st.builds(Node, LONGS), lambda n: st.builds(Node, LONGS, n, st.lists(n)), max_leaves=8
    )
)
@pytest.mark.slow
def test_types_within_themselves(value: Node) -> None:
    for typed in (schema.Avro(Node), schema.Json(Node)):
        assert typed.decode(typed.encode(value)) == value


@given(st.binary())
def test_what_is_no_avro_is_told(data: bytes) -> None:
    for typed in (AVRO, schema.Json(Leaf), schema.String(), schema.Int32(), schema.Instant()):
        try:
            typed.decode(data)
        except errors.UndecodableValueError:
            continue


@given(st.none() | st.binary(), st.none() | st.binary())
def test_pairs_there_and_back(key: bytes | None, value: bytes | None) -> None:
    pair = schema.KeyValue(schema.Bytes(), schema.Bytes())
    assert pair.decode(pair.encode((key, value))) == (key, value)


@given(st.binary())
def test_lying_pairs(data: bytes) -> None:
    try:
        key, value = split_pair(data)
    except errors.UndecodableValueError:
        return
    assert len(key or b"") + len(value or b"") + 8 <= len(data)


def test_structure_of_pairs() -> None:
    pair = schema.KeyValue(schema.Int32(), AVRO)
    parts = split_info(pair.info)
    assert parts.key == schema.Int32().info
    assert parts.value == AVRO.info


@dataclass
class Old:
    number: int
    text: str
    gone: str


@dataclass
class New:
    _avro_namespace = "other"
    number: float
    text: str | None
    more: list[str] = field(default_factory=list)
    color: str = "red"


@given(st.integers(-(2**50), 2**50), st.text(), st.text())
def test_resolution(number: int, text: str, gone: str) -> None:
    """Promoted, made optional, omitted, filled by defaults; with another name."""
    writer = schema.Avro(Old)
    read = schema.Avro(New)._reader(writer.info)
    found = read(writer.encode(Old(number, text, gone)), None)
    assert found == New(float(number), text, [], "red")


def test_what_cannot_be_resolved() -> None:
    read = schema.Avro(Old)._reader(schema.Avro(New).info)
    with pytest.raises(errors.UndecodableValueError):
        read(schema.Avro(New).encode(New(1.0, None)), None)
    with pytest.raises(errors.UndecodableValueError, match="STRING"):
        schema.Avro(Old)._reader(schema.String().info)


@pytest.mark.parametrize(
    ("change", "field_name"),
    [
        ({"number": 1.5}, "number"),
        ({"number": True}, "number"),
        ({"number": 2**63}, "number|long"),
        ({"small": 2**31}, "small"),
        ({"text": b"x"}, "text"),
        ({"flag": 1}, "flag"),
        ({"leaf": Leaf("1")}, r"leaf: Leaf\.number"),
        ({"leaves": [Leaf(1), 5]}, "leaves"),
        ({"leaves": None}, "leaves"),
        ({"by_name": {1: Leaf(1)}}, "by_name"),
        ({"several": 5}, "several"),
        ({"numbers": (1, "2")}, "numbers"),
        ({"color": "RED"}, "color"),
        ({"at": datetime.datetime(2024, 1, 1)}, "at"),
        ({"price": decimal.Decimal("1.234")}, "price"),
    ],
)
def test_wrong_values_are_named(change: dict[str, Any], field_name: str) -> None:
    value = Everything(
        1, 2, 0.5, "t", b"d", True, Color.RED, Leaf(1), [], {}, None, (), frozenset(), None,
        datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=UTC),
        datetime.datetime(2024, 1, 1, tzinfo=UTC), datetime.datetime(2024, 1, 1),
        datetime.time(12), uuid.UUID(int=5), decimal.Decimal("1.25"),
    )  # fmt: skip
    AVRO.encode(value)
    for name, wrong in change.items():
        setattr(value, name, wrong)
    with pytest.raises(errors.InvalidValueError, match=field_name):
        AVRO.encode(value)


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (schema.Int8(), 128),
        (schema.Int32(), "1"),
        (schema.Int64(), True),
        (schema.Boolean(), 1),
        (schema.String(), b"x"),
        (schema.String(), "\ud800"),
        (schema.Float(), 1e300),
        (schema.Timestamp(), datetime.datetime(2024, 1, 1)),
        (schema.LocalDate(), datetime.datetime(2024, 1, 1)),
        (schema.LocalTime(), 5),
        (schema.LocalDateTime(), datetime.datetime(2024, 1, 1, tzinfo=UTC)),
        (schema.KeyValue(schema.Int8(), schema.Int8()), 5),
        (schema.KeyValue(schema.Int8(), schema.Int8()), (1, "2")),
    ],
)
def test_wrong_single_values(typed: schema.Schema, value: object) -> None:
    with pytest.raises(errors.InvalidValueError):
        typed.encode(value)


@dataclass
class Bad:
    price: decimal.Decimal


@pytest.mark.parametrize("kind", [Bad, int, Color, "no json", 5])
def test_no_schema_can_be_made(kind: Any) -> None:
    with pytest.raises(errors.InvalidSchemaError):
        schema.Avro(kind)


def test_an_explicit_schema() -> None:
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}],
    }
    for given_as in (definition, json.dumps(definition)):
        for typed in (schema.Avro(given_as), schema.Json(given_as)):
            assert typed.definition == definition
            value: dict[str, object] = {"a": 1, "b": "x"}
            assert typed.decode(typed.encode(value)) == value
    with pytest.raises(errors.InvalidValueError, match="a is"):
        schema.Avro(definition).encode({"a": "1"})


def test_what_java_leaves_out_of_json() -> None:
    typed = schema.Json(Leaf)
    assert typed.decode(b'{"number": 5, "unknown": 1}') == Leaf(5)

    @dataclass
    class Strict:
        leaf: Leaf | None
        color: Color | None

    strict = schema.Json(Strict)
    assert strict.decode(b"{}") == Strict(None, None)
    assert strict.decode(b'{"leaf": {"number": 1}, "color": "GREEN"}') == Strict(
        Leaf(1), Color.GREEN
    )
    with pytest.raises(errors.UndecodableValueError):
        typed.decode(b"{}")
    with pytest.raises(errors.UndecodableValueError):
        typed.decode(b"[]")


def test_defaults_stand_in_the_schema() -> None:
    @dataclass
    class Filled:
        a: int = 5
        b: str | None = None
        c: str | None = "x"
        d: Color = Color.GREEN
        e: bytes = b"\xff"
        f: list[int] = field(default_factory=list)

    fields: Any = schema.Avro(Filled).definition["fields"]
    assert [each.get("default", "-") for each in fields] == [5, None, "x", "GREEN", "ÿ", []]
    assert [each["type"] for each in fields][1:3] == [["null", "string"], ["string", "null"]]


class Level(Enum):
    LOW = 1
    HIGH = 2


class TheirInner(pulsar.schema.Record):
    text = pulsar.schema.String()


class TheirRecord(pulsar.schema.Record):
    number = pulsar.schema.Long()
    color = pulsar.schema.CustomEnum(Level)
    inner = TheirInner()
    several = pulsar.schema.Array(TheirInner())
    by_name = pulsar.schema.Map(pulsar.schema.Integer())


def test_official_records_as_the_official_client() -> None:
    value = TheirRecord(
        number=5,
        color=Level.HIGH,
        inner=TheirInner(text="a"),
        several=[TheirInner(text="b")],
        by_name={"c": 1},
    )
    official = pulsar.schema.AvroSchema(TheirRecord)
    ours = schema.Avro(TheirRecord)
    assert ours.definition == TheirRecord.schema()
    data = ours.encode(value)
    assert data == official.encode(value)
    assert ours.decode(data) == official.decode(data)
    typed = schema.Json(TheirRecord)
    assert typed.decode(typed.encode(value)) == value
    assert typed.decode(pulsar.schema.JsonSchema(TheirRecord).encode(value)) == value
