"""`AvroSchema` of the official client. Needs the extra `geminga[avro]`."""

from __future__ import annotations

import enum
import io
import json
import logging
from typing import Any

from geminga.pulsar.schema.definition import Record
from geminga.pulsar.schema.schema import Received, Schema
from geminga_protocol.schema_type import SchemaType

logger = logging.getLogger("geminga")


class AvroSchema(Schema):
    """Records in Avro: of a class, or mappings of a definition (`record_cls=None`).

    Messages are read with the schema that they were written with, which the client fetches.
    """

    def __init__(self, record_cls: Any, schema_definition: dict[str, Any] | None = None) -> None:
        definition = schema_definition if record_cls is None else record_cls.schema()
        if definition is None:
            raise AssertionError("record_cls or schema_definition is needed")
        self._avro = _library()
        self._schema: dict[str, Any] = definition
        self._writers: dict[tuple[str, bytes], dict[str, Any] | None] = {}
        super().__init__(record_cls, SchemaType.AVRO, definition, "AVRO")

    def encode(self, obj: Any) -> bytes:
        """The record in Avro. Raises TypeError, ValueError."""
        fields = obj
        if self._record_cls is not None:
            self._validate_object_type(obj)
            fields = obj.__dict__
        elif not isinstance(obj, dict):
            raise ValueError(f"a schema without a class takes a dict, not {type(obj).__name__}")
        made = io.BytesIO()
        self._avro.schemaless_writer(made, self._schema, self.encode_dict(fields))
        return made.getvalue()

    def encode_dict(self, d: dict[str, Any]) -> dict[str, Any]:
        """The values as Avro's encoder takes them."""
        return {key: _plain(value) for key, value in d.items()}

    def decode(self, data: bytes) -> Any:
        """The record of a payload written with this schema."""
        return self._read(data, self._schema)

    def decode_message(self, msg: Received) -> Any:
        """The record of a message, by its writer's schema; by this one if that can't be used."""
        try:
            writer = self._writer_of(msg)
            if writer is not None:
                return self._read(msg.data(), writer)
        except Exception as error:
            logger.warning("message %s: its writer's schema: %s", msg.message_id(), error)
        return self.decode(msg.data())

    def _writer_of(self, msg: Received) -> dict[str, Any] | None:
        place = _place_of(msg)
        if place is None:
            return None
        if place not in self._writers:
            if self._client is None:
                return None
            self._learn(place, self._client.get_schema(*place))
        return self._writers[place]

    def _missing(self, msg: Received) -> tuple[str, bytes] | None:
        """Topic and version of a writer's schema that is yet to be fetched."""
        place = _place_of(msg)
        return None if place in self._writers else place

    def _learn(self, place: tuple[str, bytes], info: Any) -> None:
        writer = None
        if info is not None and info.type is SchemaType.AVRO:
            writer = json.loads(info.schema)
        self._writers[place] = writer

    def _read(self, data: bytes, writer: dict[str, Any]) -> Any:
        # The names of the two records may differ: only the fields count.
        named = {**writer, "name": self._schema["name"]}
        read = self._avro.schemaless_reader(io.BytesIO(data), named, self._schema)
        return read if self._record_cls is None else self._record_cls(**read)


def _place_of(msg: Received) -> tuple[str, bytes] | None:
    version = msg.schema_version()
    return (msg.topic_name(), version.encode("latin-1")) if version else None


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Record):
        value = value.__dict__
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value


def _library() -> Any:
    try:
        import fastavro
    except ImportError:
        raise ImportError('AvroSchema needs fastavro: pip install "geminga[avro]"') from None
    return fastavro
