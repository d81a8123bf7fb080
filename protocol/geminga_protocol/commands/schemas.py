"""Reading and registering schemas."""

from __future__ import annotations

from geminga_protocol.encode import framed
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    Schema,
    ServerError,
)


def get_schema(request_id: int, topic: str, *, schema_version: bytes | None = None) -> bytes:
    """GET_SCHEMA; without a version the latest."""
    body = CommandGetSchema(request_id=request_id, topic=topic, schema_version=schema_version)
    return framed(body)


def get_schema_response(request_id: int, schema: Schema, schema_version: bytes) -> bytes:
    """GET_SCHEMA_RESPONSE."""
    body = CommandGetSchemaResponse(
        request_id=request_id, schema=schema, schema_version=schema_version
    )
    return framed(body)


def get_schema_error(request_id: int, code: ServerError, message: str) -> bytes:
    """GET_SCHEMA_RESPONSE with an error; TopicNotFound: the topic has no schema."""
    body = CommandGetSchemaResponse(request_id=request_id, error_code=code, error_message=message)
    return framed(body)


def get_or_create_schema(request_id: int, topic: str, schema: Schema) -> bytes:
    """GET_OR_CREATE_SCHEMA."""
    return framed(CommandGetOrCreateSchema(request_id=request_id, topic=topic, schema=schema))


def get_or_create_schema_response(request_id: int, schema_version: bytes) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE."""
    body = CommandGetOrCreateSchemaResponse(request_id=request_id, schema_version=schema_version)
    return framed(body)


def get_or_create_schema_error(request_id: int, code: ServerError, message: str) -> bytes:
    """GET_OR_CREATE_SCHEMA_RESPONSE with an error."""
    body = CommandGetOrCreateSchemaResponse(
        request_id=request_id, error_code=code, error_message=message
    )
    return framed(body)
