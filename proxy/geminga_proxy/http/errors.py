"""What can go wrong with one request (spec PX-06)."""

from __future__ import annotations

from collections.abc import Sequence


class HttpError(Exception):
    """Answer with this status and `{"reason": ...}`. The text is meant for the client."""

    def __init__(
        self, status: int, reason: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


class BadRequest(HttpError):
    """The client doesn't speak HTTP/1.1 as it must: it is answered, and its connection closed,
    since nobody knows where its next request would begin.
    """

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(status, reason)


class BrokerFailed(Exception):
    """A broker can't be reached, or broke in mid-answer; the text goes to the log."""

    def __init__(self, text: str, *, timed_out: bool = False) -> None:
        super().__init__(text)
        self.timed_out = timed_out


class ExchangeBroken(Exception):
    """An answer that was begun can't be ended: all that is left is to close the connection, so that
    the client doesn't take it for whole.
    """
