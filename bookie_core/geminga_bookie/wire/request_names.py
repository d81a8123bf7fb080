"""What requests of version 3 are called in metrics (spec BK-13)."""

from __future__ import annotations

from geminga_protocol.pb.bookkeeper_protocol_pb2 import (
    READ_ENTRY,
    OperationType,
    ReadRequest,
    Request,
)

LAST_ENTRY = -1


def name_of(request: Request) -> str:
    """The name of a request's metrics."""
    operation, asked = request.header.operation, request.readRequest
    if operation != READ_ENTRY:
        return OperationType.Name(operation)
    if asked.HasField("flag") and asked.flag == ReadRequest.FENCE_LEDGER:
        return "READ_ENTRY_FENCE"
    return "READ_ENTRY_LONG_POLL" if asked.HasField("previousLAC") else "READ_ENTRY"
