"""Refusals, with the error code for the client (spec PR-09)."""

from __future__ import annotations

from geminga_protocol.pb.pulsar_api_pb2 import ServerError


class BrokerError(Exception):
    """A request that is refused or failed. `code` and the text go to the client as they are."""

    def __init__(self, code: ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
