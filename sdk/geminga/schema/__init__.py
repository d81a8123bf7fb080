"""Typed schemas (spec SDK-41; `Schema` of the Java client).

    producer = await client.create_producer("orders", schema=geminga.schema.Avro(Order))
    await producer.send(Order(id=1))
    consumer = await client.subscribe("orders", "billing", schema=geminga.schema.Avro(Order))
    order = (await consumer.receive()).value

What stands in `__all__` is public. fastavro is imported with the first Avro schema.
"""

from __future__ import annotations

from geminga.schema._auto import AutoConsume, AutoProduce
from geminga.schema._avro import Avro, Json
from geminga.schema._base import Schema
from geminga.schema._info import SchemaInfo, SchemaType
from geminga.schema._key_value import KeyValue, KeyValueEncodingType
from geminga.schema._primitives import (
    Boolean,
    Bytes,
    Date,
    Double,
    Float,
    Instant,
    Int8,
    Int16,
    Int32,
    Int64,
    LocalDate,
    LocalDateTime,
    LocalTime,
    String,
    Time,
    Timestamp,
)
from geminga.schema._protobuf import Protobuf, ProtobufNative
from geminga.schema._records import GenericRecord
from geminga.schema._types import Micros, Precision

__all__ = [
    "AutoConsume",
    "AutoProduce",
    "Avro",
    "Boolean",
    "Bytes",
    "Date",
    "Double",
    "Float",
    "GenericRecord",
    "Instant",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Json",
    "KeyValue",
    "KeyValueEncodingType",
    "LocalDate",
    "LocalDateTime",
    "LocalTime",
    "Micros",
    "Precision",
    "Protobuf",
    "ProtobufNative",
    "Schema",
    "SchemaInfo",
    "SchemaType",
    "String",
    "Time",
    "Timestamp",
]
