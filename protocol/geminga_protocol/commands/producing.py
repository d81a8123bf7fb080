"""Producers: opening, sending, closing. For SEND and SEND_RECEIPT see `encode`."""

from __future__ import annotations

from collections.abc import Mapping

from geminga_protocol.encode import framed, send, send_receipt
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSendError,
    KeyValue,
    ProducerAccessMode,
    Schema,
    ServerError,
)

__all__ = [
    "close_producer",
    "producer",
    "producer_success",
    "send",
    "send_error",
    "send_receipt",
]


def producer(
    topic: str,
    producer_id: int,
    request_id: int,
    *,
    producer_name: str | None = None,
    encrypted: bool = False,
    metadata: Mapping[str, str] | None = None,
    schema: Schema | None = None,
    epoch: int = 0,
    user_provided_producer_name: bool = True,
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
    topic_epoch: int | None = None,
    txn_enabled: bool = False,
    initial_subscription_name: str | None = None,
) -> bytes:
    """PRODUCER; `epoch` counts this producer's reconnects, `topic_epoch` is for fencing."""
    body = CommandProducer(
        topic=topic,
        producer_id=producer_id,
        request_id=request_id,
        producer_name=producer_name,
        encrypted=encrypted,
        metadata=[KeyValue(key=k, value=v) for k, v in (metadata or {}).items()],
        schema=schema,
        epoch=epoch,
        user_provided_producer_name=user_provided_producer_name,
        producer_access_mode=access_mode,
        topic_epoch=topic_epoch,
        txn_enabled=txn_enabled,
        initial_subscription_name=initial_subscription_name,
    )
    return framed(body)


def producer_success(
    request_id: int,
    producer_name: str,
    *,
    last_sequence_id: int = -1,
    schema_version: bytes = b"",
    topic_epoch: int | None = None,
    producer_ready: bool = True,
) -> bytes:
    """PRODUCER_SUCCESS; if not ready, the producer waits for access, and a second one follows."""
    body = CommandProducerSuccess(
        request_id=request_id,
        producer_name=producer_name,
        last_sequence_id=last_sequence_id,
        schema_version=schema_version,
        topic_epoch=topic_epoch,
        producer_ready=producer_ready,
    )
    return framed(body)


def send_error(producer_id: int, sequence_id: int, code: ServerError, message: str) -> bytes:
    """SEND_ERROR."""
    body = CommandSendError(
        producer_id=producer_id, sequence_id=sequence_id, error=code, message=message
    )
    return framed(body)


def close_producer(
    producer_id: int,
    request_id: int,
    *,
    assigned_broker_url: str | None = None,
    assigned_broker_url_tls: str | None = None,
) -> bytes:
    """CLOSE_PRODUCER; with the URL of the topic's next broker, if it is known (PIP-307)."""
    body = CommandCloseProducer(
        producer_id=producer_id,
        request_id=request_id,
        assignedBrokerServiceUrl=assigned_broker_url,
        assignedBrokerServiceUrlTls=assigned_broker_url_tls,
    )
    return framed(body)
