"""Non-persistent topics: messages go to consumers at once, or are dropped (spec BR-08)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import trio

from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, AppendDone, Entry
from geminga_broker.log.entry import LogEntry
from geminga_broker.metrics.rates import Rates
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription import events as ev
from geminga_broker.subscription.consumer import Consumer, SubscribeRequest
from geminga_broker.subscription.effects import TellActive
from geminga_broker.subscription.strategies.key_shared import ByKey
from geminga_broker.subscription.strategies.shared import InTurn
from geminga_broker.subscription.strategies.single_active import SingleActive
from geminga_broker.topic.api import (
    KeySharedPolicy,
    LastMessage,
    ProducerRequest,
    SubType,
    TopicEnvironment,
)
from geminga_broker.topic.base import TopicBase
from geminga_broker.topic.fencing import evict_dead_producer
from geminga_broker.topic.moving import Moving
from geminga_broker.topic.producer import Producer
from geminga_broker.topic.states import TopicEvent
from geminga_broker.topic.stats import (
    InternalStats,
    StatsSteps,
    SubscriptionStats,
)
from geminga_protocol.ack_set import AckSet
from geminga_protocol.buffers import Buffer
from geminga_protocol.ids import Position
from geminga_protocol.pb.pulsar_api_pb2 import (
    ServerError,
)
from geminga_protocol.topic_name import TopicName

NOWHERE = Position(0, 0)
"""Message id of all messages (NonPersistentTopic.publishMessage)."""


Strategy: TypeAlias = InTurn[Consumer] | ByKey[Consumer] | SingleActive[Consumer]


def _send(consumer: Consumer, entries: Sequence[Entry], counts: Sequence[int]) -> None:
    messages = sum(counts)
    consumer.take(len(counts), messages)
    consumer.send(entries, messages)


def _tell(told: Sequence[TellActive[Consumer]]) -> None:
    for consumer, active in told:
        consumer.notify_active(active)


class NonPersistentSubscription:
    """A subscription without storage: messages without permits are counted and dropped."""

    def __init__(self, name: str, topic: NonPersistentTopic, sub_type: int) -> None:
        self.name = name
        self.topic_name = topic.name
        self.partition = topic.partition
        self.sub_type = sub_type
        self.durable = True
        self.properties: Mapping[str, str] = {}
        self.consumers: list[Consumer] = []
        self.dropped = Rates(trio.current_time())
        self._topic = topic
        self._policy = KeySharedPolicy()
        self._strategy = self._strategy_for(sub_type)

    def _strategy_for(self, sub_type: int) -> Strategy:
        options = self._topic.options
        if sub_type == SubType.Shared:
            return InTurn(self.consumers, options.round_robin_entries_max)
        if sub_type == SubType.Key_Shared:
            return ByKey(self.consumers, self._policy, options)
        return SingleActive(self.consumers, sub_type, self.topic_name, self.partition)

    @property
    def active(self) -> Consumer | None:
        """The active consumer of Exclusive and Failover."""
        strategy = self._strategy
        return strategy.active if isinstance(strategy, SingleActive) else None

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the properties."""
        await trio.lowlevel.checkpoint()
        self.properties = dict(properties)

    def backlog_entries(self) -> int:
        """Always 0."""
        return 0

    def add(self, request: SubscribeRequest) -> Consumer:
        """Add a consumer. Raises BrokerError."""
        policy = request.key_shared or KeySharedPolicy()
        if not self.consumers:
            self.sub_type, self._policy = request.sub_type, policy
            self._strategy = self._strategy_for(request.sub_type)
        elif request.sub_type != self.sub_type or policy.mode != self._policy.mode:
            raise BrokerError(ServerError.ConsumerBusy, "Subscription is of different type")
        limit = self._topic.options.consumers_per_subscription_max
        if limit and len(self.consumers) >= limit and self.sub_type != SubType.Exclusive:
            text = "Subscription reached max consumers limit"
            raise BrokerError(ServerError.ConsumerBusy, text)
        consumer = Consumer(request, self, self._topic.options)
        consumer.set_limit(0)  # nothing is acknowledged, so no limit applies
        self._strategy.admit(consumer, policy)
        self._topic.headcount.note(self, len(self.consumers))
        request.on_subscribed(consumer)
        if isinstance(self._strategy, SingleActive):
            _tell(self._strategy.elect(consumer))
        return consumer

    def remove(self, consumer: Consumer) -> None:
        """The consumer left."""
        if consumer not in self.consumers:
            return
        self._strategy.remove(consumer)
        self._topic.headcount.note(self, len(self.consumers))
        if isinstance(self._strategy, SingleActive):
            _tell(self._strategy.elect())
        self._topic.subscription_emptied(self)

    @property
    def moving(self) -> Moving | None:
        """See `ConsumerOwner.moving`."""
        return self._topic.moving

    def disconnect_all(self) -> None:
        """Close all consumers from the broker's side."""
        for consumer in list(self.consumers):
            consumer.disconnect()

    def dispatch(self, entries: Sequence[Entry]) -> None:
        """Send to consumers with permits; drop the rest."""
        dropped = self._strategy.assign(entries, _send)
        if dropped:
            self.dropped.add(sum(e.messages for e in dropped), sum(e.size for e in dropped))

    # ---- for consumers ----

    def post(self, event: ev.Event[Consumer]) -> None:
        """Nothing waits for permits: the next message finds them."""
        if isinstance(event, ev.Flow):
            event.member.grant(event.permits)

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], cumulative: bool) -> None:
        """Ignored: nothing is stored."""

    async def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> None:
        """Succeeds without effect, as in Apache."""
        await trio.lowlevel.checkpoint()

    async def seek_time(self, timestamp_ms: int) -> None:
        """Succeeds without effect, as in Apache."""
        await trio.lowlevel.checkpoint()

    async def unsubscribe(self, consumer: Consumer, *, force: bool = False) -> None:
        """Delete the subscription; only its sole consumer may, unless forced."""
        if not force and self.consumers != [consumer]:
            text = "Unconnected or shared consumer attempting to unsubscribe"
            raise BrokerError(ServerError.MetadataError, text)
        consumer.close()
        await self._topic.delete_subscription(self.name, force=True)

    async def last_message(self) -> LastMessage:
        """Raises BrokerError NotAllowedError."""
        return await self._topic.last_message()

    def stats(self) -> SubscriptionStats:
        """Statistics for `/stats`."""
        consumers = [consumer.stats() for consumer in self.consumers]
        active = self.active
        return SubscriptionStats(
            msg_rate_out=sum(c.msg_rate_out for c in consumers),
            msg_throughput_out=sum(c.msg_throughput_out for c in consumers),
            bytes_out_counter=sum(c.bytes_out_counter for c in consumers),
            msg_out_counter=sum(c.msg_out_counter for c in consumers),
            type=SubType.Name(SubType.ValueType(self.sub_type)),
            active_consumer_name=active.name if active is not None else None,
            consumers=consumers,
            is_durable=False,
            durable=False,
            subscription_properties=dict(self.properties),
            msg_drop_rate=self.dropped.per_second(trio.current_time())[0],
        )


class NonPersistentTopic(TopicBase[NonPersistentSubscription]):
    """One topic without a log."""

    persistent = False
    entry_step = 0

    def __init__(
        self,
        name: TopicName,
        environment: TopicEnvironment,
        options: TopicOptions | None = None,
    ) -> None:
        super().__init__(name, environment, options or TopicOptions())

    async def add_producer(self, request: ProducerRequest[Producer]) -> Producer:
        """Raises BrokerError as PersistentTopic.add_producer."""
        producer = Producer(request, self)
        await evict_dead_producer(self._registry, producer)
        # No checkpoint from here on: a cancellation or an unload must not leave the registered
        # producer without an owner.
        return self.admit_producer(request, producer)

    def append(self, entries: Sequence[tuple[Buffer, int]], done: AppendDone) -> None:
        """Copy once, dispatch to every subscription, and confirm at once."""
        if self.subscriptions:
            passing: list[Entry] = [
                LogEntry(NOWHERE, memoryview(bytes(data)), count) for data, count in entries
            ]
            for subscription in self.subscriptions.values():
                subscription.dispatch(passing)
        messages = size = 0
        for data, count in entries:
            messages += count
            size += len(data)
        self.rates.add(messages, size)
        self.environment.catch_up.appended(1, 0)
        done(NOWHERE, len(entries), None)

    async def subscribe(self, request: SubscribeRequest) -> Consumer:
        """Raises BrokerError as PersistentTopic.subscribe."""
        await trio.lowlevel.checkpoint()
        name = request.subscription
        subscription = self.subscriptions.get(name)
        self.check_subscribe(request, self.consumer_count, subscription is not None)
        if subscription is None:
            self.check_subscriptions_limit(len(self.subscriptions))
            subscription = NonPersistentSubscription(name, self, request.sub_type)
            subscription.durable = request.durable
            subscription.properties = dict(request.subscription_properties)
        consumer = subscription.add(request)
        self.subscriptions[name] = subscription
        return consumer

    def subscription_emptied(self, subscription: NonPersistentSubscription) -> None:
        """The last consumer left, which ends a non-durable subscription."""
        self.idle_since_s = trio.current_time()
        if not subscription.durable and not subscription.consumers:
            self.subscriptions.pop(subscription.name, None)

    async def create_subscription(
        self, name: str, start: Position, properties: Mapping[str, str] | None = None
    ) -> None:
        """Raises BrokerError ConsumerBusy if it exists; ignores `start`."""
        self.check_open()
        self.check_no_subscription(name)
        subscription = NonPersistentSubscription(name, self, SubType.Exclusive)
        subscription.properties = dict(properties or {})
        self.subscriptions[name] = subscription
        await trio.lowlevel.checkpoint()

    async def delete_subscription(self, name: str, *, force: bool = False) -> None:
        """Raises BrokerError SubscriptionNotFound, and ConsumerBusy with consumers connected."""
        subscription = self.subscription(name)
        if subscription.consumers and not force:
            text = "Subscription has active connected consumers"
            raise BrokerError(ServerError.ConsumerBusy, text)
        subscription.disconnect_all()
        self.subscriptions.pop(name, None)
        await trio.lowlevel.checkpoint()

    async def skip(self, name: str, entries: object) -> None:
        """Raises BrokerError NotAllowedError: nothing is stored."""
        self.subscription(name)
        await trio.lowlevel.checkpoint()
        text = "This operation is not allowed on a non-persistent topic"
        raise BrokerError(ServerError.NotAllowedError, text)

    async def reset(self, name: str, position: Position, ack_set: AckSet = ()) -> None:
        """As `skip`."""
        await self.skip(name, position)

    async def reset_to_time(self, name: str, timestamp_ms: int) -> None:
        """As `skip`."""
        await self.skip(name, timestamp_ms)

    async def expire(self, name: str, older_than_s: int) -> None:
        """As `skip`."""
        await self.skip(name, older_than_s)

    async def terminate(self) -> Position:
        """Raises BrokerError NotAllowedError, as in Apache."""
        await trio.lowlevel.checkpoint()
        text = "Termination of a non-persistent topic is not allowed"
        raise BrokerError(ServerError.NotAllowedError, text)

    async def truncate(self) -> None:
        """Raises BrokerError NotAllowedError, as in Apache."""
        await trio.lowlevel.checkpoint()
        text = "Truncation of a non-persistent topic is not allowed"
        raise BrokerError(ServerError.NotAllowedError, text)

    async def delete(self, *, force: bool = False) -> None:
        """Unless forced, raises BrokerError ProducerBusy or ConsumerBusy with clients connected."""
        if not force and not self.idle:
            busy = ServerError.ProducerBusy if self.producers else ServerError.ConsumerBusy
            raise BrokerError(busy, "Topic has connected producers or consumers")
        await self.close()

    async def close(self, *, close_clients: bool = True) -> None:
        """Unload: producers and consumers are closed. Idempotent."""
        self.enter(TopicEvent.CLOSE)
        if close_clients:
            self.fence()
        await trio.lowlevel.checkpoint()

    def fence(self) -> None:
        """Refuse all clients from now on, and close those that are connected. Idempotent."""
        self.enter(TopicEvent.FENCE)
        self._registry.disconnect_all()
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect_all()

    async def last_message(self) -> LastMessage:
        """Raises BrokerError NotAllowedError: messages aren't stored."""
        await trio.lowlevel.checkpoint()
        text = "A non-persistent topic has no last message"
        raise BrokerError(ServerError.NotAllowedError, text)

    def stats_steps(self) -> StatsSteps:
        """Statistics for `/stats`, with a step for each subscription and producer."""
        subscriptions = {}
        for name, subscription in list(self.subscriptions.items()):
            subscriptions[name] = subscription.stats()
            yield [consumer.request.consumer_id for consumer in subscription.consumers]
        found = self.base_stats(subscriptions, (yield from self.publishers()))
        found.msg_drop_rate = sum(s.msg_drop_rate or 0.0 for s in found.subscriptions.values())
        return found

    def internal_stats(self) -> InternalStats:
        """All zero, as there is no log."""
        return InternalStats(entries_added_counter=self.rates.messages)

    def __repr__(self) -> str:
        return f"<NonPersistentTopic {self.name}>"
