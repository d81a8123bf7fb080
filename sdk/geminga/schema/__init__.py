"""Typed schemas (spec SDK-41; `Schema` of the Java client).

    producer = await client.create_producer("orders", schema=geminga.schema.Avro(Order))
    await producer.send(Order(id=1))
    consumer = await client.subscribe("orders", "billing", schema=geminga.schema.Avro(Order))
    order = (await consumer.receive()).value

What stands in `__all__` is public. fastavro is imported with the first Avro schema.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminga.schema._auto import AlreadyEncoded, AutoConsume, AutoProduce
    from geminga.schema._avro import Avro, Json
    from geminga.schema._base import Schema
    from geminga.schema._info import SchemaInfo
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
    from geminga.schema._protobuf import Protobuf, ProtobufNative, message_class
    from geminga.schema._records import GenericRecord
    from geminga.schema._types import Micros, Precision
    from geminga_protocol.schema_type import SchemaType

__all__ = [
    "AlreadyEncoded",
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
    "message_class",
]

_HOMES = {
    "geminga.schema._auto": ("AlreadyEncoded", "AutoConsume", "AutoProduce"),
    "geminga.schema._avro": ("Avro", "Json"),
    "geminga.schema._base": ("Schema",),
    "geminga.schema._info": ("SchemaInfo",),
    "geminga.schema._key_value": ("KeyValue", "KeyValueEncodingType"),
    "geminga.schema._primitives": (
        "Boolean",
        "Bytes",
        "Date",
        "Double",
        "Float",
        "Instant",
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "LocalDate",
        "LocalDateTime",
        "LocalTime",
        "String",
        "Time",
        "Timestamp",
    ),
    "geminga.schema._protobuf": ("Protobuf", "ProtobufNative", "message_class"),
    "geminga.schema._records": ("GenericRecord",),
    "geminga.schema._types": ("Micros", "Precision"),
    "geminga_protocol.schema_type": ("SchemaType",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'geminga.schema' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
