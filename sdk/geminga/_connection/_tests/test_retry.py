from __future__ import annotations

import itertools

import pytest

from geminga import errors
from geminga._connection.retry import (
    AttachAction,
    SendErrorAction,
    attach_action,
    send_error_action,
)

GIVE_UP_AT_FIRST = {
    "AuthenticationError", "AuthorizationError", "ConsumerBusy", "ChecksumError",
    "UnsupportedVersionError", "TopicNotFound", "SubscriptionNotFound", "ConsumerNotFound",
    "TopicTerminatedError", "ProducerBusy", "InvalidTopicName", "IncompatibleSchema",
    "ConsumerAssignError", "InvalidTxnStatus", "NotAllowedError", "TransactionConflict",
    "TransactionNotFound", "ProducerFenced", "ProducerBlockedQuotaExceededException",
}  # fmt: skip
GIVE_UP_EVER = {
    "AuthenticationError", "TopicNotFound", "TopicTerminatedError", "ProducerFenced",
    "InvalidTopicName",
}  # fmt: skip


@pytest.mark.parametrize("code", errors.BY_CODE)
def test_attach_table(code: str) -> None:
    error = errors.from_broker(code, "")
    for before, late in itertools.product((False, True), repeat=2):
        expected = AttachAction.RETRY
        if code in GIVE_UP_EVER or (not before and (late or code in GIVE_UP_AT_FIRST)):
            expected = AttachAction.GIVE_UP
        assert attach_action(error, attached_before=before, deadline_passed=late) is expected


def test_lost_connections_are_retried_until_the_deadline() -> None:
    lost = errors.ConnectionFailedError("x")
    assert attach_action(lost, attached_before=False, deadline_passed=False) is AttachAction.RETRY
    assert attach_action(lost, attached_before=False, deadline_passed=True) is AttachAction.GIVE_UP
    assert attach_action(lost, attached_before=True, deadline_passed=True) is AttachAction.RETRY


@pytest.mark.parametrize("code", errors.BY_CODE)
def test_send_errors(code: str) -> None:
    expected = {
        "ChecksumError": SendErrorAction.VERIFY,
        "TopicTerminatedError": SendErrorAction.TERMINATE,
        "NotAllowedError": SendErrorAction.FAIL,
    }.get(code, SendErrorAction.RECONNECT)
    assert send_error_action(code) is expected
