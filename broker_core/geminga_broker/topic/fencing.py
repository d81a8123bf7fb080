"""Fencing: evict producers and consumers of dead connections, and keep the topic epoch durable
(spec BR-20; Apache's AbstractTopic.tryOverwriteOldProducer, PersistentTopic.setTopicEpoch).
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogError, ManagedLedger
from geminga_broker.subscription.consumer import SubscribeRequest
from geminga_broker.subscription.subscription import Subscription
from geminga_broker.topic.api import SubType
from geminga_broker.topic.base import S, TopicBase
from geminga_broker.topic.producer import Producer
from geminga_broker.topic.registry import ProducerRegistry
from geminga_broker.topic.states import ProducerEvent
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode, ServerError

EPOCH_PROPERTY = "pulsar.topic.epoch"
"""The log's property with the topic epoch; Apache's name."""


def stored_epoch(properties: Mapping[str, str]) -> int | None:
    """The epoch of the last exclusive producer; None before the first."""
    value = properties.get(EPOCH_PROPERTY, "")
    return int(value) if value.isdecimal() else None


async def evict_dead_producer(registry: ProducerRegistry, producer: Producer) -> None:
    """Close a producer of the same name whose connection does not answer a PING."""
    await trio.lowlevel.checkpoint()
    old = registry.holder_of_name(producer)
    if old is not None and not await old.connection.is_alive():
        old.close()


async def evict_dead_consumer(subscription: Subscription, request: SubscribeRequest) -> None:
    """Close the consumer of an exclusive subscription if its connection does not answer a PING; not
    on a non-durable subscription, which would end with its consumer.
    """
    old = subscription.active
    if (
        old is not None
        and request.sub_type == subscription.sub_type == SubType.Exclusive
        and subscription.cursor.durable
        and old.connection is not request.connection
        and not await old.connection.is_alive()
    ):
        old.close()


async def make_ready(log: ManagedLedger) -> None:
    """Before a producer is let in. Raises BrokerError PersistenceError if nothing can be stored.

    Apache's broker lets it in and closes it with its next message (PersistentTopic.addFailed). As
    each success resets the client's back-off, it comes back after 0.1 s, for ever; and Apache's
    client in C++ (also in Python) starts its send timer with each success, so that its sends never
    time out. Refused, it backs off by itself, its timer goes on, and it hears the reason.
    """
    try:
        await log.make_ready()
    except LogError as error:
        text = f"the broker could not store messages: {error}"
        raise BrokerError(ServerError.PersistenceError, text) from error


async def store_epoch(topic: TopicBase[S], log: ManagedLedger, producer: Producer) -> None:
    """Make an exclusive producer's epoch durable, so that a broker that loads the topic later
    fences producers of earlier epochs, and wait for what those before it have sent: from here on
    the topic has all of it. If it fails, closes the producer and raises BrokerError.
    """
    shared = producer.request.access_mode == ProducerAccessMode.Shared
    if shared or not topic.is_registered(producer):
        return
    # Shielded: if cancelled here, the registered producer would have no owner.
    with trio.CancelScope(shield=True):
        try:
            await log.set_property(EPOCH_PROPERTY, str(producer.topic_epoch))
        except LogError as error:
            producer.disconnect()
            topic.publish_failed(error)
            topic.check_open()
            raise BrokerError(ServerError.PersistenceError, str(error)) from error
    try:
        await log.settled()
    except BaseException:
        producer.close()  # it will have no owner
        raise
    if not topic.is_registered(producer):
        topic.check_open()
        text = "Another producer has exclusive access now"
        raise BrokerError(ServerError.ProducerFenced, text)


async def grant_exclusive_access(
    topic: TopicBase[S], log: ManagedLedger, producer: Producer
) -> None:
    """A waiting producer got the topic: call its `on_ready` after its epoch is durable."""
    try:
        await store_epoch(topic, log, producer)
    except BrokerError:
        producer.disconnect()
        return
    producer.enter(ProducerEvent.GRANTED)
    producer.request.on_ready(producer)
