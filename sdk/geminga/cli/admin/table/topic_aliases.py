"""`geminga admin topics`: policies of topics under the names that they had before `topicPolicies`,
and those that have stayed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from geminga._admin.families.topic_policies import TopicPolicies as P
from geminga.cli.admin.declare import Command, Values, flag, listed
from geminga.cli.admin.table import policy_values as v
from geminga.cli.admin.table import topic_limits, topic_policies
from geminga.cli.admin.table.policy_rows import Names, topic_rows

_FORMER = {
    "get-backlog-quotas": "get-backlog-quota",
    "get-deduplication-enabled": "get-deduplication",
    "enable-deduplication": "set-deduplication",
    "disable-deduplication": "set-deduplication",
    "get-max-subscriptions": "get-max-subscriptions-per-topic",
    "set-max-subscriptions": "set-max-subscriptions-per-topic",
    "remove-max-subscriptions": "remove-max-subscriptions-per-topic",
    "get-maxProducers": "get-max-producers",
    "set-maxProducers": "set-max-producers",
    "remove-maxProducers": "remove-max-producers",
    **{
        f"{verb}-max-unacked-messages-on-{whom}": f"{verb}-max-unacked-messages-per-{whom}"
        for verb in ("get", "set", "remove")
        for whom in ("consumer", "subscription")
    },
}
"""Names that differ, and those of `topicPolicies`."""


def _aliases() -> Iterator[Command]:
    rows = {row.name: row for row in (*topic_policies.COMMANDS, *topic_limits.COMMANDS)}
    for name, row in rows.items():
        if name != "delete":
            yield replace(row, is_hidden=True)
    for name, now in _FORMER.items():
        yield replace(rows[now], name=name, is_hidden=True)


def _validation(values: Values) -> object:
    return bool(values["enable"])


def _own() -> Iterator[Command]:
    yield from topic_rows(
        "replication-clusters",
        "the clusters that have the topic",
        P.replication_clusters.where,
        v.CLUSTERS,
        v.one("clusters"),
        is_global=False,
    )
    yield from topic_rows(
        "shadow-topics",
        "the topics that read its messages",
        P.shadow_topics.where,
        (listed("-t --topics", "topics", "Names of topics.", required=True),),
        v.one("topics"),
        applied=False,
        is_global=False,
    )
    yield from topic_rows(
        Names("get-schema-validation-enforce", "set-schema-validation-enforce"),
        "whether producers need a schema",
        P.schema_validation_enforced.where,
        (flag("-e --enable", "enable", "They do."),),
        _validation,
        removable=False,
        is_global=False,
    )


COMMANDS = (*_own(), *_aliases())
