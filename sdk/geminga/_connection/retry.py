"""What to do about each failure, as tables (spec SDK-07). Pure.

A producer or consumer is *attached* while the broker knows it over a live connection. Whatever ends
that is met by attaching again, with back-off; these tables say when not to.
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
    """Answer to a SEND_ERROR (ClientCnx.handleSendError)."""

    VERIFY = "verify"
    """Check our own copy: if it is whole, send everything pending again; else fail the message."""
    TERMINATE = "terminate"
    """Fail everything pending and close the producer."""
    FAIL = "fail"
    """Fail that message and go on."""
    RECONNECT = "reconnect"
    """Close the connection; everything pending is sent again in order."""


SEND_ERRORS: dict[str, SendErrorAction] = {
    "ChecksumError": SendErrorAction.VERIFY,
    "TopicTerminatedError": SendErrorAction.TERMINATE,
    "NotAllowedError": SendErrorAction.FAIL,
}
"""By ServerError name; every other one reconnects."""


def send_error_action(code: str) -> SendErrorAction:
    """What a SEND_ERROR with that code asks for."""
    return SEND_ERRORS.get(code, SendErrorAction.RECONNECT)


FAILS_PENDING = frozenset({"ProducerBlockedQuotaExceededException"})
"""Answers to PRODUCER that fail everything pending, by ServerError name: the topic's backlog quota
says `producer_exception`. With `producer_request_hold` the broker answers the same error's other
name, and pending messages wait (ProducerImpl.connectionOpened). At creation it is final, as for
Apache's C++ client; the hold is waited for.
"""


class AttachAction(enum.Enum):
    """Answer to a failed attempt to attach."""

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
"""Failures that no waiting heals, however long the producer or consumer has lived."""


def attach_action(
    error: GemingaError, *, attached_before: bool, deadline_passed: bool
) -> AttachAction:
    """Whether to try again.

    One that was attached once goes on for ever, but for FATAL failures: a policy or a rival may go
    away. A first attempt goes on while the error is retryable and its deadline isn't passed
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
