"""The two responses that any request may get."""

from __future__ import annotations

from geminga_protocol.encode import framed
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandError,
    CommandSuccess,
    Schema,
    ServerError,
)


def success(request_id: int, *, schema: Schema | None = None) -> bytes:
    """SUCCESS, with the topic's schema if a subscribe asked for it."""
    return framed(CommandSuccess(request_id=request_id, schema=schema))


def error(request_id: int, code: ServerError, message: str) -> bytes:
    """ERROR."""
    return framed(CommandError(request_id=request_id, error=code, message=message))
