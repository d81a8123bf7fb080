"""Transaction commands: this broker has no transaction coordinator and says so."""

from __future__ import annotations

from geminga_broker.session.session import Session
from geminga_protocol.commands import transactions
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    ServerError,
)

_CODE = ServerError.TransactionCoordinatorNotFound
_TEXT = "Transactions are not enabled"


def tc_client_connect(session: Session, command: CommandTcClientConnectRequest) -> None:
    """A client looks for a coordinator; the answer is Apache's with transactions disabled."""
    session.write(
        transactions.tc_client_connect_response(
            command.request_id, error=ServerError.NotAllowedError, message=_TEXT
        )
    )


def new_txn(session: Session, command: CommandNewTxn) -> None:
    """Refused."""
    session.write(
        transactions.new_txn_response(command.request_id, None, error=_CODE, message=_TEXT)
    )


def add_partition(session: Session, command: CommandAddPartitionToTxn) -> None:
    """Refused."""
    session.write(
        transactions.add_partition_response(
            command.request_id, _txnid(command), error=_CODE, message=_TEXT
        )
    )


def add_subscription(session: Session, command: CommandAddSubscriptionToTxn) -> None:
    """Refused."""
    session.write(
        transactions.add_subscription_response(
            command.request_id, _txnid(command), error=_CODE, message=_TEXT
        )
    )


def end_txn(session: Session, command: CommandEndTxn) -> None:
    """Refused."""
    session.write(
        transactions.end_txn_response(
            command.request_id, _txnid(command), error=_CODE, message=_TEXT
        )
    )


def end_on_partition(session: Session, command: CommandEndTxnOnPartition) -> None:
    """Refused."""
    session.write(
        transactions.end_txn_on_partition_response(
            command.request_id, _txnid(command), error=_CODE, message=_TEXT
        )
    )


def end_on_subscription(session: Session, command: CommandEndTxnOnSubscription) -> None:
    """Refused."""
    session.write(
        transactions.end_txn_on_subscription_response(
            command.request_id, _txnid(command), error=_CODE, message=_TEXT
        )
    )


def _txnid(
    command: CommandAddPartitionToTxn
    | CommandAddSubscriptionToTxn
    | CommandEndTxn
    | CommandEndTxnOnPartition
    | CommandEndTxnOnSubscription,
) -> tuple[int, int]:
    return command.txnid_most_bits, command.txnid_least_bits
