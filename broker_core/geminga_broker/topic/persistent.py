"""A persistent topic over its managed ledger (spec BR-09, BR-20, BR-24, BR-30)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import trio

from geminga_broker.compaction.subscription import CompactionSubscription
from geminga_broker.compaction.topic_compaction import TopicCompaction
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import (
    AppendDone,
    Cursor,
    CursorNotFound,
    LogError,
    LogFenced,
    ManagedLedger,
)
from geminga_broker.log.reserved_cursors import COMPACTION, RESERVED_CURSORS
from geminga_broker.policies.backlog_quota_manager import check_producer
from geminga_broker.policies.model import TopicOptions
from geminga_broker.policies.quota import QuotaType, backlog_bytes
from geminga_broker.policies.rate_limit import RateLimit
from geminga_broker.subscription.consumer import Consumer, SubscribeRequest
from geminga_broker.subscription.replication import set_replicated
from geminga_broker.subscription.subscription import Subscription
from geminga_broker.topic.api import InitialPosition, LastMessage, ProducerRequest, TopicEnvironment
from geminga_broker.topic.base import TopicBase
from geminga_broker.topic.fencing import (
    evict_dead_consumer,
    evict_dead_producer,
    grant_exclusive_access,
    make_ready,
    store_epoch,
    stored_epoch,
)
from geminga_broker.topic.inspection import internal_stats, last_message
from geminga_broker.topic.producer import Producer
from geminga_broker.topic.states import TopicEvent, TopicState
from geminga_broker.topic.stats import InternalStats, StatsSteps
from geminga_protocol.ack_set import AckSet
from geminga_protocol.buffers import Buffer
from geminga_protocol.ids import EARLIEST, LATEST, Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.background import run_guarded

_log = logging.getLogger(__name__)


class PersistentTopic(TopicBase[Subscription]):
    """One topic; the log's cursors are its subscriptions."""

    entry_step = 1

    def __init__(
        self,
        name: TopicName,
        log: ManagedLedger,
        environment: TopicEnvironment,
        options: TopicOptions | None = None,
    ) -> None:
        super().__init__(name, environment, options or TopicOptions())
        self.log = log
        if log.terminated:
            self.enter(TopicEvent.TERMINATE)
        self.entries_added = 0
        self.oldest_backlog_s = -1
        """Age of the oldest unacknowledged message at the last check; -1: unknown."""
        self.evictions = dict.fromkeys(QuotaType, 0)
        """How often a backlog was cut because a quota was exceeded."""
        self.dispatch_limits: tuple[RateLimit, ...] = ()
        """The broker's and its own."""
        self.own_dispatch_limit: tuple[RateLimit, ...] = ()
        self._creating = trio.Lock()
        self._durable = 0
        """Durable subscriptions, for their limit."""
        self._registry.epoch = stored_epoch(log.properties)
        self._registry.grant_access = lambda producer: environment.nursery.start_soon(
            run_guarded, grant_exclusive_access, self, log, producer
        )
        for cursor in log.cursors.values():
            if cursor.durable and RESERVED_CURSORS.get(cursor.name, True):
                self.adopt(cursor)
        self.compaction = TopicCompaction(self)

    # ---- publishing ----

    async def add_producer(self, request: ProducerRequest[Producer]) -> Producer:
        """Raises BrokerError ProducerBusy, ProducerFenced, TopicTerminatedError, ServiceNotReady,
        MetadataError (encryption), NotAllowedError, ProducerBlockedQuotaExceededError,
        PersistenceError.
        """
        await check_producer(self)
        await make_ready(self.log)
        producer = Producer(request, self)
        await evict_dead_producer(self._registry, producer)
        # No checkpoint from here on: a cancellation or an unload must not leave the registered
        # producer without an owner.
        self.admit_producer(request, producer)
        if producer.ready:
            await store_epoch(self, self.log, producer)
        return producer

    def append(self, entries: Sequence[tuple[Buffer, int]], done: AppendDone) -> None:
        """Append a producer's entries; `done` is called in order."""
        messages = size = 0
        for data, count in entries:
            messages += count
            size += len(data)
        self.rates.add(messages, size)
        self.log.meter.appended(len(entries), size)
        self.entries_added += len(entries)
        self.environment.catch_up.appended(len(entries), size)
        self.log.append(entries, done)

    def publish_failed(self, error: LogError) -> None:
        """A run failed. If another broker has fenced the log, unload the topic."""
        if isinstance(error, LogFenced) and not self.fenced:
            self.fence()
            self.on_fenced()

    # ---- consuming ----

    async def subscribe(self, request: SubscribeRequest) -> Consumer:
        """Raises BrokerError ConsumerBusy, SubscriptionNotFound, NotAllowedError,
        ConsumerAssignError, ServiceNotReady.
        """
        known = self.subscriptions.get(request.subscription)
        self.check_subscribe(request, self.consumer_count, known is not None)
        # Don't leave a half created or deleted cursor, even if the client is gone.
        with trio.CancelScope(shield=True):
            async with self._creating:
                subscription = await self._subscription_for(request)
        await evict_dead_consumer(subscription, request)
        self.check_open()
        try:
            return subscription.add(request)
        except BrokerError:
            self.subscription_emptied(subscription)
            raise

    async def _subscription_for(self, request: SubscribeRequest) -> Subscription:
        subscription = self.subscriptions.get(request.subscription)
        if subscription is None:
            subscription = await self._make_for(request)
        if subscription.cursor.durable != request.durable:
            kind = "Durable" if subscription.cursor.durable else "Non-durable"
            text = f"{kind} subscription with the same name already exists."
            raise BrokerError(ServerError.NotAllowedError, text)
        if request.replicate_state and request.durable and not subscription.replicated:
            await set_replicated(subscription, True)
        return subscription

    async def _make_for(self, request: SubscribeRequest) -> Subscription:
        latest = request.initial_position == InitialPosition.Latest
        initial = LATEST if latest else EARLIEST
        properties = dict(request.subscription_properties)
        if request.durable:
            cursor = await self._open_cursor(request.subscription, initial, properties)
        else:
            start = initial if request.start is None else request.start
            await _forget_reader(self.log, request.subscription)
            cursor = self.log.open_reader(request.subscription, start)
        if request.rollback_duration_s > 0:
            since_ms = self.environment.now_ms() - request.rollback_duration_s * 1000
            await cursor.seek(await self.log.find_by_time(since_ms))
        return self.adopt(cursor)

    async def _open_cursor(
        self, name: str, initial: Position, properties: Mapping[str, str]
    ) -> Cursor:
        self.check_subscription_name(name)
        self.check_subscriptions_limit(self._durable)
        try:
            return await self.log.open_cursor(name, initial=initial, cursor_properties=properties)
        except LogError as error:
            self.check_open()
            raise BrokerError(ServerError.PersistenceError, str(error)) from error

    def adopt(self, cursor: Cursor) -> Subscription:
        """The cursor's subscription, created if needed."""
        name = cursor.name
        if name not in self.subscriptions:
            kind = CompactionSubscription if name == COMPACTION else Subscription
            self.subscriptions[name] = kind(name, cursor, self)
            self._durable += cursor.durable
        return self.subscriptions[name]

    def subscription_emptied(self, subscription: Subscription) -> None:
        """The last consumer left, which ends a non-durable subscription."""
        self.idle_since_s = trio.current_time()
        name = subscription.name
        if subscription.cursor.durable or subscription.consumers:
            return
        if self.subscriptions.get(name) is subscription:
            del self.subscriptions[name]
            subscription.fence()
            if self.state is not TopicState.CLOSED:
                self.environment.nursery.start_soon(run_guarded, self._delete_cursor, name)

    async def _delete_cursor(self, name: str) -> None:
        async with self._creating:
            if name not in self.subscriptions:
                await _forget_reader(self.log, name)

    async def drop_subscription(self, subscription: Subscription) -> None:
        """Delete the subscription and its cursor; closes consumers. On a failure it stays."""
        name = subscription.name
        subscription.fence()
        # Shielded: no client may find a half deleted cursor.
        with trio.CancelScope(shield=True):
            async with self._creating, self.compaction.paused(name):
                if self.subscriptions.get(name) is not subscription:
                    return
                try:
                    await self.log.delete_cursor(name)
                except CursorNotFound:
                    pass
                except LogError as error:
                    subscription.reopen()
                    self.check_open()
                    raise BrokerError(ServerError.PersistenceError, str(error)) from error
                del self.subscriptions[name]
                self._durable -= subscription.cursor.durable
                await self.compaction.cursor_deleted(name)

    # ---- administration ----

    async def create_subscription(
        self,
        name: str,
        start: Position,
        properties: Mapping[str, str] | None = None,
        *,
        replicated: bool = False,
    ) -> None:
        """Durable; it starts at `start` (EARLIEST, LATEST or inclusive). Raises BrokerError
        ConsumerBusy if it exists.
        """
        self.check_open()
        async with self._creating:
            self.check_no_subscription(name)
            initial = start
            if start not in (EARLIEST, LATEST):
                initial = self.log.previous_position(start)
            made = self.adopt(await self._open_cursor(name, initial, properties or {}))
            if replicated:
                await set_replicated(made, True)

    async def delete_subscription(self, name: str, *, force: bool = False) -> None:
        """Raises BrokerError SubscriptionNotFound, and ConsumerBusy with consumers connected."""
        subscription = self.subscription(name)
        if subscription.consumers and not force:
            text = "Subscription has active connected consumers"
            raise BrokerError(ServerError.ConsumerBusy, text)
        await self.drop_subscription(subscription)

    async def skip(self, name: str, entries: int | None) -> None:
        """Acknowledge the subscription's next `entries` entries, None: all."""
        await self.subscription(name).skip(entries)

    async def reset(self, name: str, position: Position, ack_set: AckSet = ()) -> None:
        """Move the subscription to the position, in a batch to what `ack_set` leaves of it;
        consumers are closed and reconnect.
        """
        await self.subscription(name).seek(position, ack_set)

    async def reset_to_time(self, name: str, timestamp_ms: int) -> None:
        """Move the subscription to the first message published at that time or later."""
        await self.subscription(name).seek_time(timestamp_ms)

    async def expire(self, name: str, older_than_s: int) -> None:
        """Acknowledge all older messages."""
        subscription = self.subscription(name)
        before_ms = self.environment.now_ms() - older_than_s * 1000
        subscription.expire(self.log.previous_position(await self.log.find_by_time(before_ms)))

    async def terminate(self) -> Position:
        """Take no more messages (BR-09); returns the last position."""
        try:
            last = await self.log.terminate()
        except LogError as error:
            raise BrokerError(ServerError.PersistenceError, str(error)) from error
        self.enter(TopicEvent.TERMINATE)
        self._registry.disconnect_all()
        for subscription in self.subscriptions.values():
            subscription.tell_end_if_reached()
        return last

    async def truncate(self) -> None:
        """Move every subscription to the end and trim the log, ignoring retention."""
        for subscription in list(self.subscriptions.values()):
            await subscription.skip(None)
        await self.compaction.clear()
        if self.deduplication is not None:
            self.deduplication.snapshot()
        await self.log.truncate()

    async def delete(self, *, force: bool = False) -> None:
        """Delete with all subscriptions. Unless forced, raises BrokerError ProducerBusy or
        ConsumerBusy while clients are connected; forced, they are closed before.
        """
        if not force and not self.idle:
            producers, consumers = len(self.producers), self.consumer_count
            text = f"Topic has {producers + consumers} connected producers/consumers"
            busy = ServerError.ProducerBusy if producers else ServerError.ConsumerBusy
            raise BrokerError(busy, text)
        self.enter(TopicEvent.CLOSE)  # first, as the log deletes the cursors of readers
        self.fence()
        await self.compaction.stop()
        try:
            await self.log.delete()
        except LogError as error:
            raise BrokerError(ServerError.PersistenceError, str(error)) from error

    async def close(self, *, close_clients: bool = True) -> None:
        """Unload: fence, close producers and consumers (CLOSE_*), close the log. Idempotent.

        Use `close_clients=False` if the connections end anyway.
        """
        self.enter(TopicEvent.FENCE)
        if close_clients:
            self.fence()
        if self.state is not TopicState.CLOSED:
            self.enter(TopicEvent.CLOSE)
            if self.deduplication is not None:
                self.deduplication.snapshot()
            await self.compaction.stop()
            await self.log.close()

    def fence(self) -> None:
        """Refuse all clients from now on, and close those that are connected. Idempotent."""
        self.enter(TopicEvent.FENCE)
        self._registry.disconnect_all()
        for subscription in list(self.subscriptions.values()):
            subscription.fence()

    # ---- state ----

    async def last_message(self, *, read_compacted: bool = False) -> LastMessage:
        """The last message that can be consumed; entry id -1 for an empty topic."""
        return await last_message(
            self.log, self.compaction, self.partition, read_compacted=read_compacted
        )

    def stats_steps(self) -> StatsSteps:
        """Statistics for `/stats`, with a step for each subscription and producer."""
        subscriptions = {}
        size = self.log.size_bytes
        ledgers = self.log.statistics().ledgers if self.log.cursors else ()
        for name, subscription in list(self.subscriptions.items()):
            stats = subscriptions[name] = subscription.stats()
            stats.backlog_size = backlog_bytes(ledgers, subscription.cursor.mark_delete)
            yield [consumer.consumer_id for consumer in subscription.consumers]
        found = self.base_stats(subscriptions, (yield from self.publishers()))
        found.compaction = self.compaction.outcome.stats
        found.storage_size = size
        found.deduplication_status = "Disabled" if self.deduplication is None else "Enabled"
        quotas = self.policies.quotas
        found.backlog_quota_limit_size = quotas.size.size_bytes
        found.backlog_quota_limit_time = quotas.age.age_s
        found.oldest_backlog_message_age_seconds = self.oldest_backlog_s
        marks = [cursor.mark_delete for cursor in self.log.cursors.values() if cursor.durable]
        if marks:
            # A first cursor may have come meanwhile.
            ledgers = ledgers or self.log.statistics().ledgers
            found.backlog_size = backlog_bytes(ledgers, min(marks))
        return found

    def internal_stats(self) -> InternalStats:
        """Statistics for `/internalStats`."""
        return internal_stats(self.log, self.entries_added, self.subscriptions)

    def __repr__(self) -> str:
        return f"<PersistentTopic {self.name}>"


async def _forget_reader(log: ManagedLedger, name: str) -> None:
    """Delete the non-durable cursor of an ended subscription."""
    known = log.cursors.get(name)
    if known is None or known.durable:
        return
    try:
        await log.delete_cursor(name)
    except LogError as error:
        _log.warning("log=%s: cursor %s can't be deleted: %s", log.name, name, error)
