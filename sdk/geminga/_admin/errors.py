"""Errors of the admin client, by the HTTP status of the answer.

    AdminError                 (GemingaError)  another status, or an answer of the wrong form
      BadRequestError                          400, 406, 413, 415, 422: the request is not valid
      NotAuthorizedError                       401, 403
      NotFoundError                            404
      NotAllowedError                          405: not possible for this object, or not served
      ConflictError                            409: it exists already, or is in use
      PreconditionFailedError                  412: a name or value that the broker doesn't take
      ServerError                              500 and above
        UnavailableError                       429, 502, 503, 504: the same call may succeed later
      UnreachableError         (ConnectionFailedError)  no answer: not connected, or lost
      RequestTimeoutError      (OperationTimeoutError)  no answer within `request_timeout_s`

Each has `status` (0 without an answer) and `reason`, the server's own words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from geminga.errors import ConnectionFailedError, GemingaError, OperationTimeoutError

REASON_CHARS_MAX = 4096
SHOWN_CHARS_MAX = 300
"""Characters of a reason in an error's text."""


class AdminError(GemingaError):
    """The server refused a request, or its answer can't be used."""

    status: int = 0
    """The HTTP status; 0 if there was no answer."""
    reason: str = ""
    """The server's reason; empty if it gave none."""


class BadRequestError(AdminError):
    """The server takes the request's body or parameters as invalid."""


class NotAuthorizedError(AdminError):
    """Without credentials, with wrong ones, or of a role that lacks the permission."""


class NotFoundError(AdminError):
    """The cluster, tenant, namespace, topic, subscription or path doesn't exist."""


class NotAllowedError(AdminError):
    """The object doesn't allow the operation, or the server doesn't serve it."""


class ConflictError(AdminError):
    """It exists already, is in use, or was changed by somebody else at the same time."""


class PreconditionFailedError(AdminError):
    """A name is invalid, or the state of the cluster forbids it."""


class ServerError(AdminError):
    """The server failed."""


class UnavailableError(ServerError):
    """The server can't serve it now, for instance while a topic moves to another broker."""

    retryable = True


class UnreachableError(AdminError, ConnectionFailedError):
    """No host of the service URL answered, or the connection was lost before the answer. In the
    second case the server may have carried the request out.
    """

    retryable = True


class RequestTimeoutError(AdminError, OperationTimeoutError):
    """No answer in time; the server may have carried the request out."""

    retryable = True


BY_STATUS: Mapping[int, type[AdminError]] = {
    400: BadRequestError,
    401: NotAuthorizedError,
    403: NotAuthorizedError,
    404: NotFoundError,
    405: NotAllowedError,
    406: BadRequestError,
    409: ConflictError,
    412: PreconditionFailedError,
    413: BadRequestError,
    415: BadRequestError,
    422: BadRequestError,
    429: UnavailableError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


def of_answer(status: int, body: bytes, what: str) -> AdminError:
    """The error of an answer; `what` is the request, as in "GET http://..."."""
    kind = BY_STATUS.get(status, ServerError if status >= 500 else AdminError)
    reason = _reason(body)
    tail = f": {_shown(reason)}" if reason else ""
    if status == 404 and not reason and "/proxy-stats/" in what:
        tail = " (only a proxy has this: is it a proxy's address?)"
    error = kind(f"{what}: HTTP status {status}{tail}", code=f"Http{status}")
    error.status, error.reason = status, reason
    return error


def _reason(body: bytes) -> str:
    """The server's reason: of its JSON, else a text that is no page of HTML."""
    text = body[:REASON_CHARS_MAX].decode("utf-8", "replace").strip()
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return "" if text.startswith("<") else re.sub(r"\s+", " ", text)
    reason = found.get("reason") if isinstance(found, dict) else None
    return reason[:REASON_CHARS_MAX] if isinstance(reason, str) else ""


def _shown(reason: str) -> str:
    """A reason in one line of bounded length."""
    text = " ".join(reason.split())
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."
