"""Taking over from who is gone: names on dead connections, and topic epochs that outlive a broker
(spec BR-20; Apache's AbstractTopic.tryOverwriteOldProducer, PersistentTopic.setTopicEpoch).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogError
from geminga_broker.topic.api import SubscribeRequest, SubType
from geminga_broker.topic.producer import Producer
from geminga_protocol.pb.pulsar_api_pb2 import ProducerAccessMode, ServerError

if TYPE_CHECKING:
    from geminga_broker.subscription.subscription import Subscription
    from geminga_broker.topic.persistent import PersistentTopic
    from geminga_broker.topic.registry import ProducerRegistry

EPOCH_PROPERTY = "pulsar.topic.epoch"
"""The log's property that holds the topic epoch; the key is Apache's."""


def stored_epoch(properties: Mapping[str, str]) -> int | None:
    """The epoch of the last exclusive producer; None if there never was one."""
    value = properties.get(EPOCH_PROPERTY, "")
    return int(value) if value.isdecimal() else None


async def make_way(registry: ProducerRegistry, producer: Producer) -> None:
    """If a producer of the same name sits on a connection that doesn't answer, close it."""
    await trio.lowlevel.checkpoint()
    old = registry.in_the_way_of(producer)
    if old is not None and not await old.connection.is_alive():
        old.close()


async def make_way_for_consumer(subscription: Subscription, request: SubscribeRequest) -> None:
    """The same for the consumer of an exclusive subscription. One that isn't durable would end
    with it.
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


async def store_epoch(topic: PersistentTopic, producer: Producer) -> None:
    """Return when the epoch of a producer that has the topic for itself is durable: a broker that
    loads the topic later fences earlier ones. Raises BrokerError, and the producer is closed then.
    """
    if producer.access_mode == ProducerAccessMode.Shared or not topic.is_registered(producer):
        return
    # Begun, it is carried through: a cancellation must not come between the producer's entry and
    # its owner's learning of it.
    with trio.CancelScope(shield=True):
        try:
            await topic.log.set_property(EPOCH_PROPERTY, str(producer.topic_epoch))
        except LogError as error:
            producer.disconnect()
            topic.publish_failed(error)
            topic.check_open()
            raise BrokerError(ServerError.PersistenceError, str(error)) from error
    if not topic.is_registered(producer):
        topic.check_open()
        text = "Another producer has taken the topic over"
        raise BrokerError(ServerError.ProducerFenced, text)


async def announce(topic: PersistentTopic, producer: Producer) -> None:
    """A producer that waited has the topic now: tell it, once that is durable."""
    try:
        await store_epoch(topic, producer)
    except BrokerError:
        producer.disconnect()
        return
    producer.ready = True
    producer.request.on_ready(producer)
