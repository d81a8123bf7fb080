"""SUBSCRIBE and consumers' other commands (spec BR-30 to BR-36)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, AckRun
from geminga_broker.session.authorization import reauthorize
from geminga_broker.session.registry import Opening
from geminga_broker.session.schema_commands import schema_of
from geminga_broker.session.session import Session
from geminga_broker.session.turns import LONG_WORDS, STEP_IDS, LongWork, parts_of
from geminga_broker.subscription.consumer import INDIVIDUAL_ACK, Consumer, SubscribeRequest
from geminga_broker.topic.api import KeySharedPolicy, SubType
from geminga_protocol import ack_set as ack_sets
from geminga_protocol.commands import answers, consuming
from geminga_protocol.encode import framed
from geminga_protocol.frames import Frame
from geminga_protocol.ids import EARLIEST, LATEST, Position
from geminga_protocol.message_id import MessageId, signed
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandConsumerStatsResponse,
    CommandFlow,
    CommandGetLastMessageId,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    KeySharedMode,
    MessageIdData,
    Schema,
    ServerError,
)
from geminga_protocol.topic_name import TopicName

_log = logging.getLogger(__name__)

_ACK = int(BaseCommand.Type.ACK)
_CUMULATIVE = CommandAck.AckType.Cumulative
_new_tuple = tuple.__new__


def subscribe(session: Session, command: CommandSubscribe) -> None:
    """Reserve the id, then open in a task. Responds again to a repeated request."""
    opening = session.consumers.begin(command.consumer_id)
    if opening is not None:
        refuse = partial(answers.error, command.request_id)
        size_bytes = command.ByteSize()
        session.spawn(refuse, _open, session, command, opening, size_bytes=size_bytes)
    elif session.consumers.get(command.consumer_id) is not None:
        session.write(answers.success(command.request_id))
    else:
        text = "Consumer is already present on the connection"
        session.write(answers.error(command.request_id, ServerError.ServiceNotReady, text))


async def _open(session: Session, command: CommandSubscribe, opening: Opening) -> None:
    service = session.service
    key = command.consumer_id

    def subscribed(consumer: Consumer) -> None:
        if session.consumers.finish(key, opening, consumer):
            session.write(answers.success(command.request_id))

    try:
        await reauthorize(session, BaseCommand.Type.SUBSCRIBE, command, opening)
        name = TopicName.parse(command.topic)
        creates = command.force_topic_creation
        if not creates and not await service.topics.exists(name):
            raise BrokerError(ServerError.TopicNotFound, f"Topic {name} does not exist")
        topic = await service.topics.get(name, create=creates)
        schema = schema_of(session, command.schema if command.HasField("schema") else None)
        await service.schemas.admit_consumer(name, topic, schema)
        await reauthorize(session, BaseCommand.Type.SUBSCRIBE, command, opening)
        if opening.is_dropped():
            return
        consumer = await topic.subscribe(_request(session, command, subscribed))
    except BaseException:
        session.consumers.fail(key, opening)
        raise
    if opening.is_dropped():
        consumer.close()
        return
    try:
        await reauthorize(session, BaseCommand.Type.SUBSCRIBE, command, opening)
    except BrokerError:
        # SUCCESS is sent already: close the consumer as after a revoked grant.
        if session.consumers.get(key) is consumer:
            session.drop_consumer(key)
            consumer.close()


def _request(
    session: Session, command: CommandSubscribe, subscribed: Callable[[Consumer], None]
) -> SubscribeRequest:
    start = None
    if not command.durable and command.HasField("start_message_id"):
        start = _position(command.start_message_id)
    return SubscribeRequest(
        connection=session,
        consumer_id=command.consumer_id,
        subscription=command.subscription,
        sub_type=command.subType,
        consumer_name=command.consumer_name,
        priority_level=command.priority_level,
        durable=command.durable,
        start=start,
        initial_position=command.initialPosition,
        rollback_duration_s=command.start_message_rollback_duration_sec,
        metadata={pair.key: pair.value for pair in command.metadata},
        subscription_properties={pair.key: pair.value for pair in command.subscription_properties},
        key_shared=_key_shared(command),
        read_compacted=command.read_compacted,
        replicate_state=command.replicate_subscription_state,
        consumer_epoch=command.consumer_epoch if command.HasField("consumer_epoch") else None,
        auto_consume=command.schema.type == Schema.Type.AutoConsume,
        on_subscribed=subscribed,
    )


def _key_shared(command: CommandSubscribe) -> KeySharedPolicy | None:
    if not command.HasField("keySharedMeta"):
        return None
    meta = command.keySharedMeta
    if meta.keySharedMode == KeySharedMode.STICKY:
        ranges = tuple((each.start, each.end) for each in meta.hashRanges)
        return KeySharedPolicy(KeySharedMode.STICKY, ranges)
    return KeySharedPolicy(allow_out_of_order=meta.allowOutOfOrderDelivery)


def _position(data: MessageIdData) -> Position:
    ledger_id = signed(data.ledgerId)
    if ledger_id == LATEST.ledger_id:
        return LATEST  # C++ clients can't write the largest entry id
    if ledger_id < 0:
        return EARLIEST
    return Position(ledger_id, signed(data.entryId))


def flow(session: Session, command: CommandFlow) -> None:
    """More permits; ignored for a closed consumer."""
    consumer = session.consumers.get(command.consumer_id)
    if consumer is not None:
        consumer.flow(command.messagePermits)


def acknowledge_run(session: Session, frames: Sequence[Frame], start: int) -> tuple[int, int]:
    """Pass the ACKs from `start` on to their consumers, in one list each, up to one that `ack` must
    handle: cumulative, long or with an error. Receipts follow in order. A run has at most the ids
    of one turn. ACKs that came cut into runs of ids are passed on as such.

    Returns the index after the run, and the number of its ids.
    """
    opened = session.consumers.opened
    runs: dict[Consumer, list[Ack]] = {}
    asked: list[CommandAck] = []
    taken = 0
    index, end = start, len(frames)
    while index < end and taken < STEP_IDS:
        frame = frames[index]
        if frame.type != _ACK:
            break
        if (found := frame.acks) is not None:
            if not session.connected:
                break
            consumer = opened.get(found.consumer_id)
            if consumer is not None:
                # Before the lists: the order of individual acknowledgements has no effect.
                consumer.ack(AckRun(found.ledger_id, found.first_entry_id, found.entries))
            taken += found.entries
            index += 1
            continue
        command = frame.command.ack
        ids = command.message_id
        consumer = opened.get(command.consumer_id)
        if (
            len(ids) > STEP_IDS
            or command.ack_type == _CUMULATIVE
            or command.HasField("txnid_most_bits")
            or consumer is None
        ):
            break
        try:
            acks = [_ack_of(data, LONG_WORDS) for data in ids]
        except _LongSet:
            break
        run = runs.get(consumer)
        taken += len(acks)
        if run is None:
            runs[consumer] = acks
        else:
            run += acks
        if command.HasField("request_id"):
            asked.append(command)
        index += 1
    for consumer, acks in runs.items():
        consumer.ack(acks)
    for command in asked:
        _answer_ack(session, command, None)
    return index, taken


def ack(session: Session, command: CommandAck) -> None:
    """Acknowledge; a requested receipt is sent at once. Raises LongWork."""
    consumer = session.consumers.get(command.consumer_id)
    error = None
    ids = command.message_id
    if consumer is None:
        error = ServerError.ConsumerNotFound
    elif command.HasField("txnid_most_bits") and command.HasField("txnid_least_bits"):
        error = ServerError.NotAllowedError  # as Apache's broker without a coordinator
    elif len(ids) > STEP_IDS:
        raise LongWork(_ack_in_turns(session, command))
    else:
        try:
            acks = [_ack_of(data, LONG_WORDS) for data in ids]
        except _LongSet:
            raise LongWork(_ack_in_turns(session, command)) from None
        consumer.ack(acks, cumulative=command.ack_type == _CUMULATIVE)
    _answer_ack(session, command, error)


def _ack_in_turns(session: Session, command: CommandAck) -> Iterator[None]:
    """As `ack`, for many ids or large ack sets. One too long set fails the command."""
    cumulative = command.ack_type == _CUMULATIVE
    longest = 0
    for part in parts_of(command.message_id):
        longest = max(longest, *(len(data.ack_set) for data in part))
        yield
    error = None
    if longest > ack_sets.WORDS_MAX:
        text = "%s: acknowledgement ignored: ack set of %d words, limit %d"
        _log.warning(text, session.address, longest, ack_sets.WORDS_MAX)
        error = ServerError.NotAllowedError
    else:
        for part in parts_of(command.message_id):
            consumer = session.consumers.get(command.consumer_id)
            if consumer is None:
                error = ServerError.ConsumerNotFound
                break
            # The consumer refuses a cumulative acknowledgement with several ids.
            acks = [_ack_of(data, ack_sets.WORDS_MAX) for data in part]
            consumer.ack(acks, cumulative=cumulative)
            if cumulative:
                break
            yield
    _answer_ack(session, command, error)


def _answer_ack(session: Session, command: CommandAck, error: ServerError | None) -> None:
    if command.HasField("request_id"):
        if error is None and not session.service.hold_over.may_serve:
            error = ServerError.ServiceNotReady
        text = None if error is None else "The acknowledgement can't be taken"
        ids = command.consumer_id, command.request_id
        session.write(consuming.ack_response(*ids, error=error, message=text))


class _LongSet(Exception):
    """An ack set has more words than expected."""


def _ack_of(data: MessageIdData, words_max: int) -> Ack:
    # Signed: entry id -1 is the position before a ledger's first entry, which clients acknowledge
    # cumulatively when they are done with a part of that entry's batch.
    position = _new_tuple(Position, (signed(data.ledgerId), signed(data.entryId)))
    words = tuple(data.ack_set)
    if words and len(words) > words_max:
        raise _LongSet
    return _new_tuple(Ack, (position, words, data.batch_size or 1))


def redeliver(session: Session, command: CommandRedeliverUnacknowledgedMessages) -> None:
    """Resend unacknowledged messages: the given ones, or all. Raises LongWork."""
    consumer = session.consumers.get(command.consumer_id)
    if consumer is None:
        return
    ids = command.message_ids
    epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
    if len(ids) <= STEP_IDS:
        consumer.redeliver([_position(data) for data in ids] or None, epoch)
    elif consumer.sub_type in INDIVIDUAL_ACK:
        raise LongWork(_redeliver_in_turns(session, command, epoch))
    else:
        # Other types resend all messages, whatever ids are given.
        consumer.redeliver([_position(ids[0])], epoch)


def _redeliver_in_turns(
    session: Session, command: CommandRedeliverUnacknowledgedMessages, epoch: int | None
) -> Iterator[None]:
    for part in parts_of(command.message_ids):
        consumer = session.consumers.get(command.consumer_id)
        if consumer is None:
            return
        consumer.redeliver([_position(data) for data in part], epoch)
        yield


def _open_consumer(session: Session, consumer_id: int) -> Consumer:
    consumer = session.consumers.get(consumer_id)
    if consumer is None:
        raise BrokerError(ServerError.MetadataError, "Consumer not found")
    return consumer


async def seek(session: Session, command: CommandSeek) -> None:
    """Continue at an id or a time; all consumers are closed and reconnect."""
    consumer = _open_consumer(session, command.consumer_id)
    if command.HasField("message_id"):
        words = tuple(command.message_id.ack_set)
        await consumer.subscription.seek(_position(command.message_id), words)
    elif command.HasField("message_publish_time"):
        await consumer.subscription.seek_time(command.message_publish_time)
    else:
        raise BrokerError(ServerError.MetadataError, "SEEK without message id and time")
    session.write(answers.success(command.request_id))


async def unsubscribe(session: Session, command: CommandUnsubscribe) -> None:
    """Delete the subscription."""
    consumer = _open_consumer(session, command.consumer_id)
    await consumer.subscription.unsubscribe(consumer, force=command.force)
    session.consumers.forget(command.consumer_id)
    session.write(answers.success(command.request_id))


def close_consumer(session: Session, command: CommandCloseConsumer) -> None:
    """Leave the subscription. An unknown id is an error only if it was never open."""
    registry = session.consumers
    consumer = registry.forget(command.consumer_id)
    if consumer is not None:
        consumer.close()
    elif not registry.drop_opening(command.consumer_id) and not registry.was_closed(
        command.consumer_id
    ):
        text = "Consumer not found"
        session.write(answers.error(command.request_id, ServerError.MetadataError, text))
        return
    session.write(answers.success(command.request_id))


async def last_message_id(session: Session, command: CommandGetLastMessageId) -> None:
    """The topic's last message, -1:-1 if it is empty, and the subscription's mark-delete
    position.
    """
    last = await _open_consumer(session, command.consumer_id).subscription.last_message()
    mark_delete = last.mark_delete
    position = last.position if last.position.entry_id >= 0 else EARLIEST
    session.write(
        consuming.get_last_message_id_response(
            command.request_id,
            MessageId(*position, last.partition, last.batch_index),
            mark_delete=None if mark_delete is None else MessageId(*mark_delete),
        )
    )


def consumer_stats(session: Session, command: CommandConsumerStats) -> None:
    """Figures of one consumer."""
    consumer = session.consumers.get(command.consumer_id)
    if consumer is None:
        session.write(
            consuming.consumer_stats_error(
                command.request_id, ServerError.ConsumerNotFound, "Consumer not found"
            )
        )
        return
    stats = consumer.stats()
    session.write(
        framed(
            CommandConsumerStatsResponse(
                request_id=command.request_id,
                msgRateOut=stats.msg_rate_out,
                msgThroughputOut=stats.msg_throughput_out,
                msgRateRedeliver=stats.msg_rate_redeliver,
                consumerName=stats.consumer_name,
                availablePermits=max(stats.available_permits, 0),
                unackedMessages=stats.unacked_messages,
                blockedConsumerOnUnackedMsgs=stats.blocked_consumer_on_unacked_msgs,
                address=stats.address,
                connectedSince=stats.connected_since,
                type=SubType.Name(SubType.ValueType(consumer.sub_type)),
                msgRateExpired=0.0,
                msgBacklog=consumer.subscription.backlog_entries(),
                messageAckRate=stats.message_ack_rate,
            )
        )
    )
