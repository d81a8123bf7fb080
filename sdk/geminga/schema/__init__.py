"""Typed schemas (spec SDK-41; `Schema` of the Java client).

Made by tools/faces.py: don't edit.

    producer = await client.create_producer("orders", schema=geminga.schema.Avro(Order))
    await producer.send(Order(id=1))
    consumer = await client.subscribe("orders", "billing", schema=geminga.schema.Avro(Order))
    order = (await consumer.receive()).value

The names in `__all__` are public. fastavro is imported with the first Avro schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga._options.lazy import lazily

if TYPE_CHECKING:
    from geminga.schema._auto import AlreadyEncoded as AlreadyEncoded
    from geminga.schema._auto import AutoConsume as AutoConsume
    from geminga.schema._auto import AutoProduce as AutoProduce
    from geminga.schema._avro import Avro as Avro
    from geminga.schema._avro import Json as Json
    from geminga.schema._base import Schema as Schema
    from geminga.schema._info import SchemaInfo as SchemaInfo
    from geminga.schema._key_value import KeyValue as KeyValue
    from geminga.schema._key_value import KeyValueEncodingType as KeyValueEncodingType
    from geminga.schema._primitives import Boolean as Boolean
    from geminga.schema._primitives import Bytes as Bytes
    from geminga.schema._primitives import Date as Date
    from geminga.schema._primitives import Double as Double
    from geminga.schema._primitives import Float as Float
    from geminga.schema._primitives import Instant as Instant
    from geminga.schema._primitives import Int8 as Int8
    from geminga.schema._primitives import Int16 as Int16
    from geminga.schema._primitives import Int32 as Int32
    from geminga.schema._primitives import Int64 as Int64
    from geminga.schema._primitives import LocalDate as LocalDate
    from geminga.schema._primitives import LocalDateTime as LocalDateTime
    from geminga.schema._primitives import LocalTime as LocalTime
    from geminga.schema._primitives import String as String
    from geminga.schema._primitives import Time as Time
    from geminga.schema._primitives import Timestamp as Timestamp
    from geminga.schema._protobuf import Protobuf as Protobuf
    from geminga.schema._protobuf import ProtobufNative as ProtobufNative
    from geminga.schema._protobuf import message_class as message_class
    from geminga.schema._records import GenericRecord as GenericRecord
    from geminga.schema._types import Micros as Micros
    from geminga.schema._types import Precision as Precision
    from geminga_protocol.schema_type import SchemaType as SchemaType

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
    "Int16",
    "Int32",
    "Int64",
    "Int8",
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
        *("Boolean", "Bytes", "Date", "Double", "Float", "Instant", "Int16", "Int32", "Int64"),
        *("Int8", "LocalDate", "LocalDateTime", "LocalTime", "String", "Time", "Timestamp"),
    ),
    "geminga.schema._protobuf": ("Protobuf", "ProtobufNative", "message_class"),
    "geminga.schema._records": ("GenericRecord",),
    "geminga.schema._types": ("Micros", "Precision"),
    "geminga_protocol.schema_type": ("SchemaType",),
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
