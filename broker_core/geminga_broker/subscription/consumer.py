"""A consumer: permits, pending acknowledgements, MESSAGE frames (spec BR-32, BR-33, BR-35).

At all times permits given = messages sent + permits available + permits held back while blocked.
A message of a batch that is acknowledged already is not counted as sent. As in Apache an entry goes
out whole as long as one permit is left, so what is available can be negative by a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

import trio

from geminga_broker.log.api import Ack, Entry
from geminga_broker.metrics.rates import Rates, utc_now
from geminga_broker.policies.model import TopicOptions
from geminga_broker.topic.api import LastMessage, SubscribeRequest, SubType
from geminga_broker.topic.stats import ConsumerStats, iso_time
from geminga_protocol import ack_set as ack_sets
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

_AVERAGE_WEIGHT = 0.9
"""Weight of the past in the average batch size (Consumer.avgPercent)."""

NO_ACK_SETS: Mapping[Position, tuple[int, ...]] = {}
NO_COUNTS: Mapping[Position, int] = {}


class ConsumerOwner(Protocol):
    """The subscription, as its consumers use it."""

    name: str
    topic_name: str
    partition: int

    def wake(self) -> None:
        """This or another consumer may take more."""

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], cumulative: bool) -> None:
        """Acknowledge."""

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None:
        """Send again."""

    def remove(self, consumer: Consumer) -> None:
        """The consumer left."""

    async def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> None:
        """Read from there."""

    async def seek_time(self, timestamp_ms: int) -> None:
        """Read what was published from then on."""

    async def unsubscribe(self, consumer: Consumer, force: bool) -> None:
        """Delete the subscription."""

    async def last_message(self) -> LastMessage:
        """The topic's last."""

    def backlog_entries(self) -> int:
        """Entries to go."""


class Consumer:
    """One consumer of one connection."""

    __slots__ = (
        "_closed",
        "_expose",
        "_header",
        "_limit",
        "_owner",
        "_untold",
        "_waits_writable",
        "acked",
        "average",
        "blocked",
        "connected_since",
        "connection",
        "consumer_id",
        "epoch",
        "given",
        "held",
        "last_acked_ms",
        "last_consumed_ms",
        "last_flow_ms",
        "name",
        "pending",
        "permits",
        "priority",
        "rates",
        "redelivered",
        "request",
        "sent",
        "sub_type",
        "subscription_name",
        "unacked",
    )

    def __init__(
        self, request: SubscribeRequest, owner: ConsumerOwner, options: TopicOptions
    ) -> None:
        now_s = trio.current_time()
        self.request = request
        self.connection = request.connection
        self.consumer_id = request.consumer_id
        self.name = request.consumer_name
        self.subscription_name = owner.name
        self.sub_type = request.sub_type
        self.priority = request.priority_level
        self.epoch = request.consumer_epoch
        self.permits = 0
        self.held = 0
        self.given = 0
        self.sent = 0
        self.unacked = 0
        self.blocked = False
        self.pending: dict[Position, int] = {}
        """Entries to be acknowledged, with how many messages of each; Shared and Key_Shared only.
        Bounded by the unacked limit."""
        self.average = 1.0
        self.rates = Rates(now_s)
        self.redelivered = Rates(now_s)
        self.acked = Rates(now_s)
        self.connected_since = utc_now()
        self.last_flow_ms = self.last_acked_ms = self.last_consumed_ms = 0
        self._limit = 0
        self.obey(options)
        self._owner = owner
        self._header = MessageHeader(request.consumer_id, owner.partition)
        self._expose = (
            options.expose_broker_entry_metadata
            and request.connection.supports_broker_entry_metadata
        )
        self._closed = False
        self._waits_writable = False
        self._untold: bool | None = None

    # ---- what dispatch asks ----

    @property
    def ready(self) -> bool:
        """Whether an entry may go out now; if only the connection is full, we are woken later."""
        if self.blocked or self.room <= 0:
            return False
        if self.connection.writable:
            return True
        if not self._waits_writable:
            self._waits_writable = True
            self.connection.on_writable(self._on_writable)
        return False

    @property
    def room(self) -> int:
        """Messages that may go out now: permits, as far as the unacked limit lets them count."""
        if self._limit:
            return min(self.permits, self._limit - self.unacked)
        return self.permits

    def obey(self, options: TopicOptions) -> None:
        """The limit of unacknowledged messages may be another now."""
        request = self.request
        individual = request.sub_type in INDIVIDUAL_ACK and request.durable
        limit = self._limit = options.unacked_per_consumer_max if individual else 0
        if not limit or self.unacked < limit:
            if self.blocked:
                self.unblock()
        else:
            self.blocked = True

    def _on_writable(self) -> None:
        self._waits_writable = False
        self._owner.wake()

    def send(
        self,
        entries: Sequence[Entry],
        *,
        track: bool = False,
        redelivery_counts: Mapping[Position, int] = NO_COUNTS,
        acknowledged: Mapping[Position, tuple[int, ...]] = NO_ACK_SETS,
    ) -> None:
        """Write MESSAGE frames, one write for all. `track` keeps the entries as pending;
        `acknowledged` has the ack sets of batches that are acknowledged in part.
        """
        build = self._header.build
        epoch = self.epoch
        expose = self._expose
        pending = self.pending
        buffers: list[bytes | memoryview] = []
        add = buffers.append
        messages = size = 0
        for entry in entries:
            data = entry.data
            length = len(data)
            if not expose and length > 1 and data[0] == 14 and data[1] == 2:
                data = _stripped(data)
                length = len(data)
            position = entry.position
            count = entry.messages
            words = acknowledged.get(position, ()) if acknowledged else ()
            if words:
                count = ack_sets.cardinality(words)
            again = redelivery_counts.get(position, 0) if redelivery_counts else 0
            add(build(position[0], position[1], length, again, words, epoch))
            add(data)
            if track:
                pending[position] = count
            messages += count
            size += length
        self._account(messages, len(entries), size, track)
        self.connection.write(*buffers)

    def _account(self, messages: int, entries: int, size_bytes: int, track: bool) -> None:
        self.permits -= messages
        self.sent += messages
        self.last_consumed_ms = wall_clock_ms()
        self.average = self.average * _AVERAGE_WEIGHT + (1 - _AVERAGE_WEIGHT) * messages / entries
        self.rates.add(messages, size_bytes)
        if track:
            self.unacked += messages
            if self._limit and self.unacked >= self._limit:
                self.blocked = True

    def release(self, messages: int) -> None:
        """That many fewer are unacknowledged; at half of the limit a blocked consumer goes on."""
        self.unacked -= messages
        assert self.unacked >= 0, "more acknowledged than sent"
        if self.blocked and self.unacked <= self._limit // 2:
            self.unblock()

    def unblock(self) -> None:
        """Let permits that came meanwhile count."""
        self.blocked = False
        self.permits += self.held
        self.held = 0
        self._owner.wake()

    def notify_active(self, active: bool) -> None:
        """ACTIVE_CONSUMER_CHANGE, to clients that know it.

        A client that doesn't read is told the last change when it does: others may come and go as
        often as they like, and what waits for it must not grow by that.
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

    # ---- what sessions ask ----

    def flow(self, permits: int) -> None:
        """FLOW: more messages may be sent."""
        if permits <= 0 or self._closed:
            return
        self.given += permits
        self.last_flow_ms = wall_clock_ms()
        if self.blocked:
            self.held += permits
        else:
            self.permits += permits
            self._owner.wake()

    def ack(self, acks: Sequence[Ack], *, cumulative: bool = False) -> None:
        """Acknowledge. Cumulative on Shared and Key_Shared is ignored with a warning, unknown
        positions too, as Apache does; the receipt can go out at once.
        """
        if cumulative and (self.sub_type in INDIVIDUAL_ACK or len(acks) != 1):
            _log.warning("%s: cumulative ack ignored: %s", self._owner.topic_name, self)
            return
        self.last_acked_ms = wall_clock_ms()
        self.acked.add(len(acks), 0)
        self._owner.acknowledge(self, acks, cumulative)

    def redeliver(
        self, positions: Sequence[Position] | None = None, epoch: int | None = None
    ) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES; None: all that this consumer holds."""
        if self._closed:
            return
        if epoch is not None:
            self.epoch = epoch
        self._owner.redeliver(self, positions)
        if self.blocked and self.unacked < self._limit:
            self.unblock()

    async def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> None:
        """SEEK by message id (EARLIEST and LATEST of `ids` too): the position is read next. All
        consumers of the subscription are closed from the broker's side and come back.
        """
        await self._owner.seek(position, ack_set)

    async def seek_time(self, timestamp_ms: int) -> None:
        """SEEK by publish time; consumers are closed as with `seek`."""
        await self._owner.seek_time(timestamp_ms)

    async def unsubscribe(self, *, force: bool = False) -> None:
        """UNSUBSCRIBE: delete the subscription. Raises BrokerError MetadataError while others are
        connected.
        """
        await self._owner.unsubscribe(self, force)

    def close(self) -> None:
        """CLOSE_CONSUMER, or the connection is gone. Idempotent; what it held is redelivered."""
        if not self._closed:
            self._closed = True
            self._owner.remove(self)

    def disconnect(self) -> None:
        """Close from the broker's side. Idempotent."""
        if not self._closed:
            self.close()
            self.connection.drop_consumer(self.consumer_id)

    async def last_message(self) -> LastMessage:
        """GET_LAST_MESSAGE_ID."""
        return await self._owner.last_message()

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

    def backlog_entries(self) -> int:
        """Entries of its subscription that are not acknowledged."""
        return self._owner.backlog_entries()

    def __repr__(self) -> str:
        return f"<Consumer {self.name}#{self.consumer_id} of {self.subscription_name}>"


def _stripped(data: memoryview) -> memoryview:
    """Without broker entry metadata; an entry that only seems to have them goes out as it is."""
    try:
        return strip_broker_entry_metadata(data)
    except RemoteProtocolError:
        return data
