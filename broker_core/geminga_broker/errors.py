"""Refusals, with the error code for the client (spec PR-09)."""

from __future__ import annotations

from geminga_protocol.pb.pulsar_api_pb2 import ServerError


class BrokerError(Exception):
    """A refused or failed request. `code` and the text are sent to the client."""

    def __init__(self, code: ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class AboveLimit(BrokerError):
    """There are as many topics, or subscriptions of a topic, as there may be."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.NotAllowedError, message)
