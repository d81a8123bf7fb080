"""`ProtobufNativeSchema` of the official client."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.message import Message as ProtobufMessage

import geminga.schema
from geminga.pulsar.schema.schema import Schema
from geminga_protocol.schema_type import SchemaType


class ProtobufNativeSchema(Schema):
    """Messages of a generated Protobuf class; its descriptor is registered with the topic."""

    def __init__(self, record_cls: Any) -> None:
        if not (isinstance(record_cls, type) and issubclass(record_cls, ProtobufMessage)):
            raise TypeError(f"record_cls must be a class of Protobuf messages, not {record_cls!r}")
        info = geminga.schema.ProtobufNative(record_cls).info
        definition = json.loads(info.schema)
        super().__init__(record_cls, SchemaType.PROTOBUF_NATIVE, definition, "PROTOBUF_NATIVE")

    def encode(self, obj: Any) -> bytes:
        """The message's bytes. Raises TypeError."""
        self._validate_object_type(obj)
        message: ProtobufMessage = obj
        return message.SerializeToString()

    def decode(self, data: bytes) -> Any:
        """The message. Raises google.protobuf.message.DecodeError."""
        return self._record_cls.FromString(data)

    def __str__(self) -> str:
        return f"ProtobufNativeSchema({self._record_cls.__name__})"
