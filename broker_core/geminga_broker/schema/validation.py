"""Validation of schemas' definitions (Apache's `SchemaDataValidator`)."""

from __future__ import annotations

import json

from geminga_broker.limits import SCHEMA_BYTES_MAX
from geminga_broker.schema.key_value import split_key_value
from geminga_broker.schema.model import AVRO_SHAPED, InvalidSchemaData, SchemaData
from geminga_broker.schema.native import root_message
from geminga_protocol.avro_schema import AvroSchema, AvroSchemaError, parse_avro
from geminga_protocol.schema_type import SchemaType

_CLIENT_SIDE = (SchemaType.AUTO, SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH)
_NOT_CHECKED = (SchemaType.NONE, SchemaType.BYTES)
_JSON_SCHEMA_TYPES = frozenset(
    ("any", "array", "boolean", "integer", "null", "number", "object", "string")
)
KEY_VALUE_DEPTH_MAX = 8
"""Maximal nesting of pairs."""


def validate(schema: SchemaData, depth: int = 0) -> None:
    """Raises InvalidSchemaData with Apache's text."""
    kind = schema.type
    if len(schema.data) > SCHEMA_BYTES_MAX:
        raise InvalidSchemaData(f"Schema is larger than {SCHEMA_BYTES_MAX} bytes")
    if kind in _CLIENT_SIDE:
        raise InvalidSchemaData(f"Schema {kind.name} is a client-side schema type")
    if kind in _NOT_CHECKED:
        return
    if kind in AVRO_SHAPED:
        _validate_avro(schema)
    elif kind is SchemaType.PROTOBUF_NATIVE:
        root_message(schema.data)
    elif kind is SchemaType.KEY_VALUE:
        if depth >= KEY_VALUE_DEPTH_MAX:
            raise InvalidSchemaData(f"KEY_VALUE schemas nested deeper than {KEY_VALUE_DEPTH_MAX}")
        for part in split_key_value(schema):
            validate(part, depth + 1)
    elif kind is SchemaType.STRING:
        # The Python client sends None as "null".
        if schema.data not in (b"", b"null"):
            text = schema.data.decode("utf-8", "replace")
            raise InvalidSchemaData(f"Invalid schema definition data for string schema : '{text}'")
    elif schema.data:
        raise InvalidSchemaData(
            "Invalid schema definition data for primitive schemas :length of schema data should "
            f"be zero, but {len(schema.data)} bytes is found"
        )


def avro_of(schema: SchemaData) -> AvroSchema:
    """The Avro schema of a definition. Raises AvroSchemaError."""
    return parse_avro(schema.data.decode("utf-8", "replace"))


def old_json_id(schema: SchemaData) -> tuple[bool, str | None]:
    """Whether the definition is an old client's JSON Schema (or null), and its id."""
    try:
        source: object = json.loads(schema.data)
    except (ValueError, RecursionError):
        return False, None
    if source is None:
        return True, None
    if not isinstance(source, dict) or source.get("type") not in _JSON_SCHEMA_TYPES:
        return False, None
    found = source.get("id")
    return True, found if isinstance(found, str) else None


def _validate_avro(schema: SchemaData) -> None:
    try:
        root = avro_of(schema).root
    except AvroSchemaError:
        if schema.type is SchemaType.JSON and old_json_id(schema)[0]:
            return
        text = f"Invalid schema definition data for {schema.type.name} schema"
        raise InvalidSchemaData(text) from None
    if schema.type is SchemaType.AVRO and root.kind == "union":
        raise InvalidSchemaData("Avro schema typed [UNION] is not supported")
