"""Schemas and records with the names of the official client (`pulsar.schema`)."""

from __future__ import annotations

from geminga.pulsar.schema.definition import Array as Array
from geminga.pulsar.schema.definition import Boolean as Boolean
from geminga.pulsar.schema.definition import Bytes as Bytes
from geminga.pulsar.schema.definition import CustomEnum as CustomEnum
from geminga.pulsar.schema.definition import Double as Double
from geminga.pulsar.schema.definition import Field as Field
from geminga.pulsar.schema.definition import Float as Float
from geminga.pulsar.schema.definition import Integer as Integer
from geminga.pulsar.schema.definition import Long as Long
from geminga.pulsar.schema.definition import Map as Map
from geminga.pulsar.schema.definition import Null as Null
from geminga.pulsar.schema.definition import Record as Record
from geminga.pulsar.schema.definition import String as String
from geminga.pulsar.schema.schema import BytesSchema as BytesSchema
from geminga.pulsar.schema.schema import JsonSchema as JsonSchema
from geminga.pulsar.schema.schema import Schema as Schema
from geminga.pulsar.schema.schema import StringSchema as StringSchema
from geminga.pulsar.schema.schema_avro import AvroSchema as AvroSchema
from geminga.pulsar.schema.schema_protobuf import ProtobufNativeSchema as ProtobufNativeSchema

__all__ = [
    "Array",
    "AvroSchema",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "Long",
    "Map",
    "Null",
    "ProtobufNativeSchema",
    "Record",
    "Schema",
    "String",
    "StringSchema",
]
