"""Schemas, their types, strategies and errors (spec BR-51)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, cast

from geminga_broker.errors import BrokerError
from geminga_protocol.pb.pulsar_api_pb2 import KeyValue, Schema, ServerError
from geminga_protocol.schema_type import SchemaType

_VERSION = struct.Struct(">q")


AVRO_SHAPED = frozenset((SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF))
"""Types whose definition is an Avro schema."""


class Strategy(Enum):
    """Apache's `SchemaCompatibilityStrategy`."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        """Whether a new schema is compared with all versions, not just the latest."""
        return self.name.endswith("_TRANSITIVE")

    @property
    def reads_old(self) -> bool:
        """Whether the new schema must read data of the old one."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def read_by_old(self) -> bool:
        """Whether the old schema must read data of the new one."""
        return self.name.startswith(("FORWARD", "FULL"))


@dataclass(frozen=True, slots=True)
class SchemaData:
    """One registered schema; with `deleted`, a mark that all earlier ones are deleted."""

    type: SchemaType
    data: bytes
    props: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    timestamp_ms: int = 0
    deleted: bool = False

    @classmethod
    def from_wire(cls, schema: Schema, *, user: str = "", timestamp_ms: int = 0) -> SchemaData:
        """A client's schema. Raises InvalidSchemaData for an unknown type."""
        number = int(schema.type)
        if number == Schema.Type.AutoConsume:
            number = SchemaType.AUTO_CONSUME
        try:
            kind = SchemaType(number)
        except ValueError:
            raise InvalidSchemaData(f"Unknown schema type : {number}") from None
        # The stub confuses the type KeyValue with the enum's member of that name.
        pairs = cast("Iterable[KeyValue]", schema.properties)
        props = {pair.key: pair.value for pair in pairs}
        return cls(kind, schema.schema_data, props, user, timestamp_ms)

    def to_wire(self, name: str) -> Schema:
        """The schema for clients."""
        wire = Schema(name=name, schema_data=self.data)
        wire.type = cast(Schema.Type, int(self.type))
        for key, value in self.props.items():
            wire.properties.add(key=key, value=value)
        return wire


class VersionedSchema(NamedTuple):
    """A schema and its number; numbers count from 0 and are never reused."""

    number: int
    schema: SchemaData

    @property
    def version(self) -> bytes:
        """The number on the wire (`LongSchemaVersion`)."""
        return version_bytes(self.number)


def version_bytes(number: int) -> bytes:
    """Eight big-endian bytes."""
    return _VERSION.pack(number)


def version_number(version: bytes) -> int | None:
    """The inverse; None unless it has eight bytes, as in Apache's `versionFromBytes`."""
    if len(version) < _VERSION.size:
        return None
    (number,) = _VERSION.unpack_from(version)
    return int(number)


class SchemaError(BrokerError):
    """Base of errors about schemas."""


class IncompatibleSchema(SchemaError):
    """The schema is not compatible with the topic's."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.IncompatibleSchema, message)


class NoSchemaToCheck(SchemaError):
    """The topic has no schema to compare a consumer's with (`NotExistSchemaException`)."""

    def __init__(self) -> None:
        super().__init__(ServerError.IncompatibleSchema, "Topic does not have schema to check")


class InvalidSchemaData(SchemaError):
    """The definition is invalid (`InvalidSchemaDataException`)."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.IncompatibleSchema, message)


class SchemaStorageFailed(SchemaError):
    """A ledger or the metadata store failed; the same call may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.PersistenceError, message)
