"""Producers: opening, sending, closing. SEND and SEND_RECEIPT by hand are in `encode`."""

from __future__ import annotations

from collections.abc import Mapping

from geminga_protocol.encode import frame, send, send_receipt
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSend,
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
    "send_command",
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
    """PRODUCER; `epoch` counts the reconnects of this producer, `topic_epoch` is for fencing."""
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
    return frame(BaseCommand(type=BaseCommand.PRODUCER, producer=body))


def producer_success(
    request_id: int,
    producer_name: str,
    *,
    last_sequence_id: int = -1,
    schema_version: bytes = b"",
    topic_epoch: int | None = None,
    producer_ready: bool = True,
) -> bytes:
    """PRODUCER_SUCCESS; not ready: the producer waits for exclusive access, another one follows."""
    body = CommandProducerSuccess(
        request_id=request_id,
        producer_name=producer_name,
        last_sequence_id=last_sequence_id,
        schema_version=schema_version,
        topic_epoch=topic_epoch,
        producer_ready=producer_ready,
    )
    return frame(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=body))


def send_command(
    producer_id: int,
    sequence_id: int,
    *,
    num_messages: int | None = None,
    txnid: tuple[int, int] | None = None,
    highest_sequence_id: int | None = None,
    is_chunk: bool = False,
    marker: bool = False,
    message_id: MessageId | None = None,
) -> BaseCommand:
    """SEND with any of its fields, for `encode.payload_frame`; `txnid` is (most, least) bits.

    What every producer sends is written faster by `encode.send`.
    """
    most, least = txnid if txnid is not None else (None, None)
    body = CommandSend(
        producer_id=producer_id,
        sequence_id=sequence_id,
        num_messages=num_messages,
        txnid_least_bits=least,
        txnid_most_bits=most,
        highest_sequence_id=highest_sequence_id,
        is_chunk=is_chunk,
        marker=marker,
    )
    if message_id is not None:
        message_id.to_wire(body.message_id)
    return BaseCommand(type=BaseCommand.SEND, send=body)


def send_error(producer_id: int, sequence_id: int, code: ServerError, message: str) -> bytes:
    """SEND_ERROR."""
    body = CommandSendError(
        producer_id=producer_id, sequence_id=sequence_id, error=code, message=message
    )
    return frame(BaseCommand(type=BaseCommand.SEND_ERROR, send_error=body))


def close_producer(
    producer_id: int,
    request_id: int,
    *,
    assigned_broker_url: str | None = None,
    assigned_broker_url_tls: str | None = None,
) -> bytes:
    """CLOSE_PRODUCER; a broker that knows where the topic goes tells the URL (PIP-307)."""
    body = CommandCloseProducer(
        producer_id=producer_id,
        request_id=request_id,
        assignedBrokerServiceUrl=assigned_broker_url,
        assignedBrokerServiceUrlTls=assigned_broker_url_tls,
    )
    return frame(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=body))
