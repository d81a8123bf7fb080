"""The JSON of the WebSocket API (Apache's `pulsar-websocket` data classes). Pure."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Sequence

import msgspec

from geminga.message import Message
from geminga_broker.websocket.errors import (
    FAILED_TO_DESERIALIZE,
    PAYLOAD_ENCODING,
    BadCommand,
    BadMessage,
)
from geminga_protocol.message_id import MessageId
from geminga_runtime.json_text import BadJson, read_json

_Scalar = str | int | float | bool | None


class _ProducerMessage(msgspec.Struct, rename="camel"):
    payload: str | None = None
    properties: dict[str, _Scalar] | None = None
    context: str | None = None
    key: str | None = None
    replication_clusters: list[str] | None = None
    event_time: str | None = None
    sequence_id: int = 0
    disable_replication: bool = False
    deliver_at: int = 0
    deliver_after_ms: int = 0
    encryption_param: str | None = None


class _Ack(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    result: str
    error_msg: str | None = None
    message_id: str | None = None
    context: str | None = None
    error_code: int
    schema_version: int


class _ConsumerMessage(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    message_id: str
    payload: str
    properties: dict[str, str]
    publish_time: str
    redelivery_count: int
    event_time: str | None = None
    key: str | None = None


class _Command(msgspec.Struct, rename="camel"):
    type: str | None = None
    message_id: str | None = None
    permit_messages: int | None = None


class _EndOfTopic(msgspec.Struct, rename="camel"):
    end_of_topic: bool


class Publish(msgspec.Struct, frozen=True):
    """A message to publish."""

    data: bytes
    properties: dict[str, str] | None
    key: str | None
    event_time_ms: int | None
    deliver_at_ms: int | None
    deliver_after: dt.timedelta | None
    replication_clusters: Sequence[str] | None
    disable_replication: bool
    context: str | None


class Command(msgspec.Struct, frozen=True):
    """A consumer's command; without a type it acknowledges."""

    type: str
    message_id: str | None
    permits: int | None


def read_publish(text: str) -> Publish:
    """Raises BadMessage."""
    try:
        given = read_json(text, _ProducerMessage)
    except BadJson as error:
        raise BadMessage(FAILED_TO_DESERIALIZE, str(error)) from None
    context = given.context
    if given.encryption_param is not None:
        raise BadMessage(PAYLOAD_ENCODING, "encryptionParam is not supported", context)
    if given.payload is None:
        raise BadMessage(PAYLOAD_ENCODING, "payload is missing", context)
    try:
        data = _decode(given.payload)
        event_time_ms = None if given.event_time is None else _read_time(given.event_time)
    except (binascii.Error, ValueError) as error:
        raise BadMessage(PAYLOAD_ENCODING, str(error), context) from None
    properties = given.properties
    return Publish(
        data,
        None if properties is None else {k: _text(v) for k, v in properties.items()},
        given.key,
        event_time_ms,
        given.deliver_at if given.deliver_at > 0 else None,
        dt.timedelta(milliseconds=given.deliver_after_ms) if given.deliver_after_ms > 0 else None,
        given.replication_clusters or None,
        given.disable_replication,
        context,
    )


def _decode(text: str) -> bytes:
    """Base64 as in Java's basic decoder: only padding may be missing."""
    if "=" not in text:
        text += "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"Invalid Base64 message-payload error={error}") from None


def _text(value: _Scalar) -> str:
    """A property's value; like Jackson, converts numbers to texts."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _read_time(text: str) -> int:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(f"Text '{text}' could not be parsed as a time with its offset")
    return int(found.timestamp() * 1000)


def write_time(time_ms: int) -> str:
    """A time as by Apache's DateFormatter, in UTC."""
    seconds, milliseconds = divmod(time_ms, 1000)
    try:
        moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (ValueError, OverflowError):
        # Outside of the calendar; a producer may send any number.
        return str(time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def sent(message_id: MessageId, context: str | None) -> str:
    """The response to a stored message."""
    text = encode_id(message_id)
    return _write(
        _Ack(result="ok", message_id=text, context=context, error_code=0, schema_version=0)
    )


def not_sent(code: int, text: str, context: str | None) -> str:
    """The response to a failed message."""
    result = f"send-error:{code}"
    return _write(
        _Ack(result=result, error_msg=text, context=context, error_code=0, schema_version=0)
    )


def delivered(message: Message) -> str:
    """A message for a consumer or reader."""
    event_ms = message.event_time_ms
    return _write(
        _ConsumerMessage(
            message_id=encode_id(message.message_id),
            payload=base64.b64encode(message.data).decode("ascii"),
            properties=message.properties,
            publish_time=write_time(message.publish_time_ms),
            redelivery_count=message.redelivery_count,
            event_time=None if event_ms is None else write_time(event_ms),
            key=message.partition_key,
        )
    )


def end_of_topic(reached: bool) -> str:
    """The response to `isEndOfTopic`."""
    return _write(_EndOfTopic(reached))


def encode_id(message_id: MessageId) -> str:
    """Base64 of the official clients' bytes."""
    return base64.b64encode(message_id.serialize()).decode("ascii")


def read_command(text: str) -> Command:
    """Raises BadCommand."""
    try:
        given = read_json(text, _Command)
    except BadJson as error:
        raise BadCommand(f"Failed to de-serialize from JSON: {error}") from None
    if given.type == "permit" and (given.permit_messages is None or given.permit_messages < 0):
        raise BadCommand("Missing required permitMessages field for 'permit' command")
    return Command(given.type or "", given.message_id, given.permit_messages)


def _write(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
