"""`geminga admin topics`: messages, shown as pulsar-admin shows them (Apache's CmdTopics)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from geminga._admin.declared import declaration_of
from geminga._admin.families.subscriptions import Messages, Subscriptions
from geminga._admin.messages import messages_of
from geminga.cli.admin.declare import SUBSCRIPTION, Command, Option, Values, flag, number, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from geminga._admin.messages import StoredMessage
    from geminga.cli.admin.calls import Calls

T = "topic"
RULE = "-------------------------------------------------------------------------\n"
ROW_BYTES = 16


def _stored(
    calls: Calls, operation: Callable[..., object], **values: object
) -> list[StoredMessage]:
    return messages_of(calls.ask(declaration_of(operation).request((), values)))


def described(message: StoredMessage) -> Iterator[str]:
    """The lines about a message."""
    number_of_colons = message.message_id.count(":")
    yield f"{'Batch Message' if number_of_colons > 1 else 'Message'} ID: {message.message_id}"
    yield f"Publish time: {message.publish_time}"
    yield f"Event time: {message.event_time or 0}"
    if (at := message.headers.get("deliver-at-time")) is not None:
        yield f"Deliver at time: {at}"
    if message.key is not None:
        yield f"Key: {message.key}"
    for name, title in (("timestamp", "timestamp"), ("index", "index")):
        value = message.headers.get(f"broker-entry-metadata-{name}")
        if value is not None:
            yield f"Broker entry metadata {title}: {value}"
    if message.properties:
        yield "Properties:"
        yield from (f"{key}    {value}" for key, value in message.properties.items())
    yield from hex_dump(message.data)


def hex_dump(data: bytes) -> Iterator[str]:
    """Bytes in hexadecimal and as text, 16 in a line."""
    head = "  ".join(f"{at:x}" for at in range(ROW_BYTES))
    edge = "+" + "-" * 50 + "+"
    yield " " * 9 + edge
    yield f"{' ' * 9}|  {head} |"
    yield f"+--------{edge}{'-' * 16}+"
    for start in range(0, len(data), ROW_BYTES):
        row = data[start : start + ROW_BYTES]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"|{start:08x}| {row.hex(' ').ljust(48)} |{shown.ljust(16)}|"
    yield f"+--------{edge}{'-' * 16}+"


def _told(messages: list[StoredMessage]) -> list[str]:
    lines: list[str] = []
    for message in messages:
        lines += [*([RULE] if lines else []), *described(message)]
    return lines


def _peek(calls: Calls, values: Values) -> object:
    """The first messages; of a batch all that are wanted."""
    from geminga._admin.errors import NotFoundError

    wanted = values["count"]
    assert isinstance(wanted, int)
    where = {"topic": values["topic"], "subscription": values["subscription"]}
    committed = str(values["isolation"]).upper() != "READ_UNCOMMITTED"
    found: list[StoredMessage] = []
    entry = 1
    while len(found) < wanted:
        try:
            more = _stored(calls, Subscriptions.peek, **where, number=entry)
        except NotFoundError:
            if entry == 1:
                raise
            break
        entry += 1
        headers = more[0].headers
        if committed and headers.get("txn-uncommitted") == "true":
            break
        is_aborted = committed and headers.get("txn-aborted") == "true"
        if not is_aborted and (values["markers"] or "marker-type" not in headers):
            found += more
    return _told(found[:wanted])


def _get(calls: Calls, values: Values) -> object:
    return _told(_stored(calls, Messages.get, **values))


def _examine(calls: Calls, values: Values) -> object:
    return _told(_stored(calls, Messages.examine, **values))


def _id_at(calls: Calls, values: Values) -> object:
    given = str(values["at"])
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise click.UsageError(f"--datetime: {given!r} is not like 2021-06-28T16:53:08Z")
    timestamp_ms = int(at.timestamp() * 1000)
    found = calls.call(Messages.id_at, topic=values["topic"], timestamp_ms=timestamp_ms)
    if found is None:
        return f"Cannot find any messages based on timestamp {timestamp_ms}"
    return found


COMMANDS = (
    Command(
        "peek-messages",
        "Show messages of a backlog; nothing is acknowledged. A subscription that isn't there is "
        "made, as by Apache's broker, and keeps the backlog from then on: delete one that was a "
        "slip (unsubscribe).",
        None, T,
        (
            SUBSCRIPTION,
            number("-n --count", "count", "Number of messages.", default=1),
            flag("-ssm --show-server-marker", "markers", "What brokers wrote, too."),
            Option("-til --transaction-isolation-level", "isolation", default="READ_COMMITTED",
                   help="READ_UNCOMMITTED shows also what isn't committed."),
        ),
        run=_peek, is_read=True,
    ),
    Command(
        "examine-messages", "Show a message by its number from an end.", None, T,
        (
            Option("-i --initialPosition", "initial_position", default="latest",
                   help="latest or earliest."),
            number("-m --messagePosition", "message_position", "From 1 on.", default=1),
        ),
        run=_examine, is_read=True,
    ),
    Command(
        "get-message-by-id",
        "Show a message by its place. Beyond the last entry the broker answers 500, as Apache's.",
        None, T,
        (
            number("-l --ledgerId", "ledger_id", "Its ledger.", required=True),
            number("-e --entryId", "entry_id", "Its entry.", required=True),
        ),
        run=_get, is_read=True,
    ),
    Command(
        "get-message-id", "Show the place of the first message from a time on.", None, T,
        (text("-d --datetime", "at", "2021-06-28T16:53:08Z", required=True),),
        run=_id_at, is_read=True,
    ),
)  # fmt: skip
