"""Schemas with the names of the official client (`pulsar.schema.schema`)."""

from __future__ import annotations

import enum
import json
from typing import Any, Protocol

import geminga.schema
from geminga_protocol.schema_type import SchemaType

_OWN = ("_default", "_required", "_required_default")


class Received(Protocol):
    """What a schema reads of a message."""

    def data(self) -> bytes:
        """The payload."""
        ...

    def topic_name(self) -> str:
        """Full name of the topic, with its partition."""
        ...

    def schema_version(self) -> str:
        """Version of the topic's schema that it was written with."""
        ...

    def message_id(self) -> object:
        """The message's id."""
        ...


class SchemaInfo:
    """What the broker stores of a schema."""

    def __init__(self, schema_type: SchemaType, name: str, schema: str) -> None:
        self._type = SchemaType(int(schema_type))
        self._name = name
        self._schema = schema

    def schema_type(self) -> SchemaType:
        """The kind of schema."""
        return self._type

    def name(self) -> str:
        """Its name."""
        return self._name

    def schema(self) -> str:
        """Its definition in JSON."""
        return self._schema

    def encoded(self) -> geminga.schema.AlreadyEncoded:
        """A schema of `geminga.schema` that registers it and leaves payloads alone."""
        info = geminga.schema.SchemaInfo(self._name, self._type, self._schema.encode())
        return geminga.schema.AlreadyEncoded(info)


class Schema:
    """Base of all schemas, also of a program's own: these override `encode` and `decode`."""

    def __init__(
        self, record_cls: Any, schema_type: Any, schema_definition: Any, schema_name: str
    ) -> None:
        self._record_cls = record_cls
        self._client: Any = None
        definition = json.dumps(schema_definition, indent=True)
        self._schema_info = SchemaInfo(schema_type, schema_name, definition)

    def encode(self, obj: Any) -> bytes:
        """The payload of a value. Raises TypeError."""
        raise TypeError(f"{type(self).__name__} has no `encode`")

    def decode(self, data: bytes) -> Any:
        """The value of a payload."""
        raise TypeError(f"{type(self).__name__} has no `decode`")

    def decode_message(self, msg: Received) -> Any:
        """The value of a message."""
        return self.decode(msg.data())

    def schema_info(self) -> SchemaInfo:
        """What the broker stores of it."""
        return self._schema_info

    def attach_client(self, client: Any) -> None:
        """The client that fetches the schemas of writers."""
        self._client = client

    def _validate_object_type(self, obj: object) -> None:
        if not isinstance(obj, self._record_cls):
            expected = self._record_cls.__name__
            raise TypeError(f"the value must be of type {expected}, not {type(obj).__name__}")


class BytesSchema(Schema):
    """Plain bytes, without a schema on the topic."""

    def __init__(self) -> None:
        super().__init__(bytes, SchemaType.BYTES, None, "BYTES")

    def encode(self, data: Any) -> bytes:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The bytes themselves. Raises TypeError."""
        self._validate_object_type(data)
        made: bytes = data
        return made

    def decode(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data

    def __str__(self) -> str:
        return "BytesSchema"


class StringSchema(Schema):
    """Texts, in UTF-8."""

    def __init__(self) -> None:
        super().__init__(str, SchemaType.STRING, None, "STRING")

    def encode(self, obj: Any) -> bytes:
        """The text in UTF-8. Raises TypeError."""
        self._validate_object_type(obj)
        text: str = obj
        return text.encode()

    def decode(self, data: bytes) -> str:
        """The text. Raises UnicodeDecodeError."""
        return data.decode()

    def __str__(self) -> str:
        return "StringSchema"


class JsonSchema(Schema):
    """Records in JSON."""

    def __init__(self, record_cls: Any) -> None:
        super().__init__(record_cls, SchemaType.JSON, record_cls.schema(), "JSON")

    def encode(self, obj: Any) -> bytes:
        """The record in JSON. Raises TypeError."""
        self._validate_object_type(obj)
        return json.dumps(_plain(obj), default=_plain, indent=True).encode()

    def decode(self, data: bytes) -> Any:
        """The record. Raises TypeError for a value of another type."""
        return self._record_cls(**json.loads(data))


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode()
    return {name: each for name, each in value.__dict__.items() if name not in _OWN}
