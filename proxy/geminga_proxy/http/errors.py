"""Errors of one request (spec PX-06)."""

from __future__ import annotations

from collections.abc import Sequence


class HttpError(Exception):
    """The response has this status and `{"reason": ...}`. The text is for the client."""

    def __init__(
        self, status: int, reason: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


class BadRequest(HttpError):
    """The request violates HTTP/1.1. The connection is closed after the response: the beginning
    of the next request is unknown.
    """

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(status, reason)


class BrokerFailed(Exception):
    """A broker can't be reached, or its response broke off. The text is for the log, `told` for
    the client: it has no broker's address.
    """

    def __init__(
        self, text: str, *, timed_out: bool = False, told: str = "No broker can be reached now"
    ) -> None:
        super().__init__(text)
        self.timed_out = timed_out
        self.told = told


class ExchangeBroken(Exception):
    """A response was begun and can't be finished: the connection is closed, so that the client
    doesn't take the response for complete.
    """
