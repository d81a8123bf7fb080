"""Reactions to failures, as tables (spec SDK-07). Pure.

A producer or consumer is *attached* while it is registered with the broker over a live connection.
After any end of that it is attached again, with back-off; these tables have the exceptions.
"""

from __future__ import annotations

import enum

from geminga.errors import (
    AlreadyClosedError,
    AuthenticationError,
    GemingaError,
    InvalidArgumentError,
    ProducerFencedError,
    TopicNotFoundError,
    TopicTerminatedError,
)


class SendErrorAction(enum.Enum):
    """Reaction to a SEND_ERROR (ClientCnx.handleSendError)."""

    VERIFY = "verify"
    """Check our own copy: if it is intact, resend everything pending; else fail the message."""
    TERMINATE = "terminate"
    """Fail everything pending and close the producer."""
    FAIL = "fail"
    """Fail that message and continue."""
    RECONNECT = "reconnect"
    """Close the connection; everything pending is resent in order."""


SEND_ERRORS: dict[str, SendErrorAction] = {
    "ChecksumError": SendErrorAction.VERIFY,
    "TopicTerminatedError": SendErrorAction.TERMINATE,
    "NotAllowedError": SendErrorAction.FAIL,
}
"""By ServerError name; all others reconnect."""


def send_error_action(code: str) -> SendErrorAction:
    """The reaction to a SEND_ERROR with that code."""
    return SEND_ERRORS.get(code, SendErrorAction.RECONNECT)


FAILS_PENDING = frozenset({"ProducerBlockedQuotaExceededException"})
"""Errors for PRODUCER that fail everything pending, by ServerError name: the topic's backlog quota
policy is `producer_exception`. With `producer_request_hold` the broker sends the other error name,
and pending messages wait (ProducerImpl.connectionOpened). At a producer's creation the error is
final, as for Apache's C++ client; a hold is waited for.
"""


class AttachAction(enum.Enum):
    """Reaction to a failed attempt to attach."""

    RETRY = "retry"
    GIVE_UP = "give-up"


FATAL: tuple[type[GemingaError], ...] = (
    AlreadyClosedError,
    AuthenticationError,
    InvalidArgumentError,
    ProducerFencedError,
    TopicNotFoundError,
    TopicTerminatedError,
)
"""Failures for which a retry never helps, even after a success."""


def attach_action(
    error: GemingaError, *, attached_before: bool, deadline_passed: bool
) -> AttachAction:
    """Whether to try again.

    After a first success, retry for ever, except after FATAL failures: a policy or a rival may
    disappear. Before it, retry while the error is retryable and the deadline hasn't passed
    (ProducerImpl and ConsumerImpl.connectionOpened).
    """
    if isinstance(error, FATAL):
        return AttachAction.GIVE_UP
    if attached_before:
        return AttachAction.RETRY
    if error.code in FAILS_PENDING:
        return AttachAction.GIVE_UP
    if error.retryable and not deadline_passed:
        return AttachAction.RETRY
    return AttachAction.GIVE_UP
