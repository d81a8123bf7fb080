"""The classes of the Java program that recorded `golden_java.jsonl`, as dataclasses."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from google.protobuf.api_pb2 import Api
from google.protobuf.timestamp_pb2 import Timestamp

from geminga import schema
from geminga.schema import KeyValueEncodingType


class Color(Enum):
    RED = 1
    GREEN = 2


@dataclass
class Item:
    _sorted_fields = True
    sku: str
    count: Annotated[int, schema.Int32]
    price: float


@dataclass
class Order:
    _avro_namespace = "Schemas"
    _sorted_fields = True
    id: int
    customer: str
    color: Color
    items: list[Item]
    tags: dict[str, int]
    first: Item
    paid: bool
    weight: Annotated[float, schema.Float]
    rank: Annotated[int, schema.Int32] | None = None


@dataclass
class Ranked:
    """The same without nulls."""

    _avro_namespace = "Schemas"
    _sorted_fields = True
    id: int
    customer: str
    color: Color
    items: list[Item]
    tags: dict[str, int]
    first: Item
    paid: bool
    weight: Annotated[float, schema.Float]
    rank: Annotated[int, schema.Int32]


@dataclass
class Times:
    _avro_namespace = "Schemas"
    _sorted_fields = True
    day: datetime.date
    at: datetime.datetime
    noon: datetime.time


@dataclass
class Plain:
    """One of each, with defaults."""

    name: str = "n"
    number: int = 7
    ratio: float = 0.5
    data: bytes = b"\x01"
    color: Color = Color.RED
    maybe: str | None = None
    several: list[int] = field(default_factory=list)


def item() -> Item:
    return Item("a-1", 3, 2.5)


def order() -> Order:
    return Order(
        7_000_000_000, "Zoë", Color.GREEN, [item()], {"x": 5}, item(), paid=True, weight=1.5
    )


def ranked() -> Ranked:
    return Ranked(**{**vars(order()), "rank": 1})


UTC = datetime.UTC
AT_MILLIS = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
AT = AT_MILLIS.replace(microsecond=123_456)
DAY = datetime.date(2024, 2, 29)
NOON = datetime.time(12, 0, 1)
LATER = datetime.time(12, 0, 1, 5)

Ranked.__name__ = "Order"


def samples() -> dict[str, tuple[schema.Schema, object]]:
    """By kind: the schema and the value that the Java program has."""
    avro = schema.Avro(Order, always_allow_null=True)
    stamp = Timestamp(seconds=5, nanos=7)
    inline, separated = KeyValueEncodingType
    return {
        "bytes": (schema.Bytes(), b"\x01\x02"),
        "string": (schema.String(), "Zoë"),
        "bool": (schema.Boolean(), True),
        "int8": (schema.Int8(), -5),
        "int16": (schema.Int16(), -500),
        "int32": (schema.Int32(), -70000),
        "int64": (schema.Int64(), -7_000_000_000),
        "float": (schema.Float(), 1.5),
        "double": (schema.Double(), -2.25),
        "date": (schema.Date(), AT_MILLIS),
        "time": (schema.Time(), NOON),
        "timestamp": (schema.Timestamp(), AT_MILLIS),
        "instant": (schema.Instant(), AT),
        "local_date": (schema.LocalDate(), DAY),
        "local_time": (schema.LocalTime(), LATER),
        "local_date_time": (schema.LocalDateTime(), datetime.datetime.combine(DAY, LATER)),
        "json": (schema.Json(Order, always_allow_null=True), order()),
        "avro": (avro, order()),
        "avro_strict": (schema.Avro(Ranked), ranked()),
        "avro_times": (
            schema.Avro(
                Times,
                always_allow_null=True,
                properties={"__jsr310ConversionEnabled": "true"},
            ),
            Times(DAY, AT_MILLIS, NOON),
        ),
        "protobuf": (schema.Protobuf(Timestamp), stamp),
        "protobuf_api": (schema.Protobuf(Api), Api(name="n")),
        "protobuf_native": (schema.ProtobufNative(Timestamp), stamp),
        "protobuf_native_api": (schema.ProtobufNative(Api), Api(name="n")),
        "key_value_inline": (schema.KeyValue(schema.String(), avro, inline), ("key", order())),
        "key_value_separated": (
            schema.KeyValue(schema.String(), avro, separated),
            ("key", order()),
        ),
        "key_value_primitive": (schema.KeyValue(schema.Int32(), schema.String()), (1, "one")),
    }
