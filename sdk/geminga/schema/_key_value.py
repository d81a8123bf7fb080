"""Key-value pairs (spec SDK-41; KeyValueSchemaImpl, KeyValueSchemaInfo and KeyValue of the Java
client).

Inline, the payload has both: each with its size in four bytes (-1: none). Separated, the payload is
the value, and the key is the message's.
"""

from __future__ import annotations

import enum
import json
import struct
from typing import Any, NamedTuple, TypeVar

from geminga.errors import InvalidArgumentError, InvalidValueError, UndecodableValueError
from geminga.schema._base import Encoded, Reader, Schema
from geminga.schema._info import SchemaInfo
from geminga_protocol.schema_type import SchemaType

K = TypeVar("K")
V = TypeVar("V")
_SIZE = struct.Struct(">i")
_JAVA_NAMES = {SchemaType.BYTES: "BYTES", SchemaType.NONE: "BYTES"}


class KeyValueEncodingType(enum.Enum):
    """Place of a pair's key."""

    INLINE = "INLINE"
    SEPARATED = "SEPARATED"


class KeyValue(Schema[tuple[K | None, V | None]]):
    """Pairs, each half with its own schema; values are tuples of two."""

    def __init__(
        self,
        key: Schema[K],
        value: Schema[V],
        encoding: KeyValueEncodingType = KeyValueEncodingType.INLINE,
    ) -> None:
        for name, given in (("key", key), ("value", value)):
            if not isinstance(given, Schema) or isinstance(given, KeyValue):
                raise InvalidArgumentError(f"{name} must be a schema of one value, not {given!r}")
        if not isinstance(encoding, KeyValueEncodingType):
            raise InvalidArgumentError(f"encoding must be a KeyValueEncodingType, not {encoding!r}")
        self._key = key
        self._value = value
        self.encoding = encoding
        super().__init__(pair_info(key.info, value.info, encoding))

    def encode(self, value: tuple[K | None, V | None]) -> bytes:
        """Both halves inline, regardless of the encoding type. Raises InvalidValueError."""
        key, data = self._halves(value)
        return _sized(key) + _sized(data)

    def _halves(self, value: object) -> tuple[bytes | None, bytes | None]:
        if not isinstance(value, tuple) or len(value) != 2:
            raise InvalidValueError(f"the value must be a tuple of key and value, not {value!r}")
        halves: list[bytes | None] = []
        schemas: tuple[Schema[Any], ...] = (self._key, self._value)
        for name, schema, half in zip(("key", "value"), schemas, value, strict=True):
            try:
                halves.append(None if half is None else schema.encode(half))
            except InvalidValueError as error:
                raise InvalidValueError(f"{name}: {error.args[0]}") from error
        return halves[0], halves[1]

    def decode(self, data: bytes) -> tuple[K | None, V | None]:
        """The pair of an inline payload. Raises UndecodableValueError."""
        key, value = split_pair(data)
        return (
            None if key is None else self._key.decode(key),
            None if value is None else self._value.decode(value),
        )

    def _outgoing(self, value: tuple[K | None, V | None]) -> Encoded:
        if value is None or self.encoding is KeyValueEncodingType.INLINE:
            return super()._outgoing(value)
        key, data = self._halves(value)
        return Encoded(data or b"", is_null=data is None, key=key, has_key=True)

    @property
    def _wants_key(self) -> bool:
        return True

    @property
    def _wants_writer(self) -> bool:
        return self._key._wants_writer or self._value._wants_writer

    def _reader(
        self, writer: SchemaInfo | None, version: bytes | None = None
    ) -> Reader[tuple[K | None, V | None]]:
        halves = None if writer is None else split_info(writer)
        key_reader = self._key._reader(halves and halves.key, version)
        value_reader = self._value._reader(halves and halves.value, version)
        encoding = self.encoding if halves is None else halves.encoding
        if encoding is KeyValueEncodingType.SEPARATED:
            return lambda data, key: (
                None if key is None else key_reader(key, None),
                value_reader(data, None),
            )

        def read(data: bytes, _: bytes | None) -> tuple[K | None, V | None]:
            key, value = split_pair(data)
            return (
                None if key is None else key_reader(key, None),
                None if value is None else value_reader(value, None),
            )

        return read

    def _of_null(self, key: bytes | None) -> tuple[K | None, V | None] | None:
        if self.encoding is KeyValueEncodingType.INLINE:
            return None
        return (None if key is None else self._key.decode(key), None)


class PairInfo(NamedTuple):
    """The parts of a key-value schema."""

    key: SchemaInfo
    value: SchemaInfo
    encoding: KeyValueEncodingType


def _sized(data: bytes | None) -> bytes:
    return _SIZE.pack(-1) if data is None else _SIZE.pack(len(data)) + data


def split_pair(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Both halves. Raises UndecodableValueError for wrong sizes."""
    halves: list[bytes | None] = []
    at = 0
    for name in ("key", "value"):
        if at + 4 > len(data):
            raise UndecodableValueError(f"the pair ends before the size of its {name}")
        (size,) = _SIZE.unpack_from(data, at)
        at += 4
        if size < -1 or size > len(data) - at:
            raise UndecodableValueError(
                f"the pair's {name} claims {size} bytes, of {len(data) - at} that are left"
            )
        halves.append(None if size < 0 else data[at : at + size])
        at += max(size, 0)
    return halves[0], halves[1]


def pair_info(key: SchemaInfo, value: SchemaInfo, encoding: KeyValueEncodingType) -> SchemaInfo:
    """The description of a pair from those of its halves."""
    properties: dict[str, str] = {}
    for name, half in (("key", key), ("value", value)):
        properties[f"{name}.schema.name"] = half.name
        properties[f"{name}.schema.properties"] = json.dumps(
            dict(half.properties), separators=(",", ":")
        )
        properties[f"{name}.schema.type"] = _JAVA_NAMES.get(half.type, half.type.name)
    properties["kv.encoding.type"] = encoding.value
    data = b"".join(_SIZE.pack(len(half.schema)) + half.schema for half in (key, value))
    return SchemaInfo("KeyValue", SchemaType.KEY_VALUE, data, properties)


def split_info(info: SchemaInfo) -> PairInfo:
    """The inverse of `pair_info`. Raises UndecodableValueError if it is no valid pair."""
    if info.type is not SchemaType.KEY_VALUE:
        raise UndecodableValueError(f"it was written with a schema of type {info.type.name}")
    properties = info.properties
    halves: list[SchemaInfo] = []
    for name, data in zip(("key", "value"), split_pair(info.schema), strict=True):
        try:
            kind = SchemaType[properties[f"{name}.schema.type"]]
            known = json.loads(properties.get(f"{name}.schema.properties") or "{}")
        except (KeyError, ValueError) as error:
            raise UndecodableValueError(f"the schema of the pair's {name}: {error}") from error
        halves.append(
            SchemaInfo(properties.get(f"{name}.schema.name", ""), kind, data or b"", known)
        )
    encoding = KeyValueEncodingType.INLINE
    if properties.get("kv.encoding.type") == "SEPARATED":
        encoding = KeyValueEncodingType.SEPARATED
    return PairInfo(halves[0], halves[1], encoding)
