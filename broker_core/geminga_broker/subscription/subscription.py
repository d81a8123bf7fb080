"""A persistent topic's subscription: consumers, cursor, machine and pump (BR-30, BR-33, BR-36)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

import trio

from geminga_broker.compaction.reading import CompactedCursor, CompactedTopic
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import Ack, Cursor, EntryCursor, ManagedLedger
from geminga_broker.log.cursor import LogCursor
from geminga_broker.metrics.rates import Rates
from geminga_broker.policies.model import TopicOptions, TopicPolicies
from geminga_broker.policies.rate_limit import RateLimit
from geminga_broker.subscription import events as ev
from geminga_broker.subscription.consumer import INDIVIDUAL_ACK, Consumer, SubscribeRequest
from geminga_broker.subscription.delayed_delivery import KEY_SHARED, SHARED, DelayedDelivery
from geminga_broker.subscription.entry_filters import FilterContext
from geminga_broker.subscription.holdings import Sharing
from geminga_broker.subscription.machine import OrderedMachine
from geminga_broker.subscription.pump import Machine, Pump
from geminga_broker.subscription.replication import REPLICATED
from geminga_broker.subscription.state import State
from geminga_broker.subscription.strategies.key_shared import KeyShared
from geminga_broker.subscription.strategies.shared import Shared
from geminga_broker.subscription.strategies.single_active import SingleActive
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_broker.topic.api import KeySharedPolicy, LastMessage, SubType, TopicEnvironment
from geminga_broker.topic.headcount import Headcount
from geminga_broker.topic.moving import Moving
from geminga_broker.topic.stats import SubscriptionStats
from geminga_protocol.ids import EARLIEST, LATEST, Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_runtime.background import run_guarded
from geminga_runtime.clock import wall_clock_ms

_log = logging.getLogger(__name__)

READER_RETURN_S = 60.0
"""How long a non-durable subscription survives a seek, until its reader reconnects."""


class SubscriptionHost(Protocol):
    """The topic, as its subscriptions use it."""

    name: str
    partition: int
    log: ManagedLedger
    environment: TopicEnvironment
    options: TopicOptions
    dispatch_limits: tuple[RateLimit, ...]
    """The limits that all its subscriptions share."""
    rates: Rates
    """Counters of published messages."""
    policies: TopicPolicies
    headcount: Headcount
    moving: Moving | None
    """Set while it goes to another broker."""

    @property
    def terminated(self) -> bool:
        """Whether the topic is terminated."""

    @property
    def compaction(self) -> CompactedTopic:
        """The compacted part."""

    def subscription_emptied(self, subscription: Subscription) -> None:
        """The last consumer left."""

    async def drop_subscription(self, subscription: Subscription) -> None:
        """Delete it with its cursor."""

    async def last_message(self, *, read_compacted: bool = False) -> LastMessage:
        """The topic's last message."""


class Subscription:
    """One subscription. Its first consumer decides its type and policy."""

    def __init__(self, name: str, cursor: Cursor, host: SubscriptionHost) -> None:
        self.name = name
        self.topic_name = host.name
        self.partition = host.partition
        self.cursor = cursor
        self.replicated = REPLICATED in cursor.properties
        """Whether other clusters shall have its place."""
        self.sub_type: int | None = None
        self.rates_gone = Rates(trio.current_time())
        """Counters of consumers that left."""
        self.flowed_ms = 0  # the last flow of consumers that are gone
        self.mark_delete_advanced_ms = 0
        self.remembers = cursor if isinstance(cursor, LogCursor) else None
        """The cursor, if it stores its last use over restarts."""
        idle_s = self.remembers.use.idle_s if self.remembers is not None else 0
        self.idle_since_s = trio.current_time() - idle_s
        """When the last consumer left, by the loop's clock; unused while there are consumers."""
        self._host = host
        self.pump = Pump(
            f"{host.name} {name}",
            host.environment,
            cursor,
            self._cursor_of,
            host.log.previous_position,
        )
        self.post = self.pump.post
        self.backlog_entries = cursor.backlog_entries
        self._fenced = False
        self._all_leave = False
        self._end_told = False
        self._seeking = 0
        self._compacted: CompactedCursor | None = None
        """The cursor of consumers that read compacted, once there was one."""
        self.apply_policies()

    @property
    def machine(self) -> Machine | None:
        """Its decisions; None before the first consumer."""
        return self.pump.machine

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The connected consumers."""
        return self.machine.state.members if self.machine is not None else ()

    @property
    def active(self) -> Consumer | None:
        """The active consumer of Exclusive and Failover."""
        return self.machine.active if self.machine is not None else None

    @property
    def is_fenced(self) -> bool:
        """Whether it takes no consumers, as it is being deleted or its topic closed."""
        return self._fenced

    @property
    def is_seeking(self) -> bool:
        """Whether its cursor is being moved."""
        return self._seeking > 0

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties, as created or set since."""
        return self.cursor.cursor_properties

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the properties; durable on return. Raises LogError."""
        await self.cursor.set_cursor_properties(properties)

    def apply_policies(self) -> None:
        """Apply the topic's current policies and options."""
        policies, options = self._host.policies, self._host.options
        rate = policies.dispatch_rates.get(self.name, policies.subscription_dispatch_rate)
        for consumer in self.consumers:
            consumer.apply_options(options)
        self.pump.post(ev.OptionsChanged(options))
        self.pump.limit(rate, self._host.dispatch_limits, self._host.rates.per_second)

    # ---- consumers come and go ----

    def add(self, request: SubscribeRequest) -> Consumer:
        """Add a consumer. Raises BrokerError."""
        if self._fenced:
            raise BrokerError(ServerError.ServiceNotReady, "Subscription is fenced")
        policy = request.key_shared or KeySharedPolicy()
        machine, delays = self.machine, self.pump.delays
        if machine is None or not machine.state.members:
            if machine is None or not _suits(machine, request.sub_type, policy):
                machine, delays = _make_machine(self, self._host, request.sub_type, policy)
        elif request.sub_type != self.sub_type:
            raise BrokerError(ServerError.ConsumerBusy, "Subscription is of different type")
        elif not _suits(machine, request.sub_type, policy):
            text = "Subscription is of different type or has another Key_Shared policy"
            raise BrokerError(ServerError.ConsumerBusy, text)
        limit = self._host.options.consumers_per_subscription_max
        shared = request.sub_type != SubType.Exclusive
        if limit and shared and len(machine.state.members) >= limit:
            text = "Subscription reached max consumers limit"
            raise BrokerError(ServerError.ConsumerBusy, text)
        consumer = Consumer(request, self, self._host.options)
        machine.step(ev.Joined(consumer, policy))
        if machine is not self.machine:
            self.pump.use(machine, delays, self.cursor)
        self._host.headcount.note(self, len(self.consumers))
        if self.remembers is not None:
            self.remembers.use.begin()
        self.cursor.on_available(self.pump.wake)
        self.sub_type = request.sub_type
        request.on_subscribed(consumer)
        self.pump.post(ev.Welcomed(consumer, trio.current_time()))
        self.pump.start()
        self.tell_end_if_reached(consumer)
        return consumer

    def _cursor_of(self, consumer: Consumer) -> EntryCursor:
        """The cursor for an active consumer's entries."""
        if not consumer.request.read_compacted:
            return self.cursor
        if self._compacted is None:
            topic, request = self._host.compaction, consumer.request
            self._compacted = CompactedCursor(self.cursor, topic, request)
        return self._compacted

    def remove(self, consumer: Consumer) -> None:
        """The consumer left."""
        if consumer not in self.consumers:
            return
        self.rates_gone.add(consumer.rates.messages, consumer.rates.bytes)
        self.flowed_ms = max(self.flowed_ms, consumer.last_flow_ms)
        now_s = self.idle_since_s = trio.current_time()
        self.pump.post(ev.Left(consumer, now_s, self._all_leave))
        self._host.headcount.note(self, len(self.consumers))
        if self.consumers:
            return
        self.cursor.on_available(None)  # don't keep the cache for cursors without consumers
        if self.remembers is not None:
            self.remembers.use.end()
        if not self._seeking:
            self._host.subscription_emptied(self)

    @property
    def moving(self) -> Moving | None:
        """See `ConsumerOwner.moving`."""
        return self._host.moving

    def disconnect_all(self) -> None:
        """Close all consumers from the broker's side."""
        self._all_leave = True
        try:
            for consumer in list(self.consumers):
                consumer.disconnect()
        finally:
            self._all_leave = False

    def fence(self) -> None:
        """Refuse new consumers, and close all."""
        self._fenced = True
        self.disconnect_all()
        self.pump.wake()

    def reopen(self) -> None:
        """Accept consumers again, as the deletion failed."""
        self._fenced = False

    # ---- for consumers ----

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], cumulative: bool) -> None:
        """Acknowledge; ignores positions that are unknown, acknowledged or beyond the end."""
        if cumulative and acks[0].position > self._host.log.last_position:
            _log.debug("%s: cumulative ack beyond the end ignored: %s", self.topic_name, consumer)
            return
        before = self.cursor.mark_delete
        self.pump.post(ev.Acked(consumer, acks, cumulative))
        if self.cursor.mark_delete != before:
            self.mark_delete_advanced_ms = wall_clock_ms()
            if self._host.terminated:
                self.tell_end_if_reached()

    def tell_end_if_reached(self, added: Consumer | None = None) -> None:
        """REACHED_END_OF_TOPIC to all once a terminated topic is consumed, or to one that joins."""
        known = self._end_told and added is None
        if self._host.terminated and not known and self.backlog_entries() == 0:
            self._end_told = True
            for consumer in self.consumers if added is None else (added,):
                consumer.notify_end()

    async def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> None:
        """Read from there. Closes all consumers first, which reconnect; a non-durable subscription
        waits for them (PersistentSubscription.removeConsumer).
        """
        log = self._host.log
        if position == LATEST:
            position = log.next_position(log.last_position)
        self._seeking += 1
        try:
            self._end_told = False
            self.disconnect_all()
            async with self.pump.lock:  # no round runs meanwhile
                await self.cursor.seek(position)
                self.pump.post(ev.DeletedOutside(self.cursor.mark_delete))
                if self._compacted is not None:
                    self._compacted.sought(position)
                if ack_set and self._host.options.batch_index_ack and position != EARLIEST:
                    self.cursor.ack([Ack(position, ack_set)])
                    await self.cursor.persist()
        finally:
            self._seeking -= 1
            if not self.cursor.durable and not self.consumers:
                nursery = self._host.environment.nursery
                nursery.start_soon(run_guarded, self._end_unless_used)

    async def _end_unless_used(self) -> None:
        await trio.sleep(READER_RETURN_S)
        if not self.consumers and not self._seeking:
            self._host.subscription_emptied(self)

    async def seek_time(self, timestamp_ms: int) -> None:
        """Read messages published at that time or later."""
        found = self._compacted if self._compacted is not None else self._host.log
        await self.seek(await found.find_by_time(timestamp_ms))

    async def skip(self, entries: int | None) -> None:
        """Acknowledge the next `entries` entries, None: all."""
        if entries is None:
            self.cursor.ack_cumulative(self._host.log.last_position)
            await self.cursor.persist()
        else:
            await self.cursor.skip(entries)
        self._deleted_from_outside()

    def expire(self, last: Position) -> None:
        """Acknowledge all entries up to `last`, as an admin operation."""
        if last > self.cursor.mark_delete:
            self.cursor.ack_cumulative(last)
            self._deleted_from_outside()

    def _deleted_from_outside(self) -> None:
        self.pump.post(ev.DeletedOutside(self.cursor.mark_delete))
        self.tell_end_if_reached()

    async def unsubscribe(self, consumer: Consumer, *, force: bool = False) -> None:
        """Delete the subscription; only its sole consumer may, unless forced."""
        if not force and list(self.consumers) != [consumer]:
            text = "Unconnected or shared consumer attempting to unsubscribe"
            raise BrokerError(ServerError.MetadataError, text)
        consumer.close()
        await self._host.drop_subscription(self)

    async def last_message(self) -> LastMessage:
        """The topic's last message, with this subscription's mark-delete position."""
        compacted = any(each.request.read_compacted for each in self.consumers)
        last = await self._host.last_message(read_compacted=compacted)
        return last._replace(mark_delete=self.cursor.mark_delete)

    def stats(self) -> SubscriptionStats:
        """Statistics for `/stats`."""
        machine, cursor, gone = self.machine, self.cursor, self.rates_gone
        kind, flows = self.sub_type, [each.last_flow_ms for each in self.consumers]
        consumers = [consumer.stats() for consumer in self.consumers]
        stats = SubscriptionStats(
            bytes_out_counter=gone.bytes,
            msg_out_counter=gone.messages,
            msg_backlog=cursor.backlog_entries(),
            unacked_messages=sum(c.unacked_messages for c in consumers),
            type="None" if kind is None else SubType.Name(SubType.ValueType(kind)),
            last_consumed_flow_timestamp=max([self.flowed_ms, *flows]),
            last_consumed_timestamp=max((c.last_consumed_timestamp for c in consumers), default=0),
            last_acked_timestamp=max((c.last_acked_timestamp for c in consumers), default=0),
            last_mark_delete_advanced_timestamp=self.mark_delete_advanced_ms,
            consumers=consumers,
            non_contiguous_deleted_messages_ranges=cursor.statistics().holes,
            is_durable=cursor.durable,
            is_replicated=self.replicated,
            durable=cursor.durable,
            replicated=self.replicated,
            subscription_properties=dict(self.properties),
        )
        for each in consumers:
            stats.msg_rate_out += each.msg_rate_out
            stats.msg_throughput_out += each.msg_throughput_out
            stats.bytes_out_counter += each.bytes_out_counter
            stats.msg_out_counter += each.msg_out_counter
            stats.msg_rate_redeliver += each.msg_rate_redeliver
            stats.message_ack_rate += each.message_ack_rate
        if machine is not None:
            filtered = machine.state.filtered
            stats.filter_processed_msg_count = filtered.processed
            stats.filter_accepted_msg_count = filtered.accepted
            stats.filter_rejected_msg_count = filtered.rejected
            stats.filter_rescheduled_msg_count = filtered.rescheduled
            machine.describe(stats)
        stats.msg_backlog_no_delayed = max(0, stats.msg_backlog - stats.msg_delayed)
        return stats


def _suits(machine: Machine, sub_type: int, policy: KeySharedPolicy) -> bool:
    return machine.sub_type == sub_type and machine.matches(policy)


def _make_machine(
    subscription: Subscription, host: SubscriptionHost, sub_type: int, policy: KeySharedPolicy
) -> tuple[Machine, DelayedDelivery | None]:
    """The machine of a subscription type, and its delays if the type has them."""
    cursor, pump = subscription.cursor, subscription.pump
    topic = subscription.topic_name
    state: State[Consumer] = State(host.options, cursor, FilterContext(topic, subscription.name))
    if sub_type not in INDIVIDUAL_ACK:
        active = SingleActive(state.members, sub_type, topic, subscription.partition)
        return OrderedMachine(state, active), None
    strategy: Sharing[Consumer] = Shared(state)
    kind = SHARED
    if sub_type == SubType.Key_Shared:
        strategy = keyed = KeyShared(state, policy)
        kind = KEY_SHARED + keyed.selector.first_slot
    nursery, entries_max = host.environment.nursery, host.options.delayed_entries_max
    delays = DelayedDelivery(cursor, nursery, entries_max, pump.wake, kind)
    return TrackedMachine(state, strategy, delays.tracker, pump.paused_by_broker), delays
