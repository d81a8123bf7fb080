"""Consumers: subscribing, permits, acknowledging, seeking. For MESSAGE see `encode`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from geminga_protocol.encode import framed
from geminga_protocol.message_id import MessageId
from geminga_protocol.pb.pulsar_api_pb2 import (
    CommandAck,
    CommandAckResponse,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandConsumerStatsResponse,
    CommandFlow,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    CommandReachedEndOfTopic,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    KeyLongValue,
    KeySharedMeta,
    KeyValue,
    MessageIdData,
    Schema,
    ServerError,
)


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """Options of a subscribe beside its topic, name and type."""

    consumer_name: str | None = None
    priority_level: int | None = None
    durable: bool = True
    start_message_id: MessageId | None = None
    start_message_rollback_s: int = 0
    metadata: Mapping[str, str] | None = None
    read_compacted: bool = False
    schema: Schema | None = None
    initial_position: CommandSubscribe.InitialPosition = CommandSubscribe.Latest
    replicate_subscription_state: bool = False
    force_topic_creation: bool = True
    key_shared_meta: KeySharedMeta | None = None
    subscription_properties: Mapping[str, str] | None = None
    consumer_epoch: int | None = None


DEFAULTS = SubscribeOptions()


def _wire_id(message_id: MessageId) -> MessageIdData:
    """The id for a command."""
    data = MessageIdData()
    message_id.to_wire(data)
    return data


def _pairs(properties: Mapping[str, str] | None) -> list[KeyValue]:
    return [KeyValue(key=k, value=v) for k, v in (properties or {}).items()]


def subscribe(
    topic: str,
    subscription: str,
    sub_type: CommandSubscribe.SubType,
    consumer_id: int,
    request_id: int,
    options: SubscribeOptions = DEFAULTS,
) -> bytes:
    """SUBSCRIBE."""
    start = options.start_message_id
    body = CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=sub_type,
        consumer_id=consumer_id,
        request_id=request_id,
        consumer_name=options.consumer_name,
        priority_level=options.priority_level,
        durable=options.durable,
        start_message_id=None if start is None else _wire_id(start),
        metadata=_pairs(options.metadata),
        read_compacted=options.read_compacted,
        schema=options.schema,
        initialPosition=options.initial_position,
        replicate_subscription_state=options.replicate_subscription_state,
        force_topic_creation=options.force_topic_creation,
        start_message_rollback_duration_sec=options.start_message_rollback_s or None,
        keySharedMeta=options.key_shared_meta,
        subscription_properties=_pairs(options.subscription_properties),
        consumer_epoch=options.consumer_epoch,
    )
    return framed(body)


def flow(consumer_id: int, permits: int) -> bytes:
    """FLOW: the consumer takes `permits` more messages."""
    return framed(CommandFlow(consumer_id=consumer_id, messagePermits=permits))


def ack(
    consumer_id: int,
    message_ids: Iterable[MessageId],
    *,
    cumulative: bool = False,
    validation_error: CommandAck.ValidationError | None = None,
    properties: Mapping[str, int] | None = None,
    txnid: tuple[int, int] | None = None,
    request_id: int | None = None,
) -> bytes:
    """ACK; with a request id the broker sends ACK_RESPONSE. `txnid` is (most, least) bits."""
    most, least = txnid if txnid is not None else (None, None)
    body = CommandAck(
        consumer_id=consumer_id,
        ack_type=CommandAck.Cumulative if cumulative else CommandAck.Individual,
        message_id=[_wire_id(each) for each in message_ids],
        validation_error=validation_error,
        properties=[KeyLongValue(key=k, value=v) for k, v in (properties or {}).items()],
        txnid_least_bits=least,
        txnid_most_bits=most,
        request_id=request_id,
    )
    return framed(body)


def ack_response(
    consumer_id: int,
    request_id: int,
    *,
    error: ServerError | None = None,
    message: str | None = None,
    txnid: tuple[int, int] | None = None,
) -> bytes:
    """ACK_RESPONSE; without an error the acknowledgement is done."""
    most, least = txnid if txnid is not None else (None, None)
    body = CommandAckResponse(
        consumer_id=consumer_id,
        txnid_least_bits=least,
        txnid_most_bits=most,
        error=error,
        message=message,
        request_id=request_id,
    )
    return framed(body)


def redeliver_unacknowledged(
    consumer_id: int,
    message_ids: Iterable[MessageId] = (),
    *,
    consumer_epoch: int | None = None,
) -> bytes:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES; without ids, all messages of the consumer."""
    body = CommandRedeliverUnacknowledgedMessages(
        consumer_id=consumer_id,
        message_ids=[_wire_id(each) for each in message_ids],
        consumer_epoch=consumer_epoch,
    )
    return framed(body)


def unsubscribe(consumer_id: int, request_id: int, *, force: bool = False) -> bytes:
    """UNSUBSCRIBE; with `force` also while other consumers are connected."""
    return framed(CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id, force=force))


def seek(
    consumer_id: int,
    request_id: int,
    *,
    message_id: MessageId | None = None,
    publish_time_ms: int | None = None,
) -> bytes:
    """SEEK to an id or to a publish time."""
    body = CommandSeek(
        consumer_id=consumer_id,
        request_id=request_id,
        message_id=None if message_id is None else _wire_id(message_id),
        message_publish_time=publish_time_ms,
    )
    return framed(body)


def get_last_message_id(consumer_id: int, request_id: int) -> bytes:
    """GET_LAST_MESSAGE_ID."""
    return framed(CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id))


def get_last_message_id_response(
    request_id: int, last: MessageId, *, mark_delete: MessageId | None = None
) -> bytes:
    """GET_LAST_MESSAGE_ID_RESPONSE; -1:-1 for an empty topic."""
    body = CommandGetLastMessageIdResponse(
        last_message_id=_wire_id(last),
        request_id=request_id,
        consumer_mark_delete_position=None if mark_delete is None else _wire_id(mark_delete),
    )
    return framed(body)


def active_consumer_change(consumer_id: int, is_active: bool) -> bytes:
    """ACTIVE_CONSUMER_CHANGE (Failover)."""
    return framed(CommandActiveConsumerChange(consumer_id=consumer_id, is_active=is_active))


def reached_end_of_topic(consumer_id: int) -> bytes:
    """REACHED_END_OF_TOPIC: the topic is terminated and all its messages were delivered."""
    return framed(CommandReachedEndOfTopic(consumer_id=consumer_id))


def close_consumer(
    consumer_id: int,
    request_id: int,
    *,
    assigned_broker_url: str | None = None,
    assigned_broker_url_tls: str | None = None,
) -> bytes:
    """CLOSE_CONSUMER; with the URL of the topic's next broker, if it is known (PIP-307)."""
    body = CommandCloseConsumer(
        consumer_id=consumer_id,
        request_id=request_id,
        assignedBrokerServiceUrl=assigned_broker_url,
        assignedBrokerServiceUrlTls=assigned_broker_url_tls,
    )
    return framed(body)


def consumer_stats(request_id: int, consumer_id: int) -> bytes:
    """CONSUMER_STATS."""
    return framed(CommandConsumerStats(request_id=request_id, consumer_id=consumer_id))


def consumer_stats_error(request_id: int, code: ServerError, message: str) -> bytes:
    """CONSUMER_STATS_RESPONSE with an error."""
    return framed(
        CommandConsumerStatsResponse(request_id=request_id, error_code=code, error_message=message)
    )
