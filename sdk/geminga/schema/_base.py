"""The base of all schemas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple

from msgspec import ValidationError

from geminga.errors import InvalidArgumentError, UndecodableValueError
from geminga.schema._info import SchemaInfo
from geminga_protocol.schema_type import SchemaType

if TYPE_CHECKING:
    # Type checkers support defaults of type variables, Python 3.11 doesn't.
    from typing import Any

    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

Reader = Callable[[bytes, bytes | None], T]
"""(payload, key of the message) -> value."""


class Encoded(NamedTuple):
    """A value in its sent form. `key` is that of separated key-value pairs."""

    data: bytes
    is_null: bool = False
    key: bytes | None = None
    has_key: bool = False


class Schema(ABC, Generic[T]):
    """Converts values of one type to payloads, and payloads to values.

    The `schema` of `create_producer`, `subscribe` and `create_reader`; it is registered with the
    topic, and the broker checks its compatibility. One object may be used any number of times, in
    any thread.
    """

    _passes_bytes = False
    """Whether bytes are sent unchanged."""

    def __init__(self, info: SchemaInfo) -> None:
        self._info = info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} schema {self._info.name!r}>"

    @property
    def info(self) -> SchemaInfo:
        """The description registered with the topic."""
        return self._info

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """The payload of a value. Raises InvalidValueError, naming the field."""

    @abstractmethod
    def decode(self, data: bytes) -> T:
        """The value of a payload written with this same schema. Raises UndecodableValueError."""

    @property
    def _wants_writer(self) -> bool:
        """Whether reading needs the writer's schema."""
        return False

    @property
    def _wants_key(self) -> bool:
        """Whether reading may need the message's key."""
        return False

    def _outgoing(self, value: T) -> Encoded:
        """The sent form of a value; None is a null message."""
        if value is None:
            return Encoded(b"", is_null=True)
        return Encoded(self.encode(value))

    def _reader(self, writer: SchemaInfo | None, version: bytes | None = None) -> Reader[T]:
        """A reader for messages with that schema (None: unknown). Raises SchemaError and
        InvalidSchemaError.
        """
        decode = self.decode
        return lambda data, key: decode(data)

    def _of_null(self, key: bytes | None) -> T | None:
        """The value of a null message."""
        return None


REASON_CHARS_MAX = 500
"""Bound of what an error tells of a payload: a model's own checks may say anything."""


class Unfit(ValueError):
    """A payload can be read, and its value isn't what the class takes."""


def undecodable(kind: str, error: object) -> UndecodableValueError:
    """The error for an invalid payload."""
    reason = str(error)
    if len(reason) > REASON_CHARS_MAX:
        reason = f"{reason[:REASON_CHARS_MAX]}..."
    if isinstance(error, Unfit | ValidationError):
        return UndecodableValueError(f"the payload's value doesn't fit: {reason}")
    return UndecodableValueError(f"the payload is no {kind}: {reason}")


def check_schema(schema: object) -> None:
    """Raises InvalidArgumentError unless it is a schema or None."""
    if schema is not None and not isinstance(schema, Schema):
        hint = ""
        if isinstance(schema, type) and not issubclass(schema, Schema):
            hint = f"; geminga.schema.Json({schema.__name__}) makes one of a class"
        raise InvalidArgumentError(f"schema must be a geminga.schema.Schema, not {schema!r}{hint}")


def check_reading(schema: object) -> None:
    """`check_schema` for reading."""
    check_schema(schema)
    if isinstance(schema, Schema) and schema.info.type is SchemaType.AUTO_PUBLISH:
        raise InvalidArgumentError("schema: AutoProduce can't be used for receiving")


def check_sending(schema: object) -> None:
    """`check_schema` for sending."""
    check_schema(schema)
    if isinstance(schema, Schema) and schema.info.type is SchemaType.AUTO_CONSUME:
        raise InvalidArgumentError("schema: AutoConsume can't be used for sending")
