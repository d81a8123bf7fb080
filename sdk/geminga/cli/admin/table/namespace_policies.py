"""`geminga admin namespaces`: policies with several values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from geminga._admin.families.namespace_policies import NamespacePolicies as P
from geminga.cli.admin.declare import EITHER, Command, Option, Values, flag, number, text
from geminga.cli.admin.table import policy_values as v
from geminga.cli.admin.table.policy_rows import Names, namespace_rows
from geminga.cli.admin.values import either

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

NS = "namespace"
_PAUSE = "dispatcher-pause-on-ack-state-persistent"


def _topic_creation(values: Values) -> object:
    made: dict[str, object] = {"allowAutoTopicCreation": either(values)}
    if made["allowAutoTopicCreation"]:
        made["topicType"] = values["kind"]
        if values["partitions"] is not None:
            made["defaultNumPartitions"] = values["partitions"]
        elif values["kind"] == "partitioned":
            raise click.UsageError("--type partitioned needs --num-partitions")
    return made


def _subscription_creation(values: Values) -> object:
    return {"allowAutoSubscriptionCreation": bool(values["enable"])}


def _affinity(values: Values) -> object:
    groups = {
        "bookkeeperAffinityGroupPrimary": values["primary"],
        "bookkeeperAffinityGroupSecondary": values["secondary"],
    }
    return {name: value for name, value in groups.items() if value is not None}


def _set_offload_threshold(calls: Calls, values: Values) -> object:
    base = {"namespace": values["namespace"]}
    size_bytes, time_s = values["size_bytes"], values["time_s"]
    if size_bytes is None and time_s is None:
        raise click.UsageError("--size or --time is needed")
    for where, value in (
        (P.offload_threshold.where, size_bytes),
        (P.offload_threshold_in_seconds.where, time_s),
    ):
        if value is not None:
            calls.ask(where.setting(_base(base), value))
    return None


def _base(values: Values) -> str:
    from geminga._admin.policies import namespace_base

    return namespace_base(str(values["namespace"]))


def _get_offload_threshold(calls: Calls, values: Values) -> object:
    from geminga.cli.admin.calls import answered

    base = _base(values)
    size_bytes = answered(calls.ask(P.offload_threshold.where.reading(base)))
    time_s = answered(calls.ask(P.offload_threshold_in_seconds.where.reading(base)))
    return {"offloadThresholdInBytes": size_bytes, "offloadThresholdInSeconds": time_s}


def _quota(values: Values) -> Values:
    quota = v.backlog(values)
    return {**values, "quota": quota}


def _rows() -> Iterator[Command]:
    yield from namespace_rows(
        "retention",
        "how long acknowledged messages are kept",
        P.retention.where,
        v.RETENTION,
        v.retention,
    )
    yield from namespace_rows(
        "persistence", "the copies of entries", P.persistence.where, v.STORAGE, v.storage
    )
    yield from namespace_rows(
        "dispatch-rate", "the bound on messages to consumers", P.dispatch_rate.where, v.RATE, v.rate
    )
    yield from namespace_rows(
        "subscription-dispatch-rate",
        "the same for each subscription",
        P.subscription_dispatch_rate.where,
        v.RATE,
        v.rate,
    )
    yield from namespace_rows(
        "replicator-dispatch-rate",
        "the same for replicators",
        P.replicator_dispatch_rate.where,
        v.RATE[:3],
        v.rate,
    )
    yield from namespace_rows(
        "publish-rate",
        "the bound on messages of producers",
        P.publish_rate.where,
        v.PUBLISH_RATE,
        v.publish_rate,
    )
    yield from namespace_rows(
        "subscribe-rate",
        "how often consumers may subscribe",
        P.subscribe_rate.where,
        v.SUBSCRIBE_RATE,
        v.subscribe_rate,
    )


def _more() -> Iterator[Command]:
    """About the life of topics."""
    yield from namespace_rows(
        "delayed-delivery",
        "whether messages can be delivered later",
        P.delayed_delivery.where,
        v.DELAYED,
        v.delayed,
    )
    yield from namespace_rows(
        "inactive-topic-policies",
        "when unused topics are deleted",
        P.inactive_topic_policies.where,
        v.INACTIVE,
        v.inactive,
    )
    yield from namespace_rows(
        "auto-topic-creation",
        "whether clients create topics",
        P.auto_topic_creation.where,
        (
            *EITHER,
            Option(
                "-t --type",
                "kind",
                default="non-partitioned",
                help="partitioned or non-partitioned.",
            ),
            number("-n --num-partitions", "partitions", "Partitions of a new topic."),
        ),
        _topic_creation,
    )
    yield from namespace_rows(
        "auto-subscription-creation",
        "whether consumers create subscriptions",
        P.auto_subscription_creation.where,
        (flag("-e --enable", "enable", "They do."),),
        _subscription_creation,
    )


def _places() -> Iterator[Command]:
    """Where ledgers and topics are."""
    yield from namespace_rows(
        Names(
            "get-bookie-affinity-group", "set-bookie-affinity-group", "delete-bookie-affinity-group"
        ),
        "the bookies that ledgers are put on",
        P.bookie_affinity_group.where,
        (
            text("-pg --primary-group", "primary", "Groups between commas.", required=True),
            text("-sg --secondary-group", "secondary", "Groups for more bookies."),
        ),
        _affinity,
    )
    yield from namespace_rows(
        "offload-policies",
        "when old ledgers are moved away",
        P.offload_policies.where,
        v.OFFLOAD,
        v.offload,
    )
    yield from namespace_rows(
        "entry-filters",
        "filters of what consumers get",
        P.entry_filters.where,
        v.FILTERS,
        v.one("names", "entryFilterNames"),
    )
    yield from namespace_rows(
        "subscription-types-enabled",
        "the types of subscriptions",
        P.subscription_types_enabled.where,
        v.TYPES,
        v.one("types"),
    )
    yield from namespace_rows(
        Names("get-clusters", "set-clusters"),
        "the clusters that have the namespace",
        P.replication_clusters.where,
        v.CLUSTERS,
        v.one("clusters"),
        removable=False,
    )
    yield from namespace_rows(
        Names("get-allowed-clusters", "set-allowed-clusters"),
        "the clusters that topics may be in",
        P.allowed_clusters.where,
        v.CLUSTERS,
        v.one("clusters"),
        removable=False,
    )


COMMANDS = (
    *_rows(),
    *_more(),
    *_places(),
    Command("get-backlog-quotas", "Show the bounds of backlogs.", P.get_backlog_quotas, NS),
    Command("set-backlog-quota", "Set a bound of backlogs.", P.set_backlog_quota, NS, v.BACKLOG,
            make=_quota),
    Command("remove-backlog-quota", "Remove a bound of backlogs.", P.remove_backlog_quota, NS,
            (v.QUOTA_TYPE,)),
    Command("get-offload-threshold", "Show when topics are offloaded.", None, NS,
            run=_get_offload_threshold, is_read=True),
    Command(
        "set-offload-threshold", "Set when topics are offloaded.", None, NS,
        (
            Option("-s --size", "size_bytes", "size", help="Above this; -1: never."),
            Option("-t --time", "time_s", "seconds", help="What is older; -1: never."),
        ),
        run=_set_offload_threshold,
    ),
    Command(f"get-{_PAUSE}", "Show whether subscriptions wait for their acknowledgements.",
            P.get_dispatcher_pause_on_ack_state_persistent, NS),
    Command(f"set-{_PAUSE}", "Let subscriptions wait for their acknowledgements.",
            P.set_dispatcher_pause_on_ack_state_persistent, NS),
    Command(f"remove-{_PAUSE}", "Let the broker's own setting hold.",
            P.remove_dispatcher_pause_on_ack_state_persistent, NS),
)  # fmt: skip
