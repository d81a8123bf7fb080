"""Transactions (PIP-31): coordinator, and the ends on partitions and subscriptions.

A transaction id is (most bits, least bits); the most significant bits name the coordinator. Every
answer is `error=None` or a ServerError with a message.
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga_protocol.encode import frame
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandAddPartitionToTxn,
    CommandAddPartitionToTxnResponse,
    CommandAddSubscriptionToTxn,
    CommandAddSubscriptionToTxnResponse,
    CommandEndTxn,
    CommandEndTxnOnPartition,
    CommandEndTxnOnPartitionResponse,
    CommandEndTxnOnSubscription,
    CommandEndTxnOnSubscriptionResponse,
    CommandEndTxnResponse,
    CommandNewTxn,
    CommandNewTxnResponse,
    CommandTcClientConnectRequest,
    CommandTcClientConnectResponse,
    ServerError,
    Subscription,
    TxnAction,
)

TxnId = tuple[int, int]


def tc_client_connect(request_id: int, tc_id: int) -> bytes:
    """TC_CLIENT_CONNECT_REQUEST."""
    body = CommandTcClientConnectRequest(request_id=request_id, tc_id=tc_id)
    kind = BaseCommand.TC_CLIENT_CONNECT_REQUEST
    return frame(BaseCommand(type=kind, tcClientConnectRequest=body))


def tc_client_connect_response(
    request_id: int, *, error: ServerError | None = None, message: str | None = None
) -> bytes:
    """TC_CLIENT_CONNECT_RESPONSE."""
    body = CommandTcClientConnectResponse(request_id=request_id, error=error, message=message)
    kind = BaseCommand.TC_CLIENT_CONNECT_RESPONSE
    return frame(BaseCommand(type=kind, tcClientConnectResponse=body))


def new_txn(request_id: int, ttl_s: int, tc_id: int) -> bytes:
    """NEW_TXN."""
    body = CommandNewTxn(request_id=request_id, txn_ttl_seconds=ttl_s, tc_id=tc_id)
    return frame(BaseCommand(type=BaseCommand.NEW_TXN, newTxn=body))


def new_txn_response(
    request_id: int,
    txnid: TxnId | None,
    *,
    error: ServerError | None = None,
    message: str | None = None,
) -> bytes:
    """NEW_TXN_RESPONSE."""
    most, least = txnid if txnid is not None else (None, None)
    body = CommandNewTxnResponse(
        request_id=request_id,
        txnid_least_bits=least,
        txnid_most_bits=most,
        error=error,
        message=message,
    )
    return frame(BaseCommand(type=BaseCommand.NEW_TXN_RESPONSE, newTxnResponse=body))


def add_partition(request_id: int, txnid: TxnId, partitions: Iterable[str]) -> bytes:
    """ADD_PARTITION_TO_TXN."""
    body = CommandAddPartitionToTxn(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        partitions=partitions,
    )
    return frame(BaseCommand(type=BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=body))


def add_partition_response(
    request_id: int, txnid: TxnId, *, error: ServerError | None = None, message: str | None = None
) -> bytes:
    """ADD_PARTITION_TO_TXN_RESPONSE."""
    body = CommandAddPartitionToTxnResponse(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        error=error,
        message=message,
    )
    kind = BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE
    return frame(BaseCommand(type=kind, addPartitionToTxnResponse=body))


def add_subscription(
    request_id: int, txnid: TxnId, subscriptions: Iterable[tuple[str, str]]
) -> bytes:
    """ADD_SUBSCRIPTION_TO_TXN, with (topic, subscription) pairs."""
    body = CommandAddSubscriptionToTxn(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        subscription=[Subscription(topic=t, subscription=s) for t, s in subscriptions],
    )
    kind = BaseCommand.ADD_SUBSCRIPTION_TO_TXN
    return frame(BaseCommand(type=kind, addSubscriptionToTxn=body))


def add_subscription_response(
    request_id: int, txnid: TxnId, *, error: ServerError | None = None, message: str | None = None
) -> bytes:
    """ADD_SUBSCRIPTION_TO_TXN_RESPONSE."""
    body = CommandAddSubscriptionToTxnResponse(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        error=error,
        message=message,
    )
    kind = BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE
    return frame(BaseCommand(type=kind, addSubscriptionToTxnResponse=body))


def end_txn(request_id: int, txnid: TxnId, action: TxnAction) -> bytes:
    """END_TXN."""
    body = CommandEndTxn(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        txn_action=action,
    )
    return frame(BaseCommand(type=BaseCommand.END_TXN, endTxn=body))


def end_txn_response(
    request_id: int, txnid: TxnId, *, error: ServerError | None = None, message: str | None = None
) -> bytes:
    """END_TXN_RESPONSE."""
    body = CommandEndTxnResponse(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        error=error,
        message=message,
    )
    return frame(BaseCommand(type=BaseCommand.END_TXN_RESPONSE, endTxnResponse=body))


def end_txn_on_partition(
    request_id: int, txnid: TxnId, topic: str, action: TxnAction, low_watermark: int
) -> bytes:
    """END_TXN_ON_PARTITION, broker to broker."""
    body = CommandEndTxnOnPartition(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        topic=topic,
        txn_action=action,
        txnid_least_bits_of_low_watermark=low_watermark,
    )
    return frame(BaseCommand(type=BaseCommand.END_TXN_ON_PARTITION, endTxnOnPartition=body))


def end_txn_on_partition_response(
    request_id: int, txnid: TxnId, *, error: ServerError | None = None, message: str | None = None
) -> bytes:
    """END_TXN_ON_PARTITION_RESPONSE."""
    body = CommandEndTxnOnPartitionResponse(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        error=error,
        message=message,
    )
    kind = BaseCommand.END_TXN_ON_PARTITION_RESPONSE
    return frame(BaseCommand(type=kind, endTxnOnPartitionResponse=body))


def end_txn_on_subscription(
    request_id: int,
    txnid: TxnId,
    subscription: tuple[str, str],
    action: TxnAction,
    low_watermark: int,
) -> bytes:
    """END_TXN_ON_SUBSCRIPTION, broker to broker, with a (topic, subscription) pair."""
    body = CommandEndTxnOnSubscription(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        subscription=Subscription(topic=subscription[0], subscription=subscription[1]),
        txn_action=action,
        txnid_least_bits_of_low_watermark=low_watermark,
    )
    kind = BaseCommand.END_TXN_ON_SUBSCRIPTION
    return frame(BaseCommand(type=kind, endTxnOnSubscription=body))


def end_txn_on_subscription_response(
    request_id: int, txnid: TxnId, *, error: ServerError | None = None, message: str | None = None
) -> bytes:
    """END_TXN_ON_SUBSCRIPTION_RESPONSE."""
    body = CommandEndTxnOnSubscriptionResponse(
        request_id=request_id,
        txnid_least_bits=txnid[1],
        txnid_most_bits=txnid[0],
        error=error,
        message=message,
    )
    kind = BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE
    return frame(BaseCommand(type=kind, endTxnOnSubscriptionResponse=body))
