"""`geminga admin namespaces`: policies with one value."""

from __future__ import annotations

from collections.abc import Iterator

import click

from geminga._admin.families.namespace_policies import NamespacePolicies as P
from geminga.cli.admin.declare import EITHER, Command, Option, Values, flag, number, text
from geminga.cli.admin.table import policy_values as v
from geminga.cli.admin.table.policy_rows import Names, namespace_rows
from geminga.cli.admin.values import either

_COMPATIBILITY = (
    text("-c --compatibility", "strategy", "FULL, BACKWARD, FORWARD, ...", required=True),
)
_LIMITS = (
    ("max-producers-per-topic", "-p", "max_producers_per_topic", "producers of a topic"),
    ("max-consumers-per-topic", "-c", "max_consumers_per_topic", "consumers of a topic"),
    (
        "max-consumers-per-subscription", "-c", "max_consumers_per_subscription",
        "consumers of a subscription",
    ),
    (
        "max-subscriptions-per-topic", "-m", "max_subscriptions_per_topic",
        "subscriptions of a topic",
    ),
    ("max-topics-per-namespace", "-t", "max_topics_per_namespace", "topics"),
    (
        "max-unacked-messages-per-subscription", "-c", "max_unacked_messages_per_subscription",
        "unacknowledged messages of a subscription",
    ),
    (
        "max-unacked-messages-per-consumer", "-c", "max_unacked_messages_per_consumer",
        "unacknowledged messages of a consumer",
    ),
)  # fmt: skip
"""Name of the commands, short option, attribute, what is bounded."""


def _strategy(values: Values) -> object:
    if values["disabled"]:
        return "AutoUpdateDisabled"
    if values["strategy"] is None:
        raise click.UsageError("one of --compatibility and --disabled")
    return values["strategy"]


def _rows() -> Iterator[Command]:
    for name, short, attribute, about in _LIMITS:
        # pulsar-admin names this option so.
        long = name.replace("per-consumer", "per-topic") if "unacked" in name else name
        yield from namespace_rows(
            name,
            f"the largest number of {about}",
            getattr(P, attribute).where,
            (number(f"{short} --{long}", "count", "0: no bound.", required=True),),
            v.one("count"),
        )
    yield from namespace_rows(
        "message-ttl",
        "the time after which messages expire",
        P.message_ttl.where,
        (Option("-ttl --messageTTL -t --ttl", "time_s", "seconds", required=True, help=v.EXPIRY),),
        v.one("time_s"),
    )
    yield from namespace_rows(
        "subscription-expiration-time",
        "the time after which unused subscriptions go",
        P.subscription_expiration_time.where,
        (number("-t --time", "minutes", "Minutes; 0: never.", required=True),),
        v.one("minutes"),
    )
    yield from namespace_rows(
        "compaction-threshold",
        "the size after which topics are compacted",
        P.compaction_threshold.where,
        (Option("-t --threshold", "size_bytes", "size", required=True, help="10M; 0: never."),),
        v.one("size_bytes"),
    )
    yield from namespace_rows(
        Names("get-offload-deletion-lag", "set-offload-deletion-lag", "clear-offload-deletion-lag"),
        "how long offloaded ledgers stay in BookKeeper",
        P.offload_deletion_lag.where,
        (Option("-l --lag", "lag_ms", "milliseconds", required=True, help="4h"),),
        v.one("lag_ms"),
    )


def _switches() -> Iterator[Command]:
    """What is on or off, and names."""
    yield from namespace_rows(
        "deduplication", "whether messages are deduplicated", P.deduplication.where, EITHER, either
    )
    yield from namespace_rows(
        "deduplication-snapshot-interval",
        "the seconds between snapshots for deduplication",
        P.deduplication_snapshot_interval.where,
        (number("-i --interval", "seconds", "Seconds; 0: never.", required=True),),
        v.one("seconds"),
    )
    yield from namespace_rows(
        Names("get-anti-affinity-group", "set-anti-affinity-group", "delete-anti-affinity-group"),
        "the group of namespaces that are spread over brokers",
        P.anti_affinity_group.where,
        (text("-g --group", "group", "Name of the group.", required=True),),
        v.one("group"),
    )
    yield from namespace_rows(
        "resource-group",
        "the group with common bounds (kept and told, not enforced)",
        P.resource_group.where,
        (text("-rgn --resource-group-name", "group", "Name of the group.", required=True),),
        v.one("group"),
    )


def _settings() -> Iterator[Command]:
    """Those that can't be removed."""
    yield from namespace_rows(
        "encryption-required",
        "whether messages must be encrypted",
        P.encryption_required.where,
        EITHER,
        either,
        removable=False,
    )
    yield from namespace_rows(
        "subscription-auth-mode",
        "how subscriptions' names are checked",
        P.subscription_auth_mode.where,
        (text("-m --subscription-auth-mode", "mode", "None or Prefix.", required=True),),
        v.one("mode"),
        removable=False,
    )
    yield from namespace_rows(
        "schema-autoupdate-strategy",
        "which schemas producers may add (superseded)",
        P.schema_auto_update_compatibility_strategy.where,
        (
            text("-c --compatibility", "strategy", "Full, Backward, Forward, ..."),
            flag("-d --disabled", "disabled", "None."),
        ),
        _strategy,
        removable=False,
    )
    yield from namespace_rows(
        "schema-compatibility-strategy",
        "which schemas may be added",
        P.schema_compatibility_strategy.where,
        _COMPATIBILITY,
        v.one("strategy"),
        removable=False,
    )
    yield from namespace_rows(
        "is-allow-auto-update-schema",
        "whether producers add schemas",
        P.is_allow_auto_update_schema.where,
        EITHER,
        either,
        removable=False,
    )
    yield from namespace_rows(
        "schema-validation-enforce",
        "whether producers need a schema",
        P.schema_validation_enforced.where,
        EITHER,
        either,
        removable=False,
        applied=True,
    )


COMMANDS = (*_rows(), *_switches(), *_settings())
