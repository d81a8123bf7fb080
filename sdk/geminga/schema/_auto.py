"""Schemas decided by the topic (spec SDK-41; AutoProduceBytesSchema and AutoConsumeSchema of the
Java client).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from geminga.errors import (
    InvalidArgumentError,
    InvalidSchemaError,
    InvalidValueError,
    SchemaError,
    UndecodableValueError,
)
from geminga.schema import _primitives as primitives
from geminga.schema._avro import Avro, Json
from geminga.schema._base import Encoded, Reader, Schema
from geminga.schema._info import PLAIN_BYTES, SchemaInfo
from geminga.schema._key_value import KeyValueEncodingType, split_info, split_pair
from geminga.schema._records import GenericRecord
from geminga_protocol.schema_type import SchemaType


class AutoProduce(Schema[bytes]):
    """Sends encoded bytes; each message is checked against the topic's schema at the producer's
    creation.
    """

    def __init__(self) -> None:
        super().__init__(SchemaInfo("AutoProduce", SchemaType.AUTO_PUBLISH))

    def encode(self, value: bytes) -> bytes:
        """The same bytes; the producer checks them by the topic's schema."""
        return primitives.Bytes().encode(value)

    def decode(self, data: bytes) -> bytes:
        """The same bytes."""
        return data

    def _for_topic(self, info: SchemaInfo | None) -> Schema[bytes]:
        """The checking schema for a topic. Raises InvalidSchemaError."""
        if info is None:
            return primitives.Bytes()
        try:
            return Checked(info)
        except Exception as error:
            raise InvalidSchemaError(f"the topic's schema is invalid: {error}") from error


class Checked(Schema[bytes]):
    """Bytes that fit a topic's schema."""

    def __init__(self, info: SchemaInfo) -> None:
        super().__init__(info)
        self._read = generic_reader(info, None)

    def encode(self, value: bytes) -> bytes:
        """The same bytes. Raises InvalidValueError if they don't fit."""
        data = primitives.Bytes().encode(value)
        try:
            self._read(data, None)
        except SchemaError as error:
            raise InvalidValueError(
                f"data doesn't fit the topic's schema: {error.args[0]}"
            ) from error
        return data

    def decode(self, data: bytes) -> bytes:
        """The same bytes."""
        return data


class AutoConsume(Schema[object]):
    """Reads messages by their writers' schemas: records become GenericRecord, pairs tuples, others
    their Python value; bytes if there is no schema.
    """

    def __init__(self) -> None:
        super().__init__(SchemaInfo("AutoConsume", SchemaType.AUTO_CONSUME))

    def encode(self, value: object) -> bytes:
        """Raises InvalidArgumentError: it can't be used to send."""
        raise InvalidArgumentError("schema: AutoConsume can't be used for sending")

    def decode(self, data: bytes) -> object:
        """The same bytes, as there is no schema without a topic."""
        return data

    def _outgoing(self, value: object) -> Encoded:
        return Encoded(self.encode(value))

    @property
    def _wants_writer(self) -> bool:
        return True

    @property
    def _wants_key(self) -> bool:
        return True

    def _reader(self, writer: SchemaInfo | None, version: bytes | None = None) -> Reader[object]:
        return generic_reader(PLAIN_BYTES if writer is None else writer, version)


def generic_reader(info: SchemaInfo, version: bytes | None) -> Reader[object]:
    """A reader without a class for messages of that schema. Raises SchemaError."""
    kind = info.type
    simple = primitives.BY_TYPE.get(kind)
    decode: Callable[[bytes], object]
    if simple is not None:
        return simple()._reader(None)
    if kind is SchemaType.KEY_VALUE:
        return _pair_reader(info, version)
    if kind is SchemaType.AVRO:
        decode = Avro(info.schema.decode()).decode
    elif kind is SchemaType.JSON:
        decode = Json(info.schema.decode()).decode
    elif kind is SchemaType.PROTOBUF_NATIVE:
        from geminga.schema._protobuf import generic_message

        decode = generic_message(info)
    elif kind is SchemaType.PROTOBUF:
        return lambda data, key: data
    else:
        raise UndecodableValueError(f"schemas of type {kind.name} can't be read without a class")

    def read(data: bytes, _: bytes | None) -> object:
        found: object = decode(data)
        return GenericRecord(found, kind, version) if isinstance(found, dict) else found

    return read


def _pair_reader(info: SchemaInfo, version: bytes | None) -> Reader[object]:
    parts = split_info(info)
    read_key = generic_reader(parts.key, version)
    read_value = generic_reader(parts.value, version)
    if parts.encoding is KeyValueEncodingType.SEPARATED:
        return lambda data, key: (
            None if key is None else read_key(key, None),
            read_value(data, None),
        )

    def read(data: bytes, _: bytes | None) -> object:
        key, value = split_pair(data)
        return (
            None if key is None else read_key(key, None),
            None if value is None else read_value(value, None),
        )

    return read


class AlreadyEncoded(Schema["bytes | None"]):
    """Bytes encoded by the schema of `info`, which is registered with the topic; None is a null
    message. For programs that encode many values at once: unlike with `AutoProduce`, the bytes are
    not checked.

    Raises InvalidArgumentError for an `info` without a schema of its own.
    """

    _passes_bytes = True

    def __init__(self, info: SchemaInfo) -> None:
        if not isinstance(info, SchemaInfo):
            raise InvalidArgumentError(f"info must be a SchemaInfo, not {info!r}")
        if info.type < SchemaType.BYTES:
            raise InvalidArgumentError(f"info: {info.type.name} is not a topic's schema")
        super().__init__(info)

    def encode(self, value: bytes | None) -> bytes:
        """The same bytes. Raises InvalidValueError for another type, also for None, which is sent
        without being encoded.
        """
        return primitives.Bytes().encode(cast("bytes", value))

    def decode(self, data: bytes) -> bytes:
        """The same bytes."""
        return data
