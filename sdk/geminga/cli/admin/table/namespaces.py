"""`geminga admin namespaces`: what namespaces have, who may use them, their bundles (Apache's
CmdNamespaces).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from geminga._admin.families.namespaces import Bundles, Namespaces
from geminga.cli.admin.declare import (
    FORCE,
    SUBSCRIPTION,
    Command,
    Option,
    Values,
    flag,
    listed,
    number,
    text,
)

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

NS = "namespace"
_BUNDLE = text("-b --bundle", "bundle", "One bundle, 0x00000000_0x40000000.")
_SUB = text("-s --sub", "subscription", "Name of the subscriptions.")
_ROLE = text("-r --role", "role", "The role.", required=True)
_KEY = text("-k --key", "key", "Name of the property.", required=True)
BUNDLES_MAX = 1 << 32


def _create(values: Values) -> Values:
    policies: dict[str, object] = {}
    bundles = values["bundles"]
    if bundles:
        assert isinstance(bundles, int)
        if not 0 < bundles <= BUNDLES_MAX:
            raise click.UsageError("--bundles must be between 1 and 2^32")
        policies["bundles"] = {"numBundles": bundles}
    if values["clusters"]:
        policies["replication_clusters"] = values["clusters"]
    return {"namespace": values["namespace"], "policies": policies}


def _unload(calls: Calls, values: Values) -> object:
    destination = values["destination_broker"]
    if values["bundle"] is None:
        if destination is not None:
            raise click.UsageError("--destinationBroker needs --bundle")
        return calls.call(Namespaces.unload, namespace=values["namespace"])
    return calls.call(Bundles.unload, **values)


def _split(calls: Calls, values: Values) -> object:
    kind = values.pop("kind")
    if (values["bundle"] is None) == (kind is None):
        raise click.UsageError("one of --bundle and --bundle-type")
    values["bundle"] = values["bundle"] or str(kind).upper()
    boundaries = values["boundaries"]
    if isinstance(boundaries, list):
        try:
            values["boundaries"] = [int(each) for each in boundaries]
        except ValueError:
            raise click.UsageError("--split-boundaries must be whole numbers") from None
    return calls.call(Bundles.split, **values)


def _clear_backlog(calls: Calls, values: Values) -> object:
    """As pulsar-admin, it asks unless it is forced."""
    if not values.pop("force"):
        click.confirm("Clear the backlog, so that no message of it is delivered?", abort=True)
    given = {name: value for name, value in values.items() if value is not None}
    if "subscription" in given:
        of_bundle, of_all = Bundles.clear_backlog_of, Namespaces.clear_backlog_of
        return calls.call(of_bundle if "bundle" in given else of_all, **given)
    return calls.call(
        Bundles.clear_backlog if "bundle" in given else Namespaces.clear_backlog, **given
    )


def _unsubscribe(calls: Calls, values: Values) -> object:
    if values["bundle"] is None:
        del values["bundle"]
        return calls.call(Namespaces.unsubscribe, **values)
    return calls.call(Bundles.unsubscribe, **values)


def _positions(values: Values) -> Values:
    topics = values.pop("topics")
    return {**values, "topics": ",".join(topics) if isinstance(topics, list) else None}


def _mode(values: Values) -> Values:
    mode = values["mode"]
    return {**values, "mode": "PERSISTENT" if mode is None else str(mode).upper()}


COMMANDS = (
    Command("list", "List the namespaces of a tenant.", Namespaces.list, "tenant"),
    Command(
        "topics", "List the topics of a namespace.", Namespaces.list_topics, NS,
        (
            text("-m --mode", "mode", "persistent, non_persistent or all."),
            flag("-ist --include-system-topic", "include_system_topic", "System topics, too."),
        ),
        make=_mode,
    ),
    Command("policies", "Show all that is set for a namespace.", Namespaces.get_policies, NS),
    Command(
        "create", "Create a namespace.", Namespaces.create, NS,
        (
            listed("-c --clusters", "clusters", "Clusters that have it."),
            number("-b --bundles", "bundles", "Number of bundles."),
        ),
        make=_create,
    ),
    Command("delete", "Delete a namespace.", Namespaces.delete, NS, (FORCE,)),
    Command("permissions", "Show what roles may do.", Namespaces.permissions, NS),
    Command(
        "grant-permission", "Allow a role to use the namespace.", Namespaces.grant_permission, NS,
        (
            text("--role", "role", "The role.", required=True),
            Option("--actions", "actions", "actions", required=True,
                   help="produce,consume,sources,sinks,functions,packages"),
        ),
    ),
    Command(
        "revoke-permission", "Take all permissions from a role.", Namespaces.revoke_permissions, NS,
        (text("--role", "role", "The role.", required=True),),
    ),
    Command("subscription-permission", "Show the roles that may use subscriptions.",
            Namespaces.subscription_permissions, NS),
    Command(
        "grant-subscription-permission", "Choose the roles that may use a subscription.",
        Namespaces.grant_subscription_permission, NS,
        (SUBSCRIPTION, listed("-rs --roles", "roles", "The roles.", required=True)),
    ),
    Command("revoke-subscription-permission", "Take a role from a subscription.",
            Namespaces.revoke_subscription_permission, NS, (SUBSCRIPTION, _ROLE)),
    Command("bundles", "List the bundles of a namespace.", Bundles.list, NS),
    Command(
        "unload", "Let other brokers take a namespace, or one bundle.", None, NS,
        (_BUNDLE, text("-d --destinationBroker", "destination_broker", "Broker that takes it.")),
        run=_unload,
    ),
    Command(
        "split-bundle", "Split a bundle.", None, NS,
        (
            _BUNDLE,
            text("-bt --bundle-type", "kind", "LARGEST or HOT instead of a bundle."),
            flag("-u --unload", "unload", "Unload the new bundles."),
            text("-san --split-algorithm-name", "algorithm", "range_equally_divide, "
                 "topic_count_equally_divide, specified_positions_divide or "
                 "flow_or_qps_equally_divide."),
            listed("-sb --split-boundaries", "boundaries", "Hashes to split at."),
        ),
        run=_split,
    ),
    Command(
        "get-topic-positions", "Show the hashes of a bundle's topics.",
        Bundles.topic_hash_positions, NS,
        (
            text("-b --bundle", "bundle", "The bundle.", required=True),
            listed("-tl --topic-list", "topics", "Topics; by default all."),
        ),
        make=_positions,
    ),
    Command(
        "clear-backlog", "Acknowledge all messages.", None, NS,
        (_SUB, _BUNDLE, flag("-force --force", "force", "Without a question.")),
        run=_clear_backlog,
    ),
    Command(
        "unsubscribe", "Delete a subscription of all topics.", None, NS,
        (text("-s --sub", "subscription", "Name of the subscriptions.", required=True), _BUNDLE),
        run=_unsubscribe,
    ),
    Command(
        "set-property", "Set a property.", Namespaces.set_property, NS,
        (_KEY, text("-v --value", "value", "Value of the property.", required=True)),
    ),
    Command("get-property", "Show a property.", Namespaces.get_property, NS, (_KEY,)),
    Command(
        "remove-property", "Remove a property.", Namespaces.remove_property, NS, (_KEY,), tells=True
    ),
    Command(
        "set-properties", "Add properties.", Namespaces.set_properties, NS,
        (Option("-p --properties", "properties", "pairs", required=True, help="a=b,c=d"),),
    ),
    Command("get-properties", "Show all properties.", Namespaces.get_properties, NS),
    Command("clear-properties", "Remove all properties.", Namespaces.clear_properties, NS),
    Command(
        "get-anti-affinity-namespaces", "List the namespaces of an anti-affinity group.",
        Namespaces.anti_affinity_namespaces, "",
        (
            text("-g --group", "group", "The group.", required=True),
            text("-c --cluster", "cluster", "The cluster.", required=True),
            text("-p --tenant", "tenant", "Whose namespaces: brokers of today want it."),
        ),
    ),
    Command(
        "update-migration-state", "Send the clients to another cluster.",
        Namespaces.update_migration, NS,
        (flag("--migrated", "migrated", "Whether the namespace was moved."),),
    ),
)  # fmt: skip
