"""Payloads that a program encodes by itself (spec SDK-41)."""

from __future__ import annotations

from geminga.errors import InvalidArgument
from geminga.schema import _primitives as primitives
from geminga.schema._base import Schema
from geminga.schema._info import SchemaInfo
from geminga_protocol.schema_type import SchemaType


class AlreadyEncoded(Schema[bytes]):
    """Bytes that are encoded already by the schema of `info`, which is registered with the topic
    as any other; None is a message that says that it is null. For programs that encode many values
    at once: nothing looks at the bytes again, unlike `AutoProduce`.

    Raises InvalidArgument for an `info` that isn't a schema's own.
    """

    _passes_bytes = True

    def __init__(self, info: SchemaInfo) -> None:
        if not isinstance(info, SchemaInfo):
            raise InvalidArgument(f"info must be a SchemaInfo, not {info!r}")
        if info.type < SchemaType.BYTES:
            raise InvalidArgument(f"info: {info.type.name} is no schema of a topic")
        super().__init__(info)

    def encode(self, value: bytes) -> bytes:
        """The same bytes. Raises InvalidValue for what is no bytes."""
        return primitives.Bytes().encode(value)

    def decode(self, data: bytes) -> bytes:
        """The same bytes."""
        return data
