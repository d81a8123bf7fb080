"""What a schema tells of itself (spec SDK-41; SchemaInfo and SchemaType of the Java client)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from geminga_protocol.pb import pulsar_api_pb2 as pb
from geminga_protocol.schema_type import SchemaType


@dataclass(frozen=True)
class SchemaInfo:
    """A schema as the broker keeps it. `schema` is its definition, for Avro and JSON the text of an
    Avro schema; primitives have none.
    """

    name: str
    type: SchemaType
    schema: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> pb.Schema | None:
        """As commands carry it; None for plain bytes and for what the topic decides."""
        if self.type <= SchemaType.NONE:
            return None
        kind: pb.Schema.Type = self.type.value  # type: ignore[assignment]
        properties = [pb.KeyValue(key=key, value=value) for key, value in self.properties.items()]
        return pb.Schema(name=self.name, schema_data=self.schema, type=kind, properties=properties)

    @classmethod
    def from_wire(cls, schema: pb.Schema) -> SchemaInfo:
        """The same from a command."""
        # In the generated types the enum member KeyValue hides the message.
        pairs = cast("Sequence[pb.KeyValue]", schema.properties)
        properties = {each.key: each.value for each in pairs}
        kind = int(schema.type)
        known = SchemaType(kind) if kind in _KNOWN else SchemaType.NONE
        return cls(schema.name, known, schema.schema_data, properties)


_KNOWN = frozenset(each.value for each in SchemaType)
PLAIN_BYTES = SchemaInfo("Bytes", SchemaType.BYTES)
