"""Takes the snapshot that `reasons` explains, of a loaded subscription (spec OP-12)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import trio

from geminga_broker.diagnosis.finding import Finding
from geminga_broker.diagnosis.reasons import why
from geminga_broker.diagnosis.view import (
    ConsumerView,
    Draining,
    SubscriptionView,
    Throttle,
    TopicView,
    Whose,
)
from geminga_broker.log.state import LogState
from geminga_broker.log.topic_log import TopicLog
from geminga_broker.policies.backlog_quota_manager import size_exceeded
from geminga_broker.policies.quota import QuotaPolicy
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.pump import Machine
from geminga_broker.subscription.strategies.hash_ring import StickyRanges
from geminga_broker.subscription.strategies.key_shared import KeyShared
from geminga_broker.subscription.strategies.shared import Shared
from geminga_broker.subscription.subscription import Subscription
from geminga_broker.subscription.tracked import TrackedMachine
from geminga_broker.topic.api import SubType
from geminga_broker.topic.nonpersistent import NonPersistentSubscription, NonPersistentTopic
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_runtime.clock import wall_clock_ms

GAPS_MAX = 1000
"""Ranges of hashes without a consumer that are counted."""


def explain(topic: Topic, subscription: str) -> list[Finding]:
    """Why the subscription gets nothing. Raises BrokerError SubscriptionNotFound."""
    return why(view_of(topic, subscription))


def view_of(topic: Topic, name: str) -> SubscriptionView:
    """A snapshot, in time proportional to the consumers, their ranges and draining hashes. Raises
    BrokerError SubscriptionNotFound.
    """
    if isinstance(topic, NonPersistentTopic):
        return _passing(topic, topic.subscription(name))
    return _stored(topic, topic.subscription(name))


def _passing(
    topic: NonPersistentTopic, subscription: NonPersistentSubscription
) -> SubscriptionView:
    kind = SubType.Name(SubType.ValueType(subscription.sub_type))
    return SubscriptionView(
        topic=_topic_view(topic),
        name=subscription.name,
        kind=kind,
        consumers=_consumers(subscription.consumers, subscription.active),
        dropped=subscription.dropped.messages,
    )


def _stored(topic: PersistentTopic, subscription: Subscription) -> SubscriptionView:
    pump, machine = subscription.pump, subscription.machine
    consumers = subscription.consumers
    view = SubscriptionView(
        topic=_topic_view(topic),
        name=subscription.name,
        kind="None"
        if subscription.sub_type is None
        else SubType.Name(SubType.ValueType(subscription.sub_type)),
        consumers=_consumers(consumers, subscription.active),
        fenced=subscription.is_fenced,
        seeking=subscription.is_seeking,
        running=pump.running,
        reading_s=trio.current_time() - pump.round_began_s if pump.lock.locked() else 0.0,
        read_error=pump.read_error,
        backlog=subscription.backlog_entries(),
        has_more=pump.has_more,
        unacked=sum(each.unacked for each in consumers),
        paused_by_broker=pump.paused_by_broker(),
        throttles=_throttles(topic, subscription),
        read_compacted=any(each.request.read_compacted for each in consumers),
    )
    return view if machine is None else _with_machine(view, topic, machine)


def _with_machine(
    view: SubscriptionView, topic: PersistentTopic, machine: Machine
) -> SubscriptionView:
    """The view with what the machine holds and waits for."""
    state = machine.state
    view = replace(
        view,
        waiting=len(state.unsent),
        filters=tuple(type(each).__name__ for each in state.options.entry_filters),
        filtered=state.filtered.processed,
        rejected=state.filtered.rejected,
        rescheduled=state.filtered.rescheduled,
    )
    if not isinstance(machine, TrackedMachine):
        wait_s = machine.pauses_until_s - trio.current_time()
        return replace(view, failover_wait_s=max(0.0, wait_s))
    strategy, holdings = machine.strategy, machine.holdings
    delays, due_ms = holdings.delays, holdings.delays.next_due_ms
    is_blocked = holdings.blocked
    view = replace(
        view,
        waiting=view.waiting + strategy.waiting,
        unacked_max=state.options.unacked_per_subscription_max,
        over_limit=is_blocked and holdings.over_limit,
        delayed=len(delays),
        delayed_full=delays.full,
        due_in_s=None if not due_ms else (due_ms - topic.environment.now_ms()) / 1000,
    )
    if isinstance(strategy, Shared):
        return replace(view, chunks_full=strategy.full)
    return _with_keys(view, strategy)


def _with_keys(view: SubscriptionView, strategy: KeyShared[Consumer]) -> SubscriptionView:
    draining = [
        Draining(holder.name, len(found), sum(each.unack_msgs for each in found))
        for holder, found in strategy.draining.draining_hashes().items()
    ]
    unowned: tuple[tuple[int, int], ...] = ()
    if isinstance(strategy.selector, StickyRanges):
        unowned = tuple(strategy.selector.gaps(GAPS_MAX))
    return replace(
        view,
        draining=tuple(draining),
        look_ahead_full=strategy.delay_room <= 0,
        unowned_hashes=unowned,
    )


def _topic_view(topic: Topic) -> TopicView:
    view = TopicView(
        name=topic.name,
        persistent=topic.persistent,
        state=topic.state.value,
        moving=topic.moving is not None,
        producers=len(topic.producers),
    )
    if not isinstance(topic, PersistentTopic):
        return view
    size, age = topic.policies.quotas.size, topic.policies.quotas.age
    is_old = 0 < age.age_s < topic.oldest_backlog_s
    last = topic.log.last_position
    return replace(
        view,
        last_position=str(last) if last.entry_id >= 0 else "",
        producers_refused=(size.policy is not QuotaPolicy.EVICTION and size_exceeded(topic))
        or (age.policy is not QuotaPolicy.EVICTION and is_old),
        evictions=sum(topic.evictions.values()),
        no_ledger=isinstance(topic.log, TopicLog) and topic.log.context.state is LogState.NO_LEDGER,
    )


def _consumers(consumers: Iterable[Consumer], active: Consumer | None) -> tuple[ConsumerView, ...]:
    now_ms = wall_clock_ms()
    return tuple(
        ConsumerView(
            name=each.name,
            priority=each.priority,
            permits=each.permits,
            sent=each.sent,
            unacked=each.unacked,
            unacked_max=each.limit,
            blocked=each.blocked,
            writable=each.connection.writable,
            active=each is active,
            acked_ago_s=max(0, now_ms - each.last_acked_ms) / 1000,
        )
        for each in consumers
    )


def _throttles(topic: PersistentTopic, subscription: Subscription) -> tuple[Throttle, ...]:
    found: list[Throttle] = []
    for limit, is_shared, wait_s in subscription.pump.throttled(trio.current_time()):
        whose = Whose.SUBSCRIPTION
        if is_shared:
            whose = Whose.TOPIC if limit in topic.own_dispatch_limit else Whose.BROKER
        rate = limit.rate
        found.append(Throttle(whose, rate.messages, rate.bytes, max(1, rate.period_s), wait_s))
    return tuple(found)
