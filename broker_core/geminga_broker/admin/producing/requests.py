"""What a request to publish says, and the messages that it becomes (spec OP-03; Apache's
`ProducerMessages`, `TopicsBase.buildMessage`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from geminga_broker.admin import jackson
from geminga_broker.admin.producing.encoding import Encode, Unencodable, encoder_of
from geminga_broker.limits import NAME_BYTES_MAX, check_properties, check_text
from geminga_broker.schema.key_value import join_key_value, split_key_value
from geminga_broker.schema.model import SchemaData
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import CompressionType, MessageMetadata
from geminga_protocol.schema_type import SchemaType
from geminga_runtime.json_text import BadJson, read_json

PRODUCER = "RestProducer"
"""The producer of messages without one."""

MESSAGES_MAX = 10_000
"""Of one request."""

MADE_BYTES_MAX = 8 << 20
"""Of all messages of a request: the names of producer and schema are in each of them."""

NOT_REPLICATED = "__local__"

UNSIGNED_MAX = (1 << 64) - 1
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class ProducerMessage(msgspec.Struct, rename="camel"):
    """One message; a `payload` is text, which the schema turns to bytes."""

    payload: str | None = None
    properties: dict[str, str] | None = None
    key: str | None = None
    replication_clusters: list[str] | None = None
    event_time: str | None = None
    sequence_id: int = 0
    disable_replication: bool = False
    deliver_at: int = 0
    deliver_after_ms: int = 0


class ProducerMessages(msgspec.Struct, rename="camel"):
    """The body; schemas are texts of JSON, of which the bytes are base64."""

    schema_version: int = -1
    key_schema: str | None = None
    value_schema: str | None = None
    producer_name: str | None = None
    messages: list[ProducerMessage] | None = None


class _Whole(msgspec.Struct):
    """A body of which the messages aren't decoded."""

    messages: msgspec.Raw = msgspec.Raw(b"null")


class _SchemaInfo(msgspec.Struct):
    name: str | None = None
    schema: str | None = None
    type: str | None = None
    properties: dict[str, str] | None = None


class BadSchema(ValueError):
    """A schema in a request that can't be read."""


class Made(NamedTuple):
    """A message that can be appended, or why it can't."""

    data: bytes
    error: str = ""


def schema_of(request: ProducerMessages) -> SchemaData:
    """The schema of a request: text if it names none. Raises BadSchema."""
    value = (
        _schema(request.value_schema)
        if request.value_schema
        else SchemaData(SchemaType.STRING, b"", user="Rest Producer")
    )
    if not request.key_schema:
        return value
    key = _schema(request.key_schema)
    props = {
        **_part_properties("key", key, request.key_schema),
        **_part_properties("value", value, request.value_schema or ""),
        "kv.encoding.type": "SEPARATED",
    }
    data = join_key_value(key.data, value.data)
    return SchemaData(SchemaType.KEY_VALUE, data, props, "Rest Producer")


def _part_properties(part: str, schema: SchemaData, text: str) -> dict[str, str]:
    props = msgspec.json.encode(dict(schema.props)).decode()
    name = _info(text).name if text else "String"
    return {
        f"{part}.schema.name": schema.type.name if name is None else name,
        f"{part}.schema.type": schema.type.name,
        f"{part}.schema.properties": props,
    }


def _info(text: str) -> _SchemaInfo:
    try:
        info = jackson.decode(text.encode(), _SchemaInfo)
    except jackson.Unbindable as error:
        raise BadSchema(f"the schema is not valid: {error}") from None
    if not isinstance(info, _SchemaInfo):
        raise BadSchema("the schema is null")
    return info


def _schema(text: str) -> SchemaData:
    info = _info(text)
    try:
        kind = SchemaType[info.type or ""]
        data = base64.b64decode(info.schema or "", validate=True)
    except KeyError:
        raise BadSchema(f"unknown schema type: {info.type}") from None
    except ValueError as error:  # also for letters that are no ASCII
        raise BadSchema(f"the schema is no base64: {error}") from None
    props = {name: value for name, value in (info.properties or {}).items() if value is not None}
    return SchemaData(kind, data, props, "Rest Producer")


class TooMany(Exception):
    """A request has more than `MESSAGES_MAX` messages."""


def request_of(body: bytes) -> object:
    """The body as ProducerMessages; None without a body, or for null. Raises Unbindable, and
    TooMany before the messages are looked at.
    """
    if not body.strip():
        return None
    try:
        messages = read_json(body, _Whole).messages
        count = len(read_json(messages, list[msgspec.Raw]))
    except BadJson:
        count = 0  # What is wrong is told below.
    if count > MESSAGES_MAX:
        raise TooMany
    return jackson.decode(body, ProducerMessages)


class TooLarge(Exception):
    """The messages of a request have more than `MADE_BYTES_MAX`."""


class Encoders(NamedTuple):
    """What makes bytes of the texts of a request; without `key` they are the keys themselves."""

    value: Encode
    key: Encode | None = None


def encoders_of(schema: SchemaData) -> Encoders:
    """Those of the request's schema."""
    if schema.type is not SchemaType.KEY_VALUE:
        return Encoders(encoder_of(schema))
    parts = split_key_value(schema)
    return Encoders(encoder_of(parts.value), encoder_of(parts.key))


def made(
    message: ProducerMessage, producer: str, encoders: Encoders, version: bytes, now_ms: int
) -> Made:
    """The message's bytes; `version` is the schema's. Raises BrokerError for names and properties
    that are too long.
    """
    properties = {k: v for k, v in (message.properties or {}).items() if v is not None}
    check_properties("Properties", properties.items())
    try:
        metadata = _metadata(message, producer, version, now_ms)
        for name, value in properties.items():
            metadata.properties.add(key=name, value=value)
        payload = _filled(metadata, message, encoders)
    except Unencodable as error:
        return Made(b"", str(error))
    metadata.uncompressed_size = len(payload)
    return Made(build(metadata, payload))


def _metadata(
    message: ProducerMessage, producer: str, version: bytes, now_ms: int
) -> MessageMetadata:
    """Without key and properties. Raises Unencodable for times that Pulsar hasn't."""
    metadata = MessageMetadata(
        producer_name=producer,
        publish_time=now_ms,
        # As Java's negative numbers are stored.
        sequence_id=message.sequence_id & UNSIGNED_MAX,
        compression=CompressionType.NONE,
        schema_version=version or None,
    )
    clusters = [each for each in message.replication_clusters or () if each is not None]
    metadata.replicate_to.extend([NOT_REPLICATED] if message.disable_replication else clusters)
    if message.event_time:
        if _NUMBER.fullmatch(message.event_time) is None:
            raise Unencodable(f"eventTime is not a number: {message.event_time[:80]}")
        metadata.event_time = int(message.event_time) & UNSIGNED_MAX
    if message.deliver_at > 0:
        metadata.deliver_at_time = message.deliver_at
    elif message.deliver_after_ms > 0:
        at = (metadata.event_time or now_ms) + message.deliver_after_ms
        if at > jackson.LONG_MAX:
            raise Unencodable(f"deliverAfterMs is too large: {message.deliver_after_ms}")
        metadata.deliver_at_time = at
    return metadata


def _filled(metadata: MessageMetadata, message: ProducerMessage, encoders: Encoders) -> bytes:
    """Sets the key, returns the payload. Raises Unencodable."""
    key = message.key
    if key is not None:
        if encoders.key is not None:
            key = base64.b64encode(encoders.key(key)).decode()
            metadata.partition_key_b64_encoded = True
        check_text("key", key, NAME_BYTES_MAX * 64)
        metadata.partition_key = key
    return encoders.value(message.payload)


def all_made(
    request: ProducerMessages, schema: SchemaData, version: bytes, now_ms: int
) -> Sequence[Made]:
    """All messages of a request, in order. Raises BrokerError as `made`, TooLarge."""
    producer = request.producer_name or PRODUCER
    check_text("producer name", producer, NAME_BYTES_MAX)
    encoders = encoders_of(schema)
    found: list[Made] = []
    left = MADE_BYTES_MAX
    for each in request.messages or ():
        found.append(made(each, producer, encoders, version, now_ms))
        left -= len(found[-1].data)
        if left < 0:
            raise TooLarge
    return found
