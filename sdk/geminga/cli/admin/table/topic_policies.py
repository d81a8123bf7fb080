"""`geminga admin topicPolicies`: policies with several values (Apache's CmdTopicPolicies)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from geminga._admin.families.topic_policies import TopicPolicies as P
from geminga.cli.admin.declare import Command, Option, Values, flag, text
from geminga.cli.admin.table import policy_values as v
from geminga.cli.admin.table.policy_rows import APPLIED, GLOBAL, Names, topic_rows

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

T = "topic"
_PAUSE = "dispatcher-pause-on-ack-state-persistent"
_SUBSCRIPTION = text("-s --subscription", "subscription", "Of one subscription.")
_OFFLOAD_NAMES = {
    "threshold_bytes": "-t --offloadThresholdInBytes",
    "threshold_s": "-ts --offloadThresholdInSeconds",
    "deletion_lag_ms": "-dl --offloadDeletionLagInMillis",
    "block_bytes": "-m --maxBlockSizeInBytes",
    "buffer_bytes": "-rb --readBufferSizeInBytes",
}
"""Options of topics whose names differ from those of namespaces."""
_OFFLOAD = tuple(
    Option(_OFFLOAD_NAMES.get(option.to, option.names), option.to,
           "int" if option.to == "deletion_lag_ms" else option.kind, option.required,
           help="Milliseconds." if option.to == "deletion_lag_ms" else option.help)
    for option in v.OFFLOAD
)  # fmt: skip


def _quota(values: Values) -> Values:
    quota = v.backlog(values)
    return {**values, "quota": quota}


def _get_rate(calls: Calls, values: Values) -> object:
    return _of_subscription(calls, values, "reading")


def _set_rate(calls: Calls, values: Values) -> object:
    rate = v.rate(values)
    for name in ("messages", "bytes_", "period_s", "relative"):
        del values[name]
    return _of_subscription(calls, values, "setting", rate)


def _remove_rate(calls: Calls, values: Values) -> object:
    return _of_subscription(calls, values, "removing")


def _of_subscription(calls: Calls, values: Values, how: str, rate: object = None) -> object:
    """The bound of all subscriptions, or that of one."""
    from geminga._admin.policies import topic_base
    from geminga.cli.admin.calls import answered

    subscription = values.pop("subscription")
    if subscription is not None:
        operations: dict[str, Callable[..., object]] = {
            "reading": P.get_dispatch_rate_of,
            "setting": P.set_dispatch_rate_of,
            "removing": P.remove_dispatch_rate_of,
        }
        given = {**values, "subscription": subscription}
        return calls.call(operations[how], **given, **({"rate": rate} if how == "setting" else {}))
    where, base = P.subscription_dispatch_rate.where, topic_base(str(values["topic"]))
    query = [("isGlobal", "true")] if values["is_global"] else []
    query += [("applied", "true")] if values.get("applied") else []
    if how == "setting":
        return answered(calls.ask(where.setting(base, rate, query)))
    made = where.reading if how == "reading" else where.removing
    return answered(calls.ask(made(base, query)))


def _rows() -> Iterator[Command]:
    yield from topic_rows(
        "retention",
        "how long acknowledged messages are kept",
        P.retention.where,
        v.RETENTION,
        v.retention,
    )
    yield from topic_rows(
        "persistence", "the copies of entries", P.persistence.where, v.STORAGE, v.storage
    )
    yield from topic_rows(
        "dispatch-rate", "the bound on messages to consumers", P.dispatch_rate.where, v.RATE, v.rate
    )
    yield from topic_rows(
        "replicator-dispatch-rate",
        "the same for replicators",
        P.replicator_dispatch_rate.where,
        v.RATE,
        v.rate,
    )
    yield from topic_rows(
        "publish-rate",
        "the bound on messages of producers",
        P.publish_rate.where,
        v.PUBLISH_RATE,
        v.publish_rate,
    )
    yield from topic_rows(
        "subscribe-rate",
        "how often consumers may subscribe",
        P.subscribe_rate.where,
        v.SUBSCRIBE_RATE,
        v.subscribe_rate,
    )


def _more() -> Iterator[Command]:
    """About the topic itself, and where ledgers are."""
    yield from topic_rows(
        "delayed-delivery",
        "whether messages can be delivered later",
        P.delayed_delivery.where,
        v.DELAYED,
        v.delayed,
    )
    yield from topic_rows(
        "inactive-topic-policies",
        "when the unused topic is deleted",
        P.inactive_topic_policies.where,
        v.INACTIVE,
        v.inactive,
    )
    yield from topic_rows(
        "offload-policies",
        "when old ledgers are moved away",
        P.offload_policies.where,
        _OFFLOAD,
        v.offload,
    )
    yield from topic_rows(
        Names(
            "get-entry-filters-per-topic",
            "set-entry-filters-per-topic",
            "remove-entry-filters-per-topic",
        ),
        "filters of what consumers get",
        P.entry_filters.where,
        v.FILTERS,
        v.one("names", "entryFilterNames"),
    )
    yield from topic_rows(
        "subscription-types-enabled",
        "the types of subscriptions",
        P.subscription_types_enabled.where,
        v.TYPES,
        v.one("types"),
    )
    yield from topic_rows(
        "auto-subscription-creation",
        "whether consumers create subscriptions",
        P.auto_subscription_creation.where,
        (flag("-e --enable", "enable", "They do."),),
        lambda values: {"allowAutoSubscriptionCreation": bool(values["enable"])},
    )


COMMANDS = (
    *_rows(),
    *_more(),
    Command("get-subscription-dispatch-rate", "Show the bound of subscriptions.", None, T,
            (_SUBSCRIPTION, APPLIED, GLOBAL), run=_get_rate, is_read=True),
    Command("set-subscription-dispatch-rate", "Set the bound of subscriptions.", None, T,
            (_SUBSCRIPTION, *v.RATE, GLOBAL), run=_set_rate),
    Command("remove-subscription-dispatch-rate", "Remove the bound of subscriptions.", None, T,
            (_SUBSCRIPTION, GLOBAL), run=_remove_rate),
    Command("get-backlog-quota", "Show the bounds of backlogs.", P.get_backlog_quotas, T,
            (APPLIED, GLOBAL)),
    Command("set-backlog-quota", "Set a bound of backlogs.", P.set_backlog_quota, T,
            (*v.BACKLOG, GLOBAL), make=_quota),
    Command("remove-backlog-quota", "Remove a bound of backlogs.", P.remove_backlog_quota, T,
            (v.QUOTA_TYPE, GLOBAL)),
    Command(f"get-{_PAUSE}", "Show whether subscriptions wait for their acknowledgements.",
            P.get_dispatcher_pause_on_ack_state_persistent, T, (APPLIED, GLOBAL)),
    Command(f"set-{_PAUSE}", "Let subscriptions wait for their acknowledgements.",
            P.set_dispatcher_pause_on_ack_state_persistent, T, (GLOBAL,)),
    Command(f"remove-{_PAUSE}", "Let the namespace's setting hold.",
            P.remove_dispatcher_pause_on_ack_state_persistent, T, (GLOBAL,)),
    Command("delete", "Remove all policies of a topic.", P.delete_all, T),
)  # fmt: skip
