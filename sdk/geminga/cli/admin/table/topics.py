"""`geminga admin topics`: what there is, and what topics measure (Apache's CmdTopics)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from geminga._admin.families.topics import Lookups, Stats, Topics
from geminga._admin.requests import topic_parts
from geminga.cli.admin.declare import FORCE, Command, Option, Values, flag, number, pairs, text
from geminga.cli.admin.values import place

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

T = "topic"
SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"
POLL_S = 1.0
_DOMAINS = ("persistent", "non-persistent")
_PARTITIONS = number("-p --partitions", "partitions", "Number of partitions.", required=True)
_METADATA = Option("-m --metadata", "properties", "pairs", help="Properties: a=b,c=d")
_NO_PARTITIONS = Option("-p --partitions", "partitions", hidden=True)
_SYSTEM = flag("-ist --include-system-topic", "include_system_topic", "System topics, too.")
_DELETE_SCHEMA = Option("-d --deleteSchema", "delete_schema", "flag", default=False, hidden=True)
_STATS = (
    flag("-gpb --get-precise-backlog", "get_precise_backlog", "Count messages, not entries."),
    flag("-sbs --get-subscription-backlog-size", "subscription_backlog_size",
         "Bytes of each backlog; =false leaves them out.", default=True),
    flag("-etb --get-earliest-time-in-backlog", "get_earliest_time_in_backlog",
         "When the earliest message was published."),
)  # fmt: skip


def _one(values: Values) -> Values:
    if values.pop("partitions") is not None:
        raise click.UsageError("create makes one topic: use create-partitioned-topic")
    return values


def full_name(topic: object) -> str:
    """The topic's whole name."""
    domain, namespace, local = topic_parts(topic)
    return f"{domain}://{namespace}/{local}"


def _names(answer: object) -> list[str]:
    return [str(each) for each in answer] if isinstance(answer, list) else []


def _list(calls: Calls, values: Values) -> object:
    """Of both domains unless one is named."""
    domain = values.pop("domain")
    domains = _DOMAINS if domain is None else (str(domain).replace("_", "-"),)
    given = {name: value for name, value in values.items() if value is not None}
    return [
        name for each in domains for name in _names(calls.call(Topics.list, domain=each, **given))
    ]


def _list_partitioned(calls: Calls, values: Values) -> object:
    return [
        name
        for domain in _DOMAINS
        for name in _names(calls.call(Topics.list_partitioned, domain=domain, **values))
    ]


def _delete(calls: Calls, values: Values) -> object:
    """One topic, those of a file, or those that a regular expression matches whole. Of several, all
    are tried; the first error is raised at the end.
    """
    topic, force = str(values["topic"]), bool(values["force"])
    if values["from_file"] and values["regex"]:
        raise click.UsageError("--from-file and --regex exclude each other")
    if values["from_file"]:
        try:
            with open(topic, encoding="utf-8") as file:
                topics = [line.strip() for line in file if line.strip()]
        except OSError as error:
            raise click.UsageError(f"{topic} can't be read: {error.strerror}") from None
    elif values["regex"]:
        domain, namespace, _ = topic_parts(topic)
        pattern = re.compile(full_name(topic))
        found = _names(calls.call(Topics.list, namespace=namespace, domain=domain))
        topics = [name for name in found if pattern.fullmatch(name)]
    else:
        return calls.call(Topics.delete, topic=topic, force=force)
    _delete_all(calls, topics, force)
    return None


def _delete_all(calls: Calls, topics: list[str], force: bool) -> None:
    from geminga.errors import GemingaError

    failure: GemingaError | None = None
    for topic in topics:
        try:
            calls.call(Topics.delete, topic=topic, force=force)
        except GemingaError as error:
            click.echo(f"{topic}: {error}", err=True)
            failure = failure or error
        else:
            click.echo(topic)
    if failure is not None:
        raise failure


def _delete_partitioned(values: Values) -> Values:
    del values["delete_schema"]
    return values


def _lookup(calls: Calls, values: Values) -> object:
    return _broker(calls.call(Lookups.broker, topic=values["topic"]))


def _broker(found: object) -> object:
    return found.get("brokerUrl") if isinstance(found, dict) else found


def _partitioned_lookup(calls: Calls, values: Values) -> object:
    topic = values["topic"]
    metadata = calls.call(Topics.get_partitions, topic=topic)
    count = metadata.get("partitions", 0) if isinstance(metadata, dict) else 0
    if not count:
        raise click.ClickException(f"{full_name(topic)} is not a partitioned topic")
    found: dict[str, str] = {}
    for number_ in range(count):
        name = f"{full_name(topic)}-partition-{number_}"
        found[name] = str(_broker(calls.call(Lookups.broker, topic=name)))
    if not values["sort"]:
        return found
    by_broker: dict[str, list[str]] = {}
    for name, broker in found.items():
        by_broker.setdefault(broker, []).append(name)
    return by_broker


def _position(answer: object) -> str:
    if not isinstance(answer, dict):
        return str(answer)
    return f"{answer.get('ledgerId')}:{answer.get('entryId')}:{answer.get('partitionIndex', -1)}"


def _terminate(calls: Calls, values: Values) -> object:
    ended = calls.call(Topics.terminate, topic=values["topic"])
    return f"Topic successfully terminated at {_position(ended)}"


def _terminate_partitions(calls: Calls, values: Values) -> object:
    topic = values["topic"]
    ended = calls.call(Topics.terminate_partitioned, topic=topic)
    return [
        f"Topic {full_name(topic)}-partition-{number_} successfully terminated at {_position(at)}"
        for number_, at in (ended.items() if isinstance(ended, dict) else ())
    ]


def _compaction_status(calls: Calls, values: Values) -> object:
    return _status(calls, values, Topics.compaction_status, "Compaction", "compacting")


def _offload_status(calls: Calls, values: Values) -> object:
    return _status(calls, values, Topics.offload_status, "Offload", "offloading")


def _status(
    calls: Calls, values: Values, operation: Callable[..., object], what: str, doing: str
) -> object:
    """How it goes; with --wait-complete, how it ended."""
    topic = values["topic"]
    while True:
        status = calls.call(operation, topic=topic)
        told = status if isinstance(status, dict) else {}
        state = told.get("status")
        if state != "RUNNING" or not values["wait"]:
            break
        time.sleep(POLL_S)
    if state == "ERROR":
        raise click.ClickException(f"Error {doing}: {told.get('lastError')}")
    return {
        "NOT_RUN": f"{what} has not been run for {full_name(topic)} since broker startup",
        "RUNNING": f"{what} is currently running",
        "SUCCESS": f"{what} was a success",
    }.get(str(state), str(state))


def _offload(calls: Calls, values: Values) -> object:
    """Everything before the oldest ledger that fits into the bytes that stay (TopicsImpl)."""
    topic, keep_bytes = values["topic"], values["size_bytes"]
    assert isinstance(keep_bytes, int)
    stats = calls.call(Stats.get_internal, topic=topic)
    assert isinstance(stats, dict), "statistics are an object"
    ledgers = [(each["ledgerId"], each.get("size", 0)) for each in stats.get("ledgers", [])]
    if not ledgers:
        raise click.ClickException(f"{full_name(topic)} has no data")
    # The open ledger's size stands elsewhere.
    ledgers[-1] = (ledgers[-1][0], stats.get("currentLedgerSize", 0))
    first, size_bytes = ledgers[-1][0], 0
    for ledger_id, ledger_bytes in reversed(ledgers):
        size_bytes += ledger_bytes
        if size_bytes > keep_bytes:
            break
        first = ledger_id
    else:
        # No failure, as at pulsar-admin: a script may offload what there is, again and again.
        return "Nothing to offload"
    before = {"ledgerId": first, "entryId": 0, "partitionIndex": -1}
    calls.call(Topics.offload, topic=topic, position=before)
    return f"Offload triggered for {full_name(topic)} for messages before {first}:0"


def _create_shadow(values: Values) -> Values:
    properties = values["properties"]
    own = dict(properties) if isinstance(properties, dict) else {}
    own[SHADOW_SOURCE] = full_name(values.pop("source"))
    return {**values, "properties": own}


def _shadow_source(calls: Calls, values: Values) -> object:
    found = calls.call(Topics.get_properties, topic=values["topic"])
    return found.get(SHADOW_SOURCE) if isinstance(found, dict) else None


def _backlog_size(values: Values) -> Values:
    given = str(values["position"])
    return {**values, "position": place("earliest" if given == "-1:-1" else given)}


COMMANDS = (
    Command(
        "list", "List the topics of a namespace.", None, "namespace",
        (
            Option("-td --topic-domain", "domain", "domain", help="persistent, non_persistent."),
            text("-b --bundle", "bundle", "Topics of one bundle."),
            _SYSTEM,
        ),
        run=_list, is_read=True,
    ),
    Command("list-partitioned-topics", "List the partitioned topics.", None, "namespace",
            (_SYSTEM,), run=_list_partitioned, is_read=True),
    Command("create", "Create a topic without partitions.", Topics.create, T,
            (_METADATA, _NO_PARTITIONS), make=_one),
    Command("create-partitioned-topic", "Create a topic with partitions.",
            Topics.create_partitioned, T, (_PARTITIONS, _METADATA)),
    Command("create-missed-partitions", "Create partitions that are missing.",
            Topics.create_missed_partitions, T),
    Command(
        "update-partitioned-topic", "Add partitions.", Topics.update_partitions, T,
        (_PARTITIONS, flag("-ulo --update-local-only", "local_only", "In this cluster only."),
         FORCE),
    ),
    Command("get-partitioned-topic-metadata", "Show the number of partitions.",
            Topics.get_partitions, T),
    Command(
        "delete", "Delete a topic, or several.", None, T,
        (
            FORCE,
            flag("-r --regex", "regex", "TOPIC is a regular expression."),
            flag("--from-file", "from_file", "TOPIC is a file with names."),
            _DELETE_SCHEMA,
        ),
        run=_delete,
    ),
    Command("delete-partitioned-topic", "Delete a topic with its partitions.",
            Topics.delete_partitioned, T, (FORCE, _DELETE_SCHEMA), make=_delete_partitioned),
    Command("truncate", "Delete all messages.", Topics.truncate, T),
    Command("unload", "Close a topic, to be loaded again.", Topics.unload, T),
    Command("terminate", "Let nothing more be published.", None, T, run=_terminate),
    Command("partitioned-terminate", "The same with all partitions.", None, T,
            run=_terminate_partitions),
    Command("trim-topic", "Delete ledgers that nobody needs.", Topics.trim, T),
    Command("compact", "Begin to compact a topic.", Topics.compact, T,
            says="Topic compaction requested for {topic}"),
    Command("compaction-status", "Show how compaction goes.", None, T,
            (flag("-w --wait-complete", "wait", "Until it has ended."),),
            run=_compaction_status, is_read=True),
    Command(
        "offload", "Begin to move old ledgers away.", None, T,
        (Option("-s --size-threshold", "size_bytes", "size", required=True,
                help="Bytes that stay: 10M, 5G."),),
        run=_offload,
    ),
    Command("offload-status", "Show how offloading goes.", None, T,
            (flag("-w --wait-complete", "wait", "Until it has ended."),),
            run=_offload_status, is_read=True),
    Command("get-properties", "Show all properties.", Topics.get_properties, T),
    Command("update-properties", "Add properties.", Topics.update_properties, T,
            (pairs("-p --property", "properties"),),
            make=lambda values: {**values, "properties": values["properties"] or {}}),
    Command("remove-properties", "Remove a property.", Topics.remove_property, T,
            (text("-k --key", "key", "Name of the property.", required=True),)),
    Command("permissions", "Show what roles may do.", Topics.permissions, T),
    Command(
        "grant-permission", "Allow a role to use the topic.", Topics.grant_permission, T,
        (
            text("-r --role", "role", "The role.", required=True),
            Option("-a --actions", "actions", "actions", required=True,
                   help="produce,consume,sources,sinks,functions,packages"),
        ),
    ),
    Command("revoke-permission", "Take the topic's own permissions from a role.",
            Topics.revoke_permissions, T, (text("-r --role", "role", "The role.", required=True),)),
    Command("lookup", "Show the broker that serves a topic.", None, T, run=_lookup, is_read=True),
    Command("partitioned-lookup", "Show the brokers of all partitions.", None, T,
            (flag("-s --sort-by-broker", "sort", "Partitions by broker."),),
            run=_partitioned_lookup, is_read=True),
    Command("bundle-range", "Show the bundle of a topic.", Lookups.bundle, T),
    Command("stats", "Show what a topic measures.", Stats.get, T, _STATS),
    Command("stats-internal", "Show ledgers and cursors.", Stats.get_internal, T,
            (flag("-m --metadata", "metadata", "With what BookKeeper knows of ledgers."),)),
    Command("info-internal", "Show the managed ledger's metadata.", Stats.get_internal_info, T),
    Command("partitioned-stats", "Show what all partitions measure.", Stats.get_partitioned, T,
            (flag("--per-partition", "per_partition", "Of each partition, too."), *_STATS)),
    Command("partitioned-stats-internal", "Show ledgers and cursors of all partitions.",
            Stats.get_partitioned_internal, T),
    Command("last-message-id", "Show the last message's place.", Stats.last_message_id, T),
    Command(
        "get-backlog-size", "Show the bytes from a place to the end.", Stats.backlog_size, T,
        (Option("-m --messageId", "position", default="-1:-1", help="LEDGER:ENTRY"),),
        make=_backlog_size,
    ),
    Command(
        "create-shadow-topic", "Create a topic that reads another one's messages.", Topics.create,
        T, (text("-s --source", "source", "The other topic.", required=True),
            pairs("-p --properties", "properties")),
        make=_create_shadow,
    ),
    Command("get-shadow-source", "Show the topic whose messages it reads.", None, T,
            run=_shadow_source, is_read=True),
)  # fmt: skip
