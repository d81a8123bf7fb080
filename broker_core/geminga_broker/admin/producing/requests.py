"""What a request to publish says, and the messages that it becomes (spec OP-03; Apache's
`ProducerMessages`, `TopicsBase.buildMessage`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from geminga_broker.admin import jackson
from geminga_broker.admin.producing.encoding import Unencodable, encoded
from geminga_broker.limits import NAME_BYTES_MAX, check_properties, check_text
from geminga_broker.schema.key_value import join_key_value, split_key_value
from geminga_broker.schema.model import SchemaData
from geminga_protocol.payload import build
from geminga_protocol.pb.pulsar_api_pb2 import CompressionType, MessageMetadata
from geminga_protocol.schema_type import SchemaType

PRODUCER = "RestProducer"
"""The producer of messages without one."""

MESSAGES_MAX = 10_000
"""Of one request."""

NOT_REPLICATED = "__local__"


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
    except binascii.Error as error:
        raise BadSchema(f"the schema is no base64: {error}") from None
    return SchemaData(kind, data, info.properties or {}, "Rest Producer")


def made(
    message: ProducerMessage, producer: str, schema: SchemaData, version: bytes, now_ms: int
) -> Made:
    """The message's bytes; `version` is the schema's. Raises BrokerError for names and properties
    that are too long.
    """
    metadata = MessageMetadata(
        producer_name=producer,
        publish_time=now_ms,
        sequence_id=message.sequence_id,
        compression=CompressionType.NONE,
        schema_version=version,
    )
    properties = {k: v for k, v in (message.properties or {}).items() if v is not None}
    check_properties("Properties", properties.items())
    for name, value in properties.items():
        metadata.properties.add(key=name, value=value)
    clusters = message.replication_clusters or []
    metadata.replicate_to.extend([NOT_REPLICATED] if message.disable_replication else clusters)
    if message.event_time:
        try:
            metadata.event_time = int(message.event_time)
        except ValueError:
            return Made(b"", f"eventTime is not a number: {message.event_time[:80]}")
    if message.deliver_at > 0:
        metadata.deliver_at_time = message.deliver_at
    elif message.deliver_after_ms > 0:
        metadata.deliver_at_time = (metadata.event_time or now_ms) + message.deliver_after_ms
    try:
        payload = _filled(metadata, message, schema)
    except Unencodable as error:
        return Made(b"", str(error))
    metadata.uncompressed_size = len(payload)
    return Made(build(metadata, payload))


def _filled(metadata: MessageMetadata, message: ProducerMessage, schema: SchemaData) -> bytes:
    """Sets the key, returns the payload. Raises Unencodable."""
    value = schema
    key = message.key
    if schema.type is SchemaType.KEY_VALUE:
        parts = split_key_value(schema)
        value = parts.value
        if key is not None:
            key = base64.b64encode(encoded(key, parts.key)).decode()
            metadata.partition_key_b64_encoded = True
    if key is not None:
        check_text("key", key, NAME_BYTES_MAX * 64)
        metadata.partition_key = key
    return encoded(message.payload, value)


def all_made(
    request: ProducerMessages, schema: SchemaData, version: bytes, now_ms: int
) -> Sequence[Made]:
    """All messages of a request, in order. Raises BrokerError as `made`."""
    producer = request.producer_name or PRODUCER
    check_text("producer name", producer, NAME_BYTES_MAX)
    return [made(each, producer, schema, version, now_ms) for each in request.messages or ()]
