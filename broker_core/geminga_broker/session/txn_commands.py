"""Transaction commands: this broker has no transaction coordinator and says so, to those who might
use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from geminga_broker.errors import BrokerError
from geminga_broker.session.session import Session
from geminga_protocol.commands import transactions
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, ServerError

_C = BaseCommand.Type


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
    return transactions.tc_client_connect_response(command.request_id, error=code, message=text)


def _new(command: Any, code: ServerError, text: str) -> bytes:
    return transactions.new_txn_response(command.request_id, None, error=code, message=text)


def _of_txn(response: Callable[..., bytes]) -> Callable[[Any, ServerError, str], bytes]:
    def refusal(command: _WithTxn, code: ServerError, text: str) -> bytes:
        txnid = command.txnid_most_bits, command.txnid_least_bits
        return response(command.request_id, txnid, error=code, message=text)

    return refusal


ANSWERS: dict[int, Callable[[Any, ServerError, str], bytes]] = {
    _C.TC_CLIENT_CONNECT_REQUEST: _coordinator,
    _C.NEW_TXN: _new,
    _C.ADD_PARTITION_TO_TXN: _of_txn(transactions.add_partition_response),
    _C.ADD_SUBSCRIPTION_TO_TXN: _of_txn(transactions.add_subscription_response),
    _C.END_TXN: _of_txn(transactions.end_txn_response),
    _C.END_TXN_ON_PARTITION: _of_txn(transactions.end_txn_on_partition_response),
    _C.END_TXN_ON_SUBSCRIPTION: _of_txn(transactions.end_txn_on_subscription_response),
}
"""How each is refused, in the words of its own response."""
