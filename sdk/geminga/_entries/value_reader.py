"""Reads the values of messages (spec SDK-41). Pure."""

from __future__ import annotations

from typing import Any

from geminga.errors import GemingaError, SchemaError, SchemaUnavailableError, UndecodableValueError
from geminga.message import Message
from geminga.schema._base import Reader, Schema
from geminga.schema._info import SchemaInfo
from geminga_runtime.waiters import own_copy


class ValueReader:
    """Reads messages that were written with one version of a topic's schema. If it can't, reading a
    value raises the error.
    """

    __slots__ = ("_error", "_read", "_schema")

    def __init__(
        self,
        schema: Schema[Any],
        writer: SchemaInfo | None,
        version: bytes | None = None,
        error: GemingaError | None = None,
    ) -> None:
        """`error`: why the writer's schema can't be fetched."""
        self._schema = schema
        self._read: Reader[Any] | None = None
        self._error: SchemaError | None = None
        if error is not None:
            text = f"its schema, version {(version or b'').hex()}, is unavailable: {error}"
            self._error = SchemaUnavailableError(text)
            return
        try:
            self._read = schema._reader(writer, version)
        except SchemaError as failure:
            self._error = failure
        except Exception as failure:
            # Another client made the schema: no defect of it may end the consumer.
            text = f"{type(failure).__name__}: {failure}"
            self._error = UndecodableValueError(f"the schema that it was written with: {text}")

    def value_of(self, message: Message) -> Any:
        """A message's value. Raises SchemaError, naming topic and message."""
        data = message.data
        try:
            # A null message has no payload; few others have none.
            if not data and message.is_null:
                return self._schema._of_null(message.partition_key_bytes)
            if self._read is None:
                assert self._error is not None, "without a reader there is a reason"
                raise own_copy(self._error)
            key = message.partition_key_bytes if self._schema._wants_key else None
            return self._read(data, key)
        except SchemaError as error:
            raise error.of_message(message.topic_name, message.message_id) from error.__cause__
        except Exception as error:
            wrong = UndecodableValueError(f"{type(error).__name__}: {error}")
            raise wrong.of_message(message.topic_name, message.message_id) from error
