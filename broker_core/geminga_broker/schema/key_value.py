"""Schemas of pairs, stored and for the admin API (`KeyValueSchemaInfo`, `SchemaUtils`)."""

from __future__ import annotations

import json
import re
import struct
from typing import NamedTuple

import msgspec

from geminga_broker.schema.model import AVRO_SHAPED, InvalidSchemaData, SchemaData
from geminga_protocol.schema_type import SchemaType
from geminga_runtime.json_text import BadJson, read_json

_LENGTH = struct.Struct(">i")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\s+')
"""JSON strings, and white space between tokens."""


class KeyValueSchemas(NamedTuple):
    """The schemas of keys and values."""

    key: SchemaData
    value: SchemaData


def split_key_value(schema: SchemaData) -> KeyValueSchemas:
    """The two parts of a KEY_VALUE schema. Raises InvalidSchemaData."""
    key, rest = _part(schema.data)
    value, rest = _part(rest)
    if rest:
        raise InvalidSchemaData(f"{len(rest)} bytes after the schemas of key and value")
    return KeyValueSchemas(_schema(schema, "key", key), _schema(schema, "value", value))


def join_key_value(key: bytes, value: bytes) -> bytes:
    """The definition with these two parts."""
    return b"".join((_LENGTH.pack(len(key)), key, _LENGTH.pack(len(value)), value))


def key_value_from_text(text: str) -> bytes:
    """From `{"key": ..., "value": ...}`; an empty part has no text. Raises InvalidSchemaData."""
    try:
        parts = read_json(text, dict[str, msgspec.Raw])
    except BadJson as error:
        raise InvalidSchemaData(f"Invalid schema definition data for KEY_VALUE: {error}") from None
    if not {"key", "value"} <= parts.keys():
        raise InvalidSchemaData("Invalid schema definition data for KEY_VALUE: no key and value")
    return join_key_value(_text_part(parts["key"]), _text_part(parts["value"]))


def key_value_to_text(schema: SchemaData) -> str:
    """The inverse. Raises InvalidSchemaData."""
    parts = split_key_value(schema)
    told = {"key": _json_of(parts.key), "value": _json_of(parts.value)}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False)


def _part(data: bytes) -> tuple[bytes, bytes]:
    """A part, and the bytes after it; length -1 means null."""
    if len(data) < _LENGTH.size:
        raise InvalidSchemaData("KEY_VALUE schema is cut off in a length")
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + max(length, 0)
    if length < -1 or end > len(data):
        raise InvalidSchemaData(f"KEY_VALUE schema: length {length} exceeds the data")
    return data[_LENGTH.size : end], data[end:]


def _schema(schema: SchemaData, which: str, data: bytes) -> SchemaData:
    name = schema.props.get(f"{which}.schema.type", SchemaType.BYTES.name)
    try:
        kind = SchemaType[name]
    except KeyError:
        raise InvalidSchemaData(f"{which}.schema.type: Unknown schema type : {name}") from None
    text = schema.props.get(f"{which}.schema.properties") or "{}"
    try:
        props: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaData(f"{which}.schema.properties: {error}") from None
    if not isinstance(props, dict):
        raise InvalidSchemaData(f"{which}.schema.properties is no object")
    strings = {
        key: each if isinstance(each, str) else json.dumps(each) for key, each in props.items()
    }
    return SchemaData(kind, data, strings)


def _text_part(part: msgspec.Raw) -> bytes:
    """A part as Apache's broker stores it (Gson's `JsonElement.toString`): without white space
    between tokens, numbers with all digits, strings without needless escapes.
    """
    text = bytes(part).decode()
    return b"" if text == '""' else _TOKEN.sub(_kept, text).encode()


def _kept(token: re.Match[str]) -> str:
    text = token.group()
    if not text.startswith('"'):
        return ""
    try:
        told = json.dumps(json.loads(text), ensure_ascii=False)
    except ValueError as error:
        raise InvalidSchemaData(f"Invalid schema definition data for KEY_VALUE: {error}") from None
    return told.replace("\u2028", r"\u2028").replace("\u2029", r"\u2029")


def _json_of(part: SchemaData) -> object:
    if part.type not in AVRO_SHAPED and part.type is not SchemaType.PROTOBUF_NATIVE:
        return ""
    try:
        told: object = json.loads(part.data)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaData(f"{part.type.name} schema of a part: {error}") from None
    return told
