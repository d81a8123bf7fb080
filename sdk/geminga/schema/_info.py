"""Descriptions of schemas (spec SDK-41; SchemaInfo and SchemaType of the Java client)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from geminga_protocol.pb import pulsar_api_pb2 as pb
from geminga_protocol.schema_type import SchemaType


@dataclass(frozen=True)
class SchemaInfo:
    """A schema as stored by the broker. `schema` is its definition, for Avro and JSON the text of
    an Avro schema; primitives have none.
    """

    name: str
    type: SchemaType
    schema: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> pb.Schema | None:
        """Its form in commands; None for plain bytes and AUTO schemas."""
        if self.type <= SchemaType.NONE:
            return None
        kind: pb.Schema.Type = self.type.value  # type: ignore[assignment]
        properties = [pb.KeyValue(key=key, value=value) for key, value in self.properties.items()]
        return pb.Schema(name=self.name, schema_data=self.schema, type=kind, properties=properties)

    @classmethod
    def from_wire(cls, schema: pb.Schema) -> SchemaInfo:
        """From its form in commands."""
        # In the generated types, the enum member KeyValue hides the message class.
        pairs = cast("Sequence[pb.KeyValue]", schema.properties)
        properties = {each.key: each.value for each in pairs}
        kind = int(schema.type)
        known = SchemaType(kind) if kind in _KNOWN else SchemaType.NONE
        return cls(schema.name, known, schema.schema_data, properties)


_KNOWN = frozenset(each.value for each in SchemaType)
PLAIN_BYTES = SchemaInfo("Bytes", SchemaType.BYTES)
