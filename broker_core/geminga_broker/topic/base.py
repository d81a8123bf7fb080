"""The common part of persistent and non-persistent topics: name, producers, limits, idleness."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar

import trio

from geminga_broker.errors import AboveLimit, BrokerError
from geminga_broker.log.api import LogError
from geminga_broker.log.reserved_cursors import RESERVED_CURSORS
from geminga_broker.metrics.rates import Rates
from geminga_broker.policies.model import TopicOptions, TopicPolicies
from geminga_broker.policies.rate_limit import RateLimit, SubscribeLimit
from geminga_broker.subscription.consumer import ConsumerOwner, SubscribeRequest
from geminga_broker.topic.admission import Admission
from geminga_broker.topic.api import ProducerRequest, SubType, TopicEnvironment
from geminga_broker.topic.deduplication import Deduplication
from geminga_broker.topic.headcount import Headcount
from geminga_broker.topic.moving import Moving
from geminga_broker.topic.producer import Producer
from geminga_broker.topic.registry import ProducerRegistry
from geminga_broker.topic.states import TOPIC_TRANSITIONS, TopicEvent, TopicState
from geminga_broker.topic.stats import (
    PublisherStats,
    StatsSteps,
    SubscriptionStats,
    TopicStats,
    finished,
)
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName

S = TypeVar("S", bound=ConsumerOwner)


_NO_POLICIES = TopicPolicies()
"""Of all topics until theirs are applied."""


class TopicBase(ABC, Generic[S]):
    """State and checks of a topic, with or without storage."""

    persistent = True

    def __init__(
        self, name: TopicName, environment: TopicEnvironment, options: TopicOptions
    ) -> None:
        self.name = str(name)
        self.partition = name.partition_index
        self.environment = environment
        self.subscriptions: dict[str, S] = {}
        self.headcount = Headcount()
        self.options = options
        self.state = TopicState.OPEN
        self.on_fenced: Callable[[], None] = lambda: None
        """Called once if another broker has fenced the log: the service must unload this topic."""
        self.rates = Rates(trio.current_time())
        self.idle_since_s = trio.current_time()
        self.deduplication: Deduplication | None = None
        self.policies = _NO_POLICIES
        self.policies_lock = trio.Lock()
        """Held while policies are read and applied, so that older ones don't come last."""
        self.publish_limits: tuple[RateLimit, ...] = ()
        """The broker's and its own."""
        self.own_publish_limit: tuple[RateLimit, ...] = ()
        self.subscribe_limit: SubscribeLimit | None = None
        self.admission: Admission | None = None
        self.moving: Moving | None = None
        """Set while it goes to another broker: its clients are told later, and where to."""
        self.publishes_limited = 0
        self._registry = ProducerRegistry(self.name, options.producers_max)
        self.producers = self._registry.by_name
        """Registered producers by name, without waiting ones."""
        self.disconnect_producers = self._registry.disconnect_all

    def enter(self, event: TopicEvent) -> None:
        """Change the state by the event."""
        self.state = TOPIC_TRANSITIONS[event][self.state]

    @property
    def fenced(self) -> bool:
        """Whether it is (being) closed or deleted: it refuses all clients."""
        return self.state in (TopicState.FENCED, TopicState.CLOSED)

    @property
    def terminated(self) -> bool:
        """Whether it takes clients, but no more messages."""
        return self.state is TopicState.TERMINATED

    def set_options(self, options: TopicOptions) -> None:
        """Apply changed policies. Limits are for new clients only."""
        self.options = options
        self._registry.producers_max = options.producers_max

    @property
    def consumer_count(self) -> int:
        """Connected consumers of all subscriptions."""
        return self.headcount.total

    @property
    def idle(self) -> bool:
        """Whether it has no clients; without subscriptions it may be deleted as inactive then."""
        return self._registry.empty and self.consumer_count == 0

    def subscription(self, name: str) -> S:
        """Raises BrokerError SubscriptionNotFound."""
        try:
            return self.subscriptions[name]
        except KeyError:
            text = f"Subscription {name} not found"
            raise BrokerError(ServerError.SubscriptionNotFound, text) from None

    def check_no_subscription(self, name: str) -> None:
        """Raises BrokerError ConsumerBusy if the subscription exists."""
        if name in self.subscriptions:
            text = f"Subscription already exists for topic: {name}"
            raise BrokerError(ServerError.ConsumerBusy, text)

    def publish_failed(self, error: LogError) -> None:
        """A run failed: unload the topic if another broker has fenced its log."""

    def is_registered(self, producer: Producer) -> bool:
        """Whether it is registered, and doesn't wait for exclusive access."""
        return self._registry.by_name.get(producer.name) is producer

    def check_open(self) -> None:
        """Raises BrokerError ServiceNotReady if the topic is fenced."""
        if self.fenced:
            raise BrokerError(ServerError.ServiceNotReady, "Topic is temporarily unavailable")

    def admit_producer(self, request: ProducerRequest[Producer], producer: Producer) -> Producer:
        """Check the request and register the producer. Raises BrokerError."""
        self.check_open()
        if self.terminated:
            text = "Topic was already terminated"
            raise BrokerError(ServerError.TopicTerminatedError, text)
        if self.options.encryption_required and not request.encrypted:
            text = f"Encryption is required in {self.name}"
            raise BrokerError(ServerError.MetadataError, text)
        self._registry.add(producer)
        if self.deduplication is not None:
            self.deduplication.added(producer.name)
        return producer

    def remove_producer(self, producer: Producer) -> None:
        """Forget a closed producer."""
        self._registry.remove(producer)
        if self.deduplication is not None and producer.name not in self.producers:
            self.deduplication.removed(producer.name, trio.current_time())
        self.idle_since_s = trio.current_time()

    def check_subscribe(self, request: SubscribeRequest, consumers: int, known: bool) -> None:
        """Raises BrokerError for requests that the topic refuses on any subscription."""
        self.check_open()
        if not request.subscription and self.persistent:
            # Apache's error code; its non-persistent topics accept such a subscription.
            raise BrokerError(ServerError.ProducerBusy, "Empty subscription name")
        self.check_subscription_name(request.subscription)
        if request.sub_type not in self.options.subscription_types:
            kind = SubType.Name(SubType.ValueType(request.sub_type))
            text = f"Topic[{{{self.name}}}] doesn't support {kind} sub type!"
            raise BrokerError(ServerError.NotAllowedError, text)
        if request.read_compacted and request.sub_type not in (SubType.Exclusive, SubType.Failover):
            text = "readCompacted only allowed on failover or exclusive subscriptions"
            raise BrokerError(ServerError.NotAllowedError, text)
        if request.read_compacted and not self.persistent:
            text = "readCompacted only valid on persistent topics"
            raise BrokerError(ServerError.NotAllowedError, text)
        limit = self.options.consumers_max
        if limit and consumers >= limit:
            raise BrokerError(ServerError.ConsumerBusy, "Topic reached max consumers limit")
        rate = self.subscribe_limit
        who = (request.connection.address.partition(":")[0], request.consumer_name)
        if rate and not rate.take((*who, request.consumer_id), trio.current_time()):
            text = "Subscribe limited by subscribe rate limit per consumer."
            raise BrokerError(ServerError.NotAllowedError, text)
        if not known and request.durable and not self.policies.auto_subscription:
            raise BrokerError(ServerError.SubscriptionNotFound, "Subscription does not exist")

    def check_subscription_name(self, name: str) -> None:
        """Raises BrokerError NotAllowedError for reserved names."""
        if name in RESERVED_CURSORS:
            text = f"Subscription name {name} is reserved"
            raise BrokerError(ServerError.NotAllowedError, text)

    def check_subscriptions_limit(self, durable: int) -> None:
        """Raises AboveLimit if no more may be created."""
        limit = self.options.subscriptions_max
        if limit and durable >= limit:
            text = "Exceed the maximum number of subscriptions of the topic: " + self.name
            raise AboveLimit(text)

    @abstractmethod
    def stats_steps(self) -> StatsSteps:
        """Makes the statistics for `/stats` in steps, between which others may run."""

    def stats(self) -> TopicStats:
        """The same without a pause."""
        return finished(self.stats_steps())

    def publishers(self) -> Generator[Sequence[int], None, list[PublisherStats]]:
        """Statistics of the producers, with a step for each."""
        found = []
        for producer in list(self.producers.values()):
            found.append(producer.stats())
            yield ()
        return found

    def base_stats(
        self, subscriptions: dict[str, SubscriptionStats], publishers: list[PublisherStats]
    ) -> TopicStats:
        """Sums over subscriptions."""
        rate, throughput = self.rates.per_second(trio.current_time())
        found = TopicStats(
            msg_rate_in=rate,
            msg_throughput_in=throughput,
            msg_rate_out=0,
            msg_throughput_out=0,
            bytes_in_counter=self.rates.bytes,
            msg_in_counter=self.rates.messages,
            average_msg_size=throughput / rate if rate else 0.0,
            publish_rate_limited_times=self.publishes_limited,
            waiting_publishers=self._registry.waiting,
            publishers=publishers,
            subscriptions=subscriptions,
        )
        for each in subscriptions.values():
            found.msg_rate_out += each.msg_rate_out
            found.msg_throughput_out += each.msg_throughput_out
            found.bytes_out_counter += each.bytes_out_counter
            found.msg_out_counter += each.msg_out_counter
            found.delayed_message_index_size_in_bytes += each.delayed_message_index_size_in_bytes
        return found
