"""`geminga admin topicPolicies`: policies with one value. Options have the names that pulsar-admin
has for topics, and those that it has for namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator

from geminga._admin.families.topic_policies import TopicPolicies as P
from geminga.cli.admin.declare import EITHER, Command, Option, number, text
from geminga.cli.admin.table import policy_values as v
from geminga.cli.admin.table.policy_rows import topic_rows
from geminga.cli.admin.values import either

_LIMITS = (
    ("max-producers", "-p --max-producers", "max_producers", "producers"),
    ("max-consumers", "-c --max-consumers", "max_consumers", "consumers"),
    (
        "max-consumers-per-subscription", "-c --max-consumers-per-subscription",
        "max_consumers_per_subscription", "consumers of a subscription",
    ),
    (
        "max-subscriptions-per-topic", "-s --max-subscriptions-per-topic -m", "max_subscriptions",
        "subscriptions",
    ),
    ("max-message-size", "-m --max-message-size", "max_message_size", "bytes of a message"),
    (
        "max-unacked-messages-per-consumer",
        "-m --maxNum -c --max-unacked-messages-per-topic", "max_unacked_messages_on_consumer",
        "unacknowledged messages of a consumer",
    ),
    (
        "max-unacked-messages-per-subscription",
        "-m --maxNum -c --max-unacked-messages-per-subscription",
        "max_unacked_messages_on_subscription", "unacknowledged messages of a subscription",
    ),
)  # fmt: skip
"""Name of the commands, options, attribute, what is bounded."""


def _rows() -> Iterator[Command]:
    for name, options, attribute, about in _LIMITS:
        yield from topic_rows(
            name,
            f"the largest number of {about}",
            getattr(P, attribute).where,
            (number(options, "count", "0: no bound.", required=True),),
            v.one("count"),
        )
    yield from topic_rows(
        "message-ttl",
        "the time after which messages expire",
        P.message_ttl.where,
        (Option("-t --ttl -ttl --messageTTL", "time_s", "seconds", required=True, help=v.EXPIRY),),
        v.one("time_s"),
    )
    yield from topic_rows(
        "compaction-threshold",
        "the size after which the topic is compacted",
        P.compaction_threshold.where,
        (Option("-t --threshold", "size_bytes", "size", required=True, help="10M; 0: never."),),
        v.one("size_bytes"),
    )
    yield from topic_rows(
        "deduplication", "whether messages are deduplicated", P.deduplication.where, EITHER, either
    )
    yield from topic_rows(
        "deduplication-snapshot-interval",
        "the seconds between snapshots for deduplication",
        P.deduplication_snapshot_interval.where,
        (number("-i --interval", "seconds", "Seconds; 0: never.", required=True),),
        v.one("seconds"),
    )
    yield from topic_rows(
        "schema-compatibility-strategy",
        "which schemas may be added",
        P.schema_compatibility_strategy.where,
        (
            text(
                "-s --strategy -c --compatibility",
                "strategy",
                "FULL, BACKWARD, FORWARD, ...",
                required=True,
            ),
        ),
        v.one("strategy"),
        is_global=False,
    )


COMMANDS = tuple(_rows())
