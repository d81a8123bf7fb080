"""`geminga admin topics`: subscriptions (Apache's CmdTopics)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from geminga._admin.families.subscriptions import Subscriptions
from geminga.cli.admin.declare import (
    EITHER,
    FORCE,
    SUBSCRIPTION,
    Command,
    Option,
    Values,
    flag,
    number,
    pairs,
)
from geminga.cli.admin.values import either

if TYPE_CHECKING:
    from geminga.cli.admin.calls import Calls

T = "topic"
_EXCLUDED = flag("-e --exclude-reset-position", "exclude", "Begin behind the place.")
_EXPIRE_HELP = "Messages older than this: 100m, 3h, 2d, 5w."


def _excluded(values: Values, name: str) -> dict[str, object]:
    """A place, and whether it is itself left out."""
    position = values[name]
    assert isinstance(position, dict)
    return {**position, "excluded": bool(values["exclude"])}


def _findings(answer: object) -> str:
    """The lines of `geminga doctor`; with the topic where findings are of several partitions."""
    from geminga.cli.doctor.report import as_text, line_of

    found = [each for each in answer if isinstance(each, dict)] if isinstance(answer, list) else []
    several = len({each.get("topic") for each in found}) > 1
    lines = []
    for each in found:
        line = line_of(each)
        where = f"{line.topic}: " if several else ""
        lines.append(line._replace(sentence=where + line.sentence))
    return as_text(lines)


def _has_failed(answer: object) -> bool:
    found = answer if isinstance(answer, list) else []
    return any(isinstance(each, dict) and each.get("level") == "fail" for each in found)


def _create(values: Values) -> Values:
    position = values.pop("position")
    assert isinstance(position, dict)
    properties = values.pop("properties")
    body = {**position, **({"properties": properties} if properties else {})}
    return {**values, "position": body}


def _update_properties(values: Values) -> Values:
    clear = values.pop("clear")
    properties = values["properties"] or {}
    if bool(clear) == bool(properties):
        raise click.UsageError("one of --property and --clear")
    return {**values, "properties": properties}


def _reset(calls: Calls, values: Values) -> object:
    where = {"topic": values["topic"], "subscription": values["subscription"]}
    if values["position"] is not None:
        return calls.call(Subscriptions.reset, **where, position=_excluded(values, "position"))
    ago_ms = values["ago_ms"]
    if not isinstance(ago_ms, int):
        raise click.UsageError("one of --time and --messageId")
    timestamp_ms = time.time_ns() // 1_000_000 - ago_ms
    return calls.call(Subscriptions.reset_to_time, **where, timestamp_ms=timestamp_ms)


def _expire(calls: Calls, values: Values) -> object:
    where = {"topic": values["topic"], "subscription": values["subscription"]}
    seconds, position = values["seconds"], values["position"]
    if (seconds is None) == (position is None):
        raise click.UsageError("one of --expireTime and --position")
    if seconds is not None:
        return calls.call(Subscriptions.expire, **where, seconds=seconds)
    return calls.call(Subscriptions.expire_to, **where, position=_excluded(values, "position"))


def _replicated(values: Values) -> Values:
    return {"enabled": either(values), **values}


COMMANDS = (
    Command("subscriptions", "List the subscriptions of a topic.", Subscriptions.list, T),
    Command(
        "create-subscription", "Create a subscription.", Subscriptions.create, T,
        (
            SUBSCRIPTION,
            Option("-m --messageId", "position", "place", default="latest",
                   help="latest, earliest or LEDGER:ENTRY."),
            flag("-r --replicated", "replicated", "Replicate it to other clusters."),
            pairs("-p --property", "properties"),
        ),
        make=_create,
    ),
    Command("unsubscribe", "Delete a subscription.", Subscriptions.delete, T,
            (SUBSCRIPTION, FORCE)),
    Command("get-subscription-properties", "Show all properties.", Subscriptions.get_properties, T,
            (SUBSCRIPTION,)),
    Command(
        "update-subscription-properties", "Replace all properties.",
        Subscriptions.update_properties, T,
        (SUBSCRIPTION, pairs("-p --property", "properties"),
         flag("-c --clear", "clear", "Remove all.")),
        make=_update_properties,
    ),
    Command(
        "skip", "Acknowledge the next messages.", Subscriptions.skip, T,
        (SUBSCRIPTION, number("-n --count", "count", "Number of messages.", required=True)),
    ),
    Command("clear-backlog", "Acknowledge all messages.", Subscriptions.skip_all, T,
            (SUBSCRIPTION,)),
    Command(
        "expire-messages", "Acknowledge older messages.", None, T,
        (
            SUBSCRIPTION,
            Option("-t --expireTime", "seconds", "seconds", help=_EXPIRE_HELP),
            Option("-p --position", "position", "place", help="Messages up to LEDGER:ENTRY."),
            _EXCLUDED,
        ),
        run=_expire,
    ),
    Command(
        "expire-messages-all-subscriptions", "Acknowledge older messages for all subscriptions.",
        Subscriptions.expire_all, T,
        (Option("-t --expireTime", "seconds", "seconds", required=True, help=_EXPIRE_HELP),),
    ),
    Command(
        "reset-cursor", "Deliver messages again, or pass over some.", None, T,
        (
            SUBSCRIPTION,
            Option("-t --time", "ago_ms", "milliseconds", help="As long ago: 100m, 3h, 2d, 5w."),
            Option("-m --messageId", "position", "place", help="latest, earliest or LEDGER:ENTRY."),
            _EXCLUDED,
        ),
        run=_reset,
    ),
    Command(
        "analyze-backlog", "Read a backlog, and count what it has.",
        Subscriptions.analyze_backlog, T,
        (SUBSCRIPTION, Option("-p --position", "position", "place", help="Where to begin.")),
    ),
    Command(
        "why", "Say why a subscription gets nothing; the exit code is 1 if something stops it.",
        Subscriptions.why, T, (SUBSCRIPTION,), lines=_findings, failed=_has_failed,
    ),
    Command("get-replicated-subscription-status", "Show whether it is replicated.",
            Subscriptions.get_replicated, T, (SUBSCRIPTION,)),
    Command("set-replicated-subscription-status", "Have it replicated, or not.",
            Subscriptions.set_replicated, T, (SUBSCRIPTION, *EITHER), make=_replicated),
)  # fmt: skip
