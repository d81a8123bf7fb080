"""A look at stored messages, without consuming them: those that a subscription has before it, or
the topic's first or last ones.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import NamedTuple

import trio
from starlette.responses import Response

from geminga_broker.console.calls import CallFailed, TopicPath
from geminga_broker.console.listing import page_number
from geminga_broker.console.payloads import Payloads, Shown
from geminga_broker.console.site import Visit
from geminga_broker.console.topic_pages import partitions_of, schema_of, statistics
from geminga_protocol.batch import split_batch
from geminga_protocol.errors import ProtocolError
from geminga_protocol.messages import text
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata
from geminga_runtime.http.answers import HttpAnswer
from geminga_runtime.json_text import BadJson, read_json

ENTRIES = 5
"""Of a page."""
OF_BATCH_MAX = 10
"""Messages of a batch that are shown."""
PROPERTIES_MAX = 50
INLINE_SIZE_MAX = 256
"""Of a payload, and of its schema; longer ones are decoded beside the loop."""
ENCRYPTED = Shown("", "encrypted", "only its consumers have the key")
_PREFIX = "x-pulsar-"
_TOLD = {
    "publish-time": "published",
    "event-time": "event time",
    "producer-name": "producer",
    "sequence-id": "sequence",
    "partition-key": "key",
    "num-batch-message": "messages in the batch",
    "compression": "compression",
    "deliver-at-time": "delivered at",
}


class Looked(NamedTuple):
    """A message on a page."""

    key: str
    properties: Mapping[str, str]
    payload: Shown


class EntryRow(NamedTuple):
    """An entry: a message, or a batch of them."""

    number: int
    message_id: str
    told: Mapping[str, str]
    messages: list[Looked]
    left: int
    """Messages of the batch that aren't shown."""


class _Schemas:
    """Those of the messages of one page, each asked for once."""

    def __init__(self, visit: Visit, topic: TopicPath) -> None:
        self._visit = visit
        self._topic = topic
        self._found: dict[int | None, Payloads] = {}

    async def of(self, version: int | None) -> Payloads:
        """Payloads by the schema of that version; without one by that which says nothing."""
        if version not in self._found:
            found = await schema_of(self._visit, self._topic, version)
            self._found[version] = Payloads(found.type, found.data) if found else Payloads()
        return self._found[version]


async def _messages(visit: Visit) -> Response:
    topic, subscription = visit.topic, visit.query("subscription")
    first = page_number(visit.query("from"))
    order = "earliest" if visit.query("order") == "earliest" else "latest"
    partitions = await partitions_of(visit, topic)
    if partitions:
        raise CallFailed(405, "Choose one of the partitions: each has messages of its own")
    if subscription:
        # To peek by a subscription that isn't there would make it.
        known = (await statistics(visit, topic, partitions)).subscriptions
        if subscription not in known:
            raise CallFailed(404, f"Topic {topic.name} has no subscription {subscription}")
    schemas = _Schemas(visit, topic)
    rows: list[EntryRow] = []
    end = ""
    for number in range(first, first + ENTRIES):
        try:
            answer = await _entry(visit, topic, subscription, order, number)
        except CallFailed as error:
            if error.status == 500:
                # One that can't be read hides no others.
                rows.append(EntryRow(number, "", {}, [_unread(error.reason)], 0))
                continue
            if error.status not in (404, 412) and not rows:
                raise
            end = error.reason
            break
        rows.append(await _row(visit, answer, number, schemas))
        await trio.lowlevel.checkpoint()
    return visit.page(
        "messages.html",
        topic=topic,
        subscription=subscription,
        order=order,
        rows=rows,
        first=first,
        following=first + ENTRIES if len(rows) == ENTRIES else 0,
        previous=max(1, first - ENTRIES) if first > 1 else 0,
        end=end,
    )


def _unread(reason: str) -> Looked:
    return Looked("", {}, Shown("", "message", f"it can't be read: {reason}"))


async def _entry(
    visit: Visit, topic: TopicPath, subscription: str, order: str, number: int
) -> HttpAnswer:
    if subscription:
        return await visit.rest.call("GET", f"{topic.subscription(subscription)}/position/{number}")
    return await visit.rest.call(
        "GET", f"{topic.rest}/examinemessage", initialPosition=order, messagePosition=number
    )


async def _row(visit: Visit, answer: HttpAnswer, number: int, schemas: _Schemas) -> EntryRow:
    headers = answer.headers
    told = {
        label: headers[_PREFIX + name]
        for name, label in _TOLD.items()
        if headers.get(_PREFIX + name, "NONE") != "NONE"
    }
    message_id = headers.get(f"{_PREFIX}message-id", "")
    count = headers.get(f"{_PREFIX}num-batch-message", "")
    if headers.get(f"{_PREFIX}is-encrypted") == "true":
        found = [Looked("", _properties(headers), ENCRYPTED)]
        return EntryRow(number, message_id, told, found, 0)
    payloads = await schemas.of(_version(headers))

    def look() -> list[Looked]:
        if count.isdecimal():
            return _of_batch(answer.body, min(int(count), OF_BATCH_MAX), payloads)
        return [Looked("", _properties(headers), payloads.shown(answer.body))]

    if max(len(answer.body), payloads.definition_size) <= INLINE_SIZE_MAX:
        found = look()
    else:
        found = await trio.to_thread.run_sync(look, limiter=visit.site.decodings)
    left = int(count) - len(found) if count.isdecimal() else 0
    return EntryRow(number, message_id, told, found, left)


def _of_batch(body: bytes, count: int, payloads: Payloads) -> list[Looked]:
    """The first messages of a batch."""
    try:
        singles = split_batch(MessageMetadata(num_messages_in_batch=count), memoryview(body))
    except ProtocolError as error:
        return [Looked("", {}, Shown("", "batch", f"it can't be read: {error}"))]
    return [
        Looked(
            text(single.partition_key),
            {text(each.key): text(each.value) for each in single.properties[:PROPERTIES_MAX]},
            payloads.shown(bytes(payload)),
        )
        for single, payload in singles
    ]


def _properties(headers: Mapping[str, str]) -> dict[str, str]:
    try:
        found = read_json(headers.get(f"{_PREFIX}property", "{}"), dict[str, str])
    except BadJson:
        return {}
    return dict(list(found.items())[:PROPERTIES_MAX])


def _version(headers: Mapping[str, str]) -> int | None:
    """The version of a message's schema; None if it has none, or none that is a number."""
    given = headers.get(f"{_PREFIX}base64-schema-version", "")
    try:
        data = b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        return None
    return int.from_bytes(data, "big") if len(data) == 8 else None


VIEWS = (("GET /topics/{domain}/{tenant}/{namespace}/{topic}/messages", _messages),)
