"""Errors of the WebSocket API (Apache's `WebSocketError`)."""

from __future__ import annotations

import geminga

FAILED_TO_DESERIALIZE = 3
PAYLOAD_ENCODING = 7
UNKNOWN = 8
"""Codes in the `result` of a producer's response, as in `send-error:7`."""

CLOSE_BAD_COMMAND = 1011
"""Apache tries to close with its code 3, which is invalid: its clients see a lost connection. For
other errors it closes with this code.
"""
CLOSE_GOING_AWAY = 1001
CLOSE_POLICY = 1008


class Refused(Exception):
    """The WebSocket isn't opened; the response has this HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class BadParameter(Refused):
    """An invalid query parameter, with Apache's text if it has one."""

    def __init__(self, text: str) -> None:
        super().__init__(400, f"Invalid query params: {text}")


class BadCommand(Exception):
    """An invalid command of a consumer: the WebSocket is closed."""


class BadMessage(Exception):
    """An invalid message of a producer; the WebSocket stays open."""

    def __init__(self, code: int, text: str, context: str | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.context = context


_STATUSES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((geminga.AuthenticationError,), 401),
    ((geminga.AuthorizationError,), 403),
    ((geminga.TopicNotFoundError,), 404),
    (
        (
            geminga.ProducerBusyError,
            geminga.ConsumerBusyError,
            geminga.ProducerFencedError,
            geminga.IncompatibleSchemaError,
        ),
        409,
    ),
    ((geminga.TooManyRequestsError,), 429),
    ((geminga.QuotaExceededError, geminga.TopicTerminatedError), 503),
    ((geminga.OperationTimeoutError,), 504),
)


def refusal(error: geminga.GemingaError, what: str) -> Refused:
    """The HTTP response to a failed creation (Apache's `AbstractWebSocketHandler.getErrorCode`)."""
    if isinstance(error, geminga.InvalidArgumentError):
        return BadParameter(str(error))
    for kinds, status in _STATUSES:
        if isinstance(error, kinds):
            return Refused(status, f"Failed to create {what}: {error}")
    return Refused(500, f"Failed to create {what}: {error}")
