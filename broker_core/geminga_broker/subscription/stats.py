"""Statistics of one subscription, as in `/stats`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from geminga_broker.log.api import Cursor
from geminga_broker.metrics.rates import Rates
from geminga_broker.subscription.consumer import Consumer
from geminga_broker.subscription.entry_filters import FilterCounts
from geminga_broker.subscription.machine import Figures, Machine
from geminga_broker.topic.api import SubType
from geminga_broker.topic.stats import ConsumerStats, SubscriptionStats


class CountedSubscription(Protocol):
    """What of a subscription is counted."""

    cursor: Cursor
    sub_type: int | None
    rates_gone: Rates
    mark_delete_advanced_ms: int
    replicated: bool

    @property
    def active(self) -> Consumer | None:
        """The active consumer of Exclusive and Failover."""

    @property
    def properties(self) -> Mapping[str, str]:
        """What was said at its making."""


def subscription_stats(
    subscription: CountedSubscription, machine: Machine[Consumer] | None
) -> SubscriptionStats:
    """Of the subscription and its consumers."""
    consumers = _consumer_stats(machine)
    backlog = subscription.cursor.backlog_entries()
    figures = machine.figures() if machine is not None else Figures()
    filtered = machine.state.filtered if machine is not None else FilterCounts()
    kind = subscription.sub_type
    return SubscriptionStats(
        filter_processed_msg_count=filtered.processed,
        filter_accepted_msg_count=filtered.accepted,
        filter_rejected_msg_count=filtered.rejected,
        filter_rescheduled_msg_count=filtered.rescheduled,
        msg_rate_out=sum(c.msg_rate_out for c in consumers),
        msg_throughput_out=sum(c.msg_throughput_out for c in consumers),
        bytes_out_counter=subscription.rates_gone.bytes
        + sum(c.bytes_out_counter for c in consumers),
        msg_out_counter=subscription.rates_gone.messages
        + sum(c.msg_out_counter for c in consumers),
        msg_rate_redeliver=sum(c.msg_rate_redeliver for c in consumers),
        message_ack_rate=sum(c.message_ack_rate for c in consumers),
        msg_backlog=backlog,
        msg_backlog_no_delayed=max(0, backlog - figures.delayed),
        msg_delayed=figures.delayed,
        delayed_message_index_size_in_bytes=figures.delayed_bytes,
        blocked_subscription_on_unacked_msgs=figures.blocked,
        unacked_messages=sum(c.unacked_messages for c in consumers),
        msg_in_replay=figures.replaying,
        type="None" if kind is None else SubType.Name(SubType.ValueType(kind)),
        active_consumer_name=subscription.active.name if subscription.active is not None else None,
        last_consumed_flow_timestamp=max(
            (c.last_consumed_flow_timestamp for c in consumers), default=0
        ),
        last_consumed_timestamp=max((c.last_consumed_timestamp for c in consumers), default=0),
        last_acked_timestamp=max((c.last_acked_timestamp for c in consumers), default=0),
        last_mark_delete_advanced_timestamp=subscription.mark_delete_advanced_ms,
        consumers=consumers,
        non_contiguous_deleted_messages_ranges=subscription.cursor.statistics().holes,
        is_durable=subscription.cursor.durable,
        is_replicated=subscription.replicated,
        durable=subscription.cursor.durable,
        replicated=subscription.replicated,
        allow_out_of_order_delivery=figures.out_of_order,
        draining_hashes_count=sum(c.draining_hashes_count for c in consumers),
        draining_hashes_cleared_total=sum(c.draining_hashes_cleared_total for c in consumers),
        draining_hashes_unacked_messages=sum(c.draining_hashes_unacked_messages for c in consumers),
        key_shared_mode=figures.key_shared_mode,
        subscription_properties=dict(subscription.properties),
    )


def _consumer_stats(machine: Machine[Consumer] | None) -> list[ConsumerStats]:
    """With what only the machine knows."""
    if machine is None:
        return []
    found = [(consumer, consumer.stats()) for consumer in machine.state.members]
    machine.describe(found)
    return [stats for _, stats in found]
