"""Statistics of one subscription, as in `/stats`."""

from __future__ import annotations

from typing import Protocol

from geminga_broker.log.api import Cursor
from geminga_broker.metrics.rates import Rates
from geminga_broker.subscription.pump import Machine
from geminga_broker.topic.api import SubType
from geminga_broker.topic.stats import SubscriptionStats


class CountedSubscription(Protocol):
    """What of a subscription is counted."""

    cursor: Cursor
    sub_type: int | None
    rates_gone: Rates
    mark_delete_advanced_ms: int
    replicated: bool


def subscription_stats(
    subscription: CountedSubscription, machine: Machine | None
) -> SubscriptionStats:
    """Of the subscription and its consumers."""
    consumers = [each.stats() for each in machine.state.members] if machine is not None else []
    cursor, gone, kind = subscription.cursor, subscription.rates_gone, subscription.sub_type
    stats = SubscriptionStats(
        bytes_out_counter=gone.bytes,
        msg_out_counter=gone.messages,
        msg_backlog=cursor.backlog_entries(),
        unacked_messages=sum(c.unacked_messages for c in consumers),
        type="None" if kind is None else SubType.Name(SubType.ValueType(kind)),
        last_consumed_flow_timestamp=max(
            (c.last_consumed_flow_timestamp for c in consumers), default=0
        ),
        last_consumed_timestamp=max((c.last_consumed_timestamp for c in consumers), default=0),
        last_acked_timestamp=max((c.last_acked_timestamp for c in consumers), default=0),
        last_mark_delete_advanced_timestamp=subscription.mark_delete_advanced_ms,
        consumers=consumers,
        non_contiguous_deleted_messages_ranges=cursor.statistics().holes,
        is_durable=cursor.durable,
        is_replicated=subscription.replicated,
        durable=cursor.durable,
        replicated=subscription.replicated,
        subscription_properties=dict(cursor.cursor_properties),
    )
    stats.add(consumers)
    if machine is not None:
        filtered = machine.state.filtered
        stats.filter_processed_msg_count = filtered.processed
        stats.filter_accepted_msg_count = filtered.accepted
        stats.filter_rejected_msg_count = filtered.rejected
        stats.filter_rescheduled_msg_count = filtered.rescheduled
        machine.describe(stats)
    stats.msg_backlog_no_delayed = max(0, stats.msg_backlog - stats.msg_delayed)
    return stats
