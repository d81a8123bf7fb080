"""Transaction commands, refused even with the right: there is no transaction coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from geminga_broker.errors import BrokerError
from geminga_broker.session.session import Session
from geminga_protocol.encode import framed
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandAddPartitionToTxnResponse,
    CommandAddSubscriptionToTxnResponse,
    CommandEndTxnOnPartitionResponse,
    CommandEndTxnOnSubscriptionResponse,
    CommandEndTxnResponse,
    CommandNewTxnResponse,
    CommandTcClientConnectResponse,
    ServerError,
)

_C = BaseCommand.Type
_Response = (
    CommandAddPartitionToTxnResponse
    | CommandAddSubscriptionToTxnResponse
    | CommandEndTxnOnPartitionResponse
    | CommandEndTxnOnSubscriptionResponse
    | CommandEndTxnResponse
)


class _WithTxn(Protocol):
    """A command of a transaction."""

    request_id: int
    txnid_most_bits: int
    txnid_least_bits: int


async def refuse(session: Session, command: object) -> None:
    """Raises BrokerError: the code is Apache's with transactions disabled."""
    code = ServerError.TransactionCoordinatorNotFound
    raise BrokerError(code, "Transactions are not enabled")


def _coordinator(command: Any, code: ServerError, text: str) -> bytes:
    if code == ServerError.TransactionCoordinatorNotFound:
        code = ServerError.NotAllowedError
    response = CommandTcClientConnectResponse
    return framed(response(request_id=command.request_id, error=code, message=text))


def _new(command: Any, code: ServerError, text: str) -> bytes:
    response = CommandNewTxnResponse
    return framed(response(request_id=command.request_id, error=code, message=text))


def _of_txn(response: type[_Response]) -> Callable[[Any, ServerError, str], bytes]:
    def refusal(command: _WithTxn, code: ServerError, text: str) -> bytes:
        body = response(
            request_id=command.request_id,
            txnid_least_bits=command.txnid_least_bits,
            txnid_most_bits=command.txnid_most_bits,
            error=code,
            message=text,
        )
        return framed(body)

    return refusal


ANSWERS: dict[int, Callable[[Any, ServerError, str], bytes]] = {
    _C.TC_CLIENT_CONNECT_REQUEST: _coordinator,
    _C.NEW_TXN: _new,
    _C.ADD_PARTITION_TO_TXN: _of_txn(CommandAddPartitionToTxnResponse),
    _C.ADD_SUBSCRIPTION_TO_TXN: _of_txn(CommandAddSubscriptionToTxnResponse),
    _C.END_TXN: _of_txn(CommandEndTxnResponse),
    _C.END_TXN_ON_PARTITION: _of_txn(CommandEndTxnOnPartitionResponse),
    _C.END_TXN_ON_SUBSCRIPTION: _of_txn(CommandEndTxnOnSubscriptionResponse),
}
"""The error response of each command."""
