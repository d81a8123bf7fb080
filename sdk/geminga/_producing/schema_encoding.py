"""Encoding of values by the producer's schema (spec SDK-41)."""

from __future__ import annotations

import base64

from geminga._entries.encode import Extras
from geminga._producing.message_options import MessageKeywords, extras_of, payload_of
from geminga.errors import InvalidArgumentError
from geminga.schema._base import Schema, T


def outgoing(
    schema: Schema[T], value: T, sequence_id: int | None, described: MessageKeywords
) -> tuple[bytes, Extras | None]:
    """Payload and options of a message. Raises InvalidArgumentError, naming the field."""
    encoded = schema._outgoing(value)
    data = payload_of(encoded.data, sequence_id)
    extras = extras_of(described) if described else None
    if encoded.is_null:
        extras = extras or Extras()
        extras.is_null = True
    if encoded.has_key:
        extras = extras or Extras()
        if extras.partition_key is not None:
            raise InvalidArgumentError(
                "partition_key: the key of a separated pair is the message's"
            )
        if encoded.key is not None:
            extras.partition_key = base64.b64encode(encoded.key).decode()
            extras.key_is_base64 = True
    return data, extras


def prepared(
    schema: Schema[T] | None, data: T, sequence_id: int | None, described: MessageKeywords
) -> tuple[bytes, Extras | None]:
    """`outgoing`, or the bytes unchanged without a schema, or with one for bytes."""
    if schema is not None and not (data.__class__ is bytes and schema._passes_bytes):
        return outgoing(schema, data, sequence_id, described)
    return payload_of(data, sequence_id), extras_of(described) if described else None
