"""What the console can do to a topic or subscription: a table. Each is one REST call, with the
credentials of whoever confirmed it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from geminga_broker.console.answers import MessageResults, Partitions, Schema
from geminga_broker.console.calls import CallFailed, Rest, TopicPath, decoded

PROPERTIES_MAX = 100


@dataclass(frozen=True, slots=True)
class Field:
    """An input of a form."""

    name: str
    label: str
    kind: str = "text"
    """An input's type, `lines` for several lines, or `choice`."""
    default: str = ""
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """What an action is done to."""

    topic: TopicPath
    subscription: str = ""

    @property
    def name(self) -> str:
        """What it is called in a question."""
        if self.subscription:
            return f"{self.subscription} of {self.topic.name}"
        return self.topic.name


Run = Callable[[Rest, Target, Mapping[str, str]], Awaitable[str]]
"""Does it. Returns the id of a message, or nothing. Raises CallFailed."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done after a confirmation."""

    name: str
    title: str
    question: str
    done: str
    run: Run
    fields: Sequence[Field] = ()
    loses: bool = False
    """Whether messages or the topic's use are lost for good."""
    typed: bool = False
    """Whether the topic's name must be typed to confirm it."""
    persistent_only: bool = True
    single_only: bool = False
    """Whether Apache's API has it for topics without partitions only."""

    def fits(self, topic: TopicPath, partitions: int) -> bool:
        """Whether a topic has it."""
        if self.persistent_only and topic.domain != "persistent":
            return False
        return not (self.single_only and partitions)


def number_in(fields: Mapping[str, str], name: str, at_least: int) -> int:
    """A whole number. Raises CallFailed."""
    text = fields.get(name, "").strip()
    if not (text.isascii() and text.isdecimal()) or len(text) > 18 or int(text) < at_least:
        raise CallFailed(400, f"{name.capitalize()} must be a whole number from {at_least} on.")
    return int(text)


def properties_in(text: str) -> dict[str, str]:
    """Lines of `name=value`. Raises CallFailed."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise CallFailed(400, "Write properties as name=value, one a line.")
        found[name.strip()] = value.strip()
    if len(found) > PROPERTIES_MAX:
        raise CallFailed(400, f"More than {PROPERTIES_MAX} properties.")
    return found


def reset_call(fields: Mapping[str, str]) -> tuple[str, object]:
    """What follows `resetcursor` in the path, and the body. Raises CallFailed."""
    to = fields.get("to", "")
    if to == "earliest":
        return "/0", None
    if to == "time":
        try:
            moment = datetime.fromisoformat(fields.get("time", "").strip()).replace(tzinfo=UTC)
            return f"/{max(0, int(moment.timestamp() * 1000))}", None
        except (ValueError, OverflowError):
            raise CallFailed(400, "Give a time, such as 2026-01-31T10:20.") from None
    if to == "message":
        ledger, _, entry = fields.get("message", "").strip().partition(":")
        given = {"ledger": ledger, "entry": entry}
        try:
            ledger_id, entry_id = number_in(given, "ledger", 0), number_in(given, "entry", 0)
        except CallFailed:
            raise CallFailed(400, "Give a message id, such as 12:34.") from None
        return "", {"ledgerId": ledger_id, "entryId": entry_id, "partitionIndex": -1}
    raise CallFailed(400, "Choose where to.")


async def _reset(rest: Rest, target: Target, fields: Mapping[str, str]) -> str:
    path, body = reset_call(fields)
    base = target.topic.subscription(target.subscription)
    await rest.call("POST", f"{base}/resetcursor{path}", body)
    return ""


async def _skip(rest: Rest, target: Target, fields: Mapping[str, str]) -> str:
    count = number_in(fields, "count", 1)
    await rest.call("POST", f"{target.topic.subscription(target.subscription)}/skip/{count}")
    return ""


async def _clear(rest: Rest, target: Target, _fields: Mapping[str, str]) -> str:
    await rest.call("POST", f"{target.topic.subscription(target.subscription)}/skip_all")
    return ""


async def _unload(rest: Rest, target: Target, _fields: Mapping[str, str]) -> str:
    await rest.call("PUT", f"{target.topic.rest}/unload")
    return ""


async def _terminate(rest: Rest, target: Target, _fields: Mapping[str, str]) -> str:
    found = await rest.get(f"{target.topic.rest}/partitions", Partitions)
    path = "/terminate/partitions" if found.partitions else "/terminate"
    await rest.call("POST", target.topic.rest + path)
    return ""


async def _send(rest: Rest, target: Target, fields: Mapping[str, str]) -> str:
    """A message by the topic's schema; without one its bytes are those of the text."""
    topic = target.topic
    path = "/".join(["/admin/v2/schemas", *topic.path.split("/")[1:], "schema"])
    version: int | None = None
    try:
        version = (await rest.get(path, Schema)).version
    except CallFailed as error:
        if error.status != 404:
            raise
    message: dict[str, object] = {
        "payload": fields.get("payload", ""),
        "properties": properties_in(fields.get("properties", "")),
    }
    if key := fields.get("key", ""):
        message["key"] = key
    body: dict[str, object] = {"producerName": "console", "messages": [message]}
    if version is not None:
        body["schemaVersion"] = version
    without = "true" if version is None else None
    answer = await rest.call("POST", f"/topics/{topic.path}", body, withoutSchema=without)
    found = (await decoded(answer.body, MessageResults)).message_publish_results
    if len(found) != 1 or found[0].error_code:
        raise CallFailed(500, (found[0].error_msg if found else "") or "It was not published.")
    return found[0].message_id or ""


_PAYLOAD = (
    "Text, encoded by the topic's schema: JSON for JSON and Avro schemas. Of an Avro schema all "
    'fields must be there, and a value of a union goes with its type: {"string": "tea"}, or null.'
)

OF_TOPICS = (
    Action(
        "send",
        "Send a test message",
        "Consumers of every subscription get this message, as from any producer.",
        "The message is stored.",
        _send,
        (
            Field("payload", "Payload", "lines", hint=_PAYLOAD),
            Field("key", "Key"),
            Field("properties", "Properties", "lines", hint="name=value, one a line"),
        ),
        persistent_only=False,
    ),
    Action(
        "unload",
        "Unload",
        "The broker gives the topic up; clients look it up again and go on, after a short pause.",
        "The topic was unloaded.",
        _unload,
        persistent_only=False,
    ),
    Action(
        "terminate",
        "Terminate",
        "Nobody can publish to the topic again. Consumers get what is stored. There is no way"
        " back.",
        "The topic was terminated.",
        _terminate,
        loses=True,
        typed=True,
    ),
)

OF_SUBSCRIPTIONS = (
    Action(
        "reset",
        "Reset the cursor",
        "Consumers get messages from there on, also those that were acknowledged before.",
        "The cursor was reset.",
        _reset,
        (
            Field(
                "to",
                "To",
                "choice",
                choices=(
                    ("earliest", "the earliest message"),
                    ("time", "a time"),
                    ("message", "a message id"),
                ),
            ),
            Field("time", "Time (UTC)", "datetime-local"),
            Field("message", "Message id", hint="ledger:entry, such as 12:34"),
        ),
        loses=True,
    ),
    Action(
        "skip",
        "Skip messages",
        "They count as acknowledged: this subscription's consumers don't get them.",
        "The messages were skipped.",
        _skip,
        (Field("count", "How many", "number", "1", needed=True),),
        loses=True,
        single_only=True,
    ),
    Action(
        "clear",
        "Clear the backlog",
        "All stored messages count as acknowledged: this subscription's consumers don't get them.",
        "The backlog was cleared.",
        _clear,
        loses=True,
    ),
)

_MESSAGE_ID = re.compile(r"[0-9:-]{1,60}")
_BY_NAME = {each.name: each for each in (*OF_TOPICS, *OF_SUBSCRIPTIONS)}


def told(did: str, message_id: str) -> str:
    """What was done, for the page after it; nothing for words of others."""
    if did not in _BY_NAME:
        return ""
    where = f" Its id is {message_id}." if _MESSAGE_ID.fullmatch(message_id) else ""
    return _BY_NAME[did].done + where
