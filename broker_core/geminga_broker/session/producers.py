"""PRODUCER and CLOSE_PRODUCER (spec BR-20)."""

from __future__ import annotations

from functools import partial

from geminga_broker.errors import BrokerError
from geminga_broker.session.authorization import reauthorize
from geminga_broker.session.registry import Opening
from geminga_broker.session.schema_commands import schema_of
from geminga_broker.session.session import Session
from geminga_broker.topic.api import ProducerRequest
from geminga_broker.topic.producer import Producer
from geminga_broker.topic.topic import Topic
from geminga_protocol.commands import answers, producing
from geminga_protocol.ids import LATEST
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    ServerError,
)
from geminga_protocol.topic_name import TopicName


def open_producer(session: Session, command: CommandProducer) -> None:
    """Reserve the id, then open in a task. Responds again to a repeated request."""
    opening = session.producers.begin(command.producer_id)
    if opening is not None:
        refuse = partial(answers.error, command.request_id)
        size_bytes = command.ByteSize()
        session.spawn(refuse, _open, session, command, opening, size_bytes=size_bytes)
        return
    known = session.producers.get(command.producer_id)
    if known is not None:
        _answer(session, command.request_id, known, b"")
        return
    text = "Producer is already present on the connection"
    session.write(answers.error(command.request_id, ServerError.ServiceNotReady, text))


async def _open(session: Session, command: CommandProducer, opening: Opening) -> None:
    try:
        joined = await _join_topic(session, command, opening)
    except BaseException:
        session.producers.fail(command.producer_id, opening)
        raise
    if joined is None:
        return
    producer, schema_version = joined
    try:
        await reauthorize(session, BaseCommand.Type.PRODUCER, command, opening)
        if producer.closed:
            # The topic was unloaded, or another producer replaced it: the client retries.
            text = "The producer was closed while it was being opened"
            raise BrokerError(ServerError.ServiceNotReady, text)
    except BrokerError:
        session.producers.fail(command.producer_id, opening)
        producer.close()
        raise
    if session.producers.finish(command.producer_id, opening, producer):
        _answer(session, command.request_id, producer, schema_version)
    else:
        producer.close()


async def _join_topic(
    session: Session, command: CommandProducer, opening: Opening
) -> tuple[Producer, bytes] | None:
    """The producer and its schema's version; None if the client has closed it meanwhile: it may
    have opened a new one, which this one must not replace.
    """
    service = session.service
    await reauthorize(session, BaseCommand.Type.PRODUCER, command, opening)
    name = TopicName.parse(command.topic)
    topic = await service.topics.get(name, create=True)
    # The right may have been revoked while the topic was loaded.
    await reauthorize(session, BaseCommand.Type.PRODUCER, command, opening)
    given_schema = command.schema if command.HasField("schema") else None
    version = await service.schemas.admit_producer(name, schema_of(session, given_schema))
    if command.initial_subscription_name:
        await ensure_subscription(topic, command.initial_subscription_name)
    producer_name = command.producer_name
    given = bool(producer_name) and command.user_provided_producer_name
    request = ProducerRequest(
        connection=session,
        producer_id=command.producer_id,
        producer_name=producer_name or service.producer_names.next(),
        epoch=command.epoch,
        user_provided_name=given,
        access_mode=command.producer_access_mode,
        topic_epoch=command.topic_epoch if command.HasField("topic_epoch") else None,
        encrypted=command.encrypted,
        schema_version=version,
        metadata={pair.key: pair.value for pair in command.metadata},
        publish_pending=session.backpressure.publish_pending,
        throttle=session.backpressure.throttle,
        on_ready=partial(_became_ready, session, command.request_id, version),
        on_refused=partial(_was_refused, session, command.request_id),
    )
    if opening.is_dropped():
        return None
    return await topic.add_producer(request), version


async def ensure_subscription(topic: Topic, name: str) -> None:
    """Create a durable subscription at the topic's end unless it exists."""
    if name not in topic.subscriptions:
        try:
            await topic.create_subscription(name, LATEST)
        except BrokerError as error:
            if error.code != ServerError.ConsumerBusy:
                raise


def _became_ready(
    session: Session, request_id: int, schema_version: bytes, producer: Producer
) -> None:
    """The producer has exclusive access now: send the second PRODUCER_SUCCESS, unless the first
    isn't sent yet, which then says so.
    """
    if session.producers.get(producer.producer_id) is producer:
        _answer(session, request_id, producer, schema_version)


def _was_refused(session: Session, request_id: int, producer: Producer, error: BrokerError) -> None:
    """The producer was fenced while it waited: fail its request."""
    if session.producers.get(producer.producer_id) is producer:
        session.producers.forget(producer.producer_id)
        session.write(answers.error(request_id, error.code, str(error)))


def _answer(session: Session, request_id: int, producer: Producer, schema_version: bytes) -> None:
    session.write(
        producing.producer_success(
            request_id,
            producer.name,
            last_sequence_id=producer.last_sequence_id,
            schema_version=schema_version,
            topic_epoch=producer.topic_epoch,
            producer_ready=producer.ready,
        )
    )


def close_producer(session: Session, command: CommandCloseProducer) -> None:
    """Leave the topic after the receipts of all its messages. An unknown id is an error only if it
    was never open.
    """
    registry = session.producers
    producer = registry.get(command.producer_id)
    if producer is not None:
        producer.finish(partial(_closed, session, command, producer))
        return
    if not registry.drop_opening(command.producer_id) and not registry.was_closed(
        command.producer_id
    ):
        text = f"Producer {command.producer_id} is not open"
        session.write(answers.error(command.request_id, ServerError.UnknownError, text))
        return
    session.write(answers.success(command.request_id))


def _closed(session: Session, command: CommandCloseProducer, producer: Producer) -> None:
    if session.producers.get(command.producer_id) is producer:
        session.producers.forget(command.producer_id)
    session.write(answers.success(command.request_id))
