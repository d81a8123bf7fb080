"""A consumer: MESSAGE frames, and its session's requests (spec BR-32, BR-33, BR-35)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import trio

from geminga_broker.log.api import Ack, Entry
from geminga_broker.metrics.rates import Rates, utc_now
from geminga_broker.policies.model import TopicOptions
from geminga_broker.subscription import events as ev
from geminga_broker.subscription.state import NO_ACK_SETS, NO_COUNTS, Member
from geminga_broker.topic.api import (
    ClientConnection,
    InitialPosition,
    KeySharedPolicy,
    LastMessage,
    SubType,
)
from geminga_broker.topic.moving import Moving, drop_consumer
from geminga_broker.topic.stats import ConsumerStats, iso_time
from geminga_protocol.encode import MessageHeader, frame
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.payload import strip_broker_entry_metadata
from geminga_protocol.pb.pulsar_api_pb2 import (
    BaseCommand,
    CommandActiveConsumerChange,
    CommandReachedEndOfTopic,
)
from geminga_runtime.clock import wall_clock_ms

_log = logging.getLogger(__name__)

ACTIVE_CONSUMER_CHANGE_SINCE = 12
"""Protocol version whose clients know ACTIVE_CONSUMER_CHANGE."""
INDIVIDUAL_ACK = frozenset((SubType.Shared, SubType.Key_Shared))
"""Subscription types without cumulative acknowledgement."""


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """SUBSCRIBE, after names are resolved.

    `start` (inclusive; clients filter earlier messages of its batch) is used only if the
    subscription is not durable, as in Apache. `on_subscribed` is called synchronously when the
    consumer has joined, before any frame is written for it: write SUCCESS there, so that it comes
    first.
    """

    connection: ClientConnection
    consumer_id: int
    subscription: str
    sub_type: int = SubType.Exclusive
    consumer_name: str = ""
    priority_level: int = 0
    durable: bool = True
    start: Position | None = None
    initial_position: int = InitialPosition.Latest
    rollback_duration_s: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    key_shared: KeySharedPolicy | None = None
    read_compacted: bool = False
    replicate_state: bool = False
    consumer_epoch: int | None = None
    auto_consume: bool = False
    """Whether it takes messages of any schema."""
    on_subscribed: Callable[[Consumer], None] = lambda consumer: None


class ConsumerOwner(Protocol):
    """A subscription, as its consumers and sessions use it."""

    name: str
    topic_name: str
    partition: int

    @property
    def moving(self) -> Moving | None:
        """Set while the topic goes to another broker."""

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The connected consumers."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of the subscription, as created or set since."""

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the properties; durable on return if the subscription is."""

    def backlog_entries(self) -> int:
        """The number of unacknowledged entries."""

    async def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> None:
        """SEEK by message id (also EARLIEST and LATEST of `ids`): continue with that position. The
        broker closes all consumers; they reconnect.
        """

    async def seek_time(self, timestamp_ms: int) -> None:
        """SEEK by publish time; consumers are closed as with `seek`."""

    async def unsubscribe(self, consumer: Consumer, *, force: bool = False) -> None:
        """UNSUBSCRIBE: delete the subscription. Raises BrokerError MetadataError while others are
        connected.
        """

    async def last_message(self) -> LastMessage:
        """GET_LAST_MESSAGE_ID."""

    def post(self, event: ev.Event[Consumer]) -> None:
        """Post Flow, Writable or Redelivered."""

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], cumulative: bool) -> None:
        """Acknowledge."""

    def remove(self, consumer: Consumer) -> None:
        """The consumer left."""


class Consumer(Member):
    """One consumer of one connection: its frames and statistics. The machine sees only the Member:
    permits and unacknowledged entries.
    """

    __slots__ = (
        "_closed",
        "_expose",
        "_header",
        "_untold",
        "_waits_writable",
        "acked",
        "connected_since",
        "connection",
        "consumer_id",
        "epoch",
        "last_acked_ms",
        "last_consumed_ms",
        "last_flow_ms",
        "rates",
        "redelivered",
        "request",
        "sub_type",
        "subscription",
    )

    def __init__(
        self, request: SubscribeRequest, owner: ConsumerOwner, options: TopicOptions
    ) -> None:
        now_s = trio.current_time()
        super().__init__(request.consumer_name, request.priority_level)
        self.request = request
        self.connection = request.connection
        self.consumer_id = request.consumer_id
        self.subscription = owner
        self.sub_type = request.sub_type
        self.epoch = request.consumer_epoch
        self.rates = Rates(now_s)
        self.redelivered = Rates(now_s)
        self.acked = Rates(now_s)
        self.connected_since = utc_now()
        self.last_flow_ms = self.last_acked_ms = self.last_consumed_ms = 0
        self.apply_options(options)
        self._header = MessageHeader(request.consumer_id, owner.partition)
        self._expose = (
            options.expose_broker_entry_metadata
            and request.connection.supports_broker_entry_metadata
        )
        self._closed = False
        self._waits_writable = False
        self._untold: bool | None = None

    # ---- for the pump ----

    @property
    def ready(self) -> bool:
        """Whether an entry may go out now; if only the connection is full, Writable
        follows.
        """
        if self.blocked or self.room <= 0:
            return False
        if self.connection.writable:
            return True
        if not self._waits_writable:
            self._waits_writable = True
            self.connection.on_writable(self._on_writable)
        return False

    def _on_writable(self) -> None:
        self._waits_writable = False
        self.subscription.post(ev.Writable())

    def apply_options(self, options: TopicOptions) -> None:
        """Apply the limit of unacknowledged messages, which may have changed."""
        individual = self.request.sub_type in INDIVIDUAL_ACK and self.request.durable
        self.set_limit(options.unacked_per_consumer_max if individual else 0)

    def send(
        self,
        entries: Sequence[Entry],
        messages: int,
        redeliveries: Mapping[Position, int] = NO_COUNTS,
        ack_sets: Mapping[Position, tuple[int, ...]] = NO_ACK_SETS,
    ) -> int:
        """Write MESSAGE frames, in one write; returns their bytes. `redeliveries` counts earlier
        deliveries of entries, `ack_sets` has those of partly acknowledged batches.
        """
        build, plain = self._header.build, self._header.plain
        epoch = self.epoch
        is_plain = not ack_sets and not redeliveries
        expose = self._expose
        buffers: list[bytes | memoryview] = []
        add = buffers.append
        size = 0
        for entry in entries:
            data = entry.data
            length = len(data)
            if not expose and length > 1 and data[1] == 2 and data[0] == 14:
                data = _stripped(data)
                length = len(data)
            position = entry.position
            if is_plain:
                add(plain(position[0], position[1], length, epoch))
            else:
                again = redeliveries.get(position, 0)
                words = ack_sets.get(position, ())
                add(build(position[0], position[1], length, again, words, epoch))
            add(data)
            size += length
        self.last_consumed_ms = wall_clock_ms()
        self.rates.add(messages, size)
        self.connection.write(*buffers)
        return size

    def notify_active(self, active: bool) -> None:
        """ACTIVE_CONSUMER_CHANGE, to clients that support it.

        A client that does not read gets only the last change, later: other consumers may join and
        leave any number of times, which must not grow the queue of its connection.
        """
        connection = self.connection
        if connection.protocol_version < ACTIVE_CONSUMER_CHANGE_SINCE:
            return
        if connection.writable:
            self._untold = None
            self._write_active(active)
            return
        waits = self._untold is not None
        self._untold = active
        if not waits:
            connection.on_writable(self._tell_active)

    def _tell_active(self) -> None:
        active, self._untold = self._untold, None
        if active is not None and not self._closed:
            self._write_active(active)

    def _write_active(self, active: bool) -> None:
        change = CommandActiveConsumerChange(consumer_id=self.consumer_id, is_active=active)
        kind = BaseCommand.Type.ACTIVE_CONSUMER_CHANGE
        self.connection.write(frame(BaseCommand(type=kind, active_consumer_change=change)))

    def notify_end(self) -> None:
        """REACHED_END_OF_TOPIC."""
        end = CommandReachedEndOfTopic(consumer_id=self.consumer_id)
        kind = BaseCommand.Type.REACHED_END_OF_TOPIC
        self.connection.write(frame(BaseCommand(type=kind, reachedEndOfTopic=end)))

    # ---- for sessions ----

    def flow(self, permits: int) -> None:
        """FLOW: grant permits."""
        if permits <= 0 or self._closed:
            return
        self.last_flow_ms = wall_clock_ms()
        self.subscription.post(ev.Flow(self, permits))

    def ack(self, acks: Sequence[Ack], *, cumulative: bool = False) -> None:
        """Acknowledge. As in Apache, unknown positions are ignored, and cumulative ones on Shared
        and Key_Shared with a warning; the receipt can be sent at once.
        """
        if cumulative and (self.sub_type in INDIVIDUAL_ACK or len(acks) != 1):
            _log.warning("%s: cumulative ack ignored: %s", self.subscription.topic_name, self)
            return
        self.last_acked_ms = wall_clock_ms()
        self.acked.add(len(acks), 0)
        self.subscription.acknowledge(self, acks, cumulative)

    def redeliver(
        self, positions: Sequence[Position] | None = None, epoch: int | None = None
    ) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES; None: all entries of this consumer."""
        if self._closed:
            return
        if epoch is not None:
            self.epoch = epoch
        self.subscription.post(ev.Redelivered(self, positions))

    def close(self) -> None:
        """CLOSE_CONSUMER, or the connection is lost: redeliver its entries. Idempotent."""
        if not self._closed:
            self._closed = True
            self.subscription.remove(self)

    def disconnect(self) -> None:
        """Close from the broker's side. Idempotent."""
        if not self._closed:
            self.close()
            drop_consumer(self.connection, self.consumer_id, self.subscription.moving)

    def stats(self) -> ConsumerStats:
        """CONSUMER_STATS and /stats."""
        now_s = trio.current_time()
        rate, throughput = self.rates.per_second(now_s)
        return ConsumerStats(
            consumer_name=self.name,
            msg_rate_out=rate,
            msg_throughput_out=throughput,
            bytes_out_counter=self.rates.bytes,
            msg_out_counter=self.rates.messages,
            msg_rate_redeliver=self.redelivered.per_second(now_s)[0],
            message_ack_rate=self.acked.per_second(now_s)[0],
            available_permits=self.permits,
            unacked_messages=self.unacked,
            avg_messages_per_entry=round(self.average),
            blocked_consumer_on_unacked_msgs=self.blocked,
            address=self.connection.address,
            connected_since=self.connected_since,
            client_version=self.connection.client_version,
            last_acked_timestamp=self.last_acked_ms,
            last_consumed_timestamp=self.last_consumed_ms,
            last_consumed_flow_timestamp=self.last_flow_ms,
            metadata=dict(self.request.metadata),
            last_acked_time=iso_time(self.last_acked_ms),
            last_consumed_time=iso_time(self.last_consumed_ms),
        )

    def __repr__(self) -> str:
        return f"<Consumer {self.name}#{self.consumer_id} of {self.subscription.name}>"


def _stripped(data: memoryview) -> memoryview:
    """Without broker entry metadata; an entry that only seems to have them stays unchanged."""
    try:
        return strip_broker_entry_metadata(data)
    except RemoteProtocolError:
        return data
