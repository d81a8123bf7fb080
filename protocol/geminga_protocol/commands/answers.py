"""The two answers that any request may get."""

from __future__ import annotations

from geminga_protocol.encode import frame
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandError,
    CommandSuccess,
    Schema,
    ServerError,
)


def success(request_id: int, *, schema: Schema | None = None) -> bytes:
    """SUCCESS; the schema stands in it where a subscribe asked for the topic's."""
    body = CommandSuccess(request_id=request_id, schema=schema)
    return frame(BaseCommand(type=BaseCommand.SUCCESS, success=body))


def error(request_id: int, code: ServerError, message: str) -> bytes:
    """ERROR."""
    body = CommandError(request_id=request_id, error=code, message=message)
    return frame(BaseCommand(type=BaseCommand.ERROR, error=body))
