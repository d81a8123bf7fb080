"""Stored messages of a topic over REST: by id, peeked at, examined, and places by time (spec OP-04;
Apache's `PersistentTopicsBase`).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.answers import MessageId
from geminga_broker.admin.topics.message_answer import message_response
from geminga_broker.admin.topics.routes import message_id_json, require_topic
from geminga_broker.admin.topics.subscriptions import ResetCursorData, number_of
from geminga_broker.limits import check_subscription
from geminga_broker.log.api import Cursor, Entry, LedgerStatistics, ManagedLedger
from geminga_broker.policies.quota import backlog_bytes
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_protocol.ids import EARLIEST, Position
from geminga_protocol.topic_name import TopicName

NO_MESSAGE = "Message not found"


async def require_single(service: BrokerService, name: TopicName, refusal: str) -> None:
    """Raises RestError 405 with that text for a partitioned topic."""
    if not name.is_partition and await service.catalog.partitions(name):
        raise rest.RestError(405, refusal)


async def require_log_of(
    service: BrokerService, name: TopicName, refusal: str, status: int = 405
) -> PersistentTopic:
    """The topic, loaded. Raises RestError 404, and `status` with that text for a non-persistent
    one.
    """
    topic = await require_topic(service, name)
    if not isinstance(topic, PersistentTopic):
        raise rest.RestError(status, refusal)
    return topic


async def cursor_of(topic: PersistentTopic, subscription: str) -> Cursor:
    """The cursor of a subscription. As in Apache, one that isn't there is made, from the earliest
    message on.
    """
    if subscription not in topic.subscriptions:
        check_subscription(subscription)
        await topic.create_subscription(subscription, EARLIEST)
    return topic.subscription(subscription).cursor


async def entry_at(log: ManagedLedger, position: Position) -> Entry | None:
    """The entry of a position, None if there is none (it may be trimmed). Raises LogReadFailed."""
    if position.ledger_id < 0 or position.entry_id < 0:
        return None
    found = await log.read_range(position, entries_max=1, bytes_max=1)
    return found[0] if found and found[0].position == position else None


def position_of(ledgers: tuple[LedgerStatistics, ...], number: int) -> Position | None:
    """The position of the entry with this number, from 1 on; the last one's if there are fewer,
    None if there are none.
    """
    last = None
    for ledger in ledgers:
        if ledger.entries <= 0:
            continue
        if number <= ledger.entries:
            return Position(ledger.ledger_id, number - 1)
        number -= ledger.entries
        last = Position(ledger.ledger_id, ledger.entries - 1)
    return last


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""

    async def by_id(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        position = Position(number_of(request, "ledger"), number_of(request, "entry"))
        await require_single(service, name, "GetMessageById is not allowed on partitioned-topic")
        topic = await require_log_of(
            service, name, "A non-persistent topic has no stored messages", 500
        )
        found = await entry_at(topic.log, position)
        last = topic.log.last_position
        if found is None and position.ledger_id == last.ledger_id and position > last:
            text = f"LastConfirmedEntry is {last} when reading entry {position.entry_id}"
            raise rest.RestError(500, text)
        if found is None:
            raise rest.RestError(404, "Message id not found")
        return await message_response(found)

    async def peek(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        number = number_of(request, "position")
        subscription = rest.subscription_of(request)
        await require_single(service, name, "Peek messages on a partitioned topic is not allowed")
        topic = await require_log_of(
            service, name, "Peek messages on a non-persistent topic is not allowed"
        )
        if number <= 0:
            raise rest.RestError(500, f"The number of a message must be positive: {number}")
        cursor = await cursor_of(topic, subscription)
        position = cursor.unacked_at(number)
        found = None if position is None else await entry_at(topic.log, position)
        if found is None:
            raise rest.RestError(404, NO_MESSAGE)
        return await message_response(found)

    one = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    return [
        rest.route("GET", one + "/ledger/{ledger}/entry/{entry}", by_id),
        rest.route("GET", one + "/subscription/{subscription}/position/{position}", peek),
        rest.route("GET", one + "/examinemessage", _examined(service, domain)),
        *_routes_of_places(service, domain, one),
    ]


def _examined(service: BrokerService, domain: str) -> rest.Handler:
    async def examine(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        number = max(1, rest.query_number(request, "messagePosition", 1))
        await require_single(
            service,
            name,
            "Examine messages on a partitioned topic is not allowed, please try examine message "
            "on specific topic partition",
        )
        topic = await require_log_of(
            service, name, "Examine messages on a non-persistent topic is not allowed"
        )
        state = topic.log.statistics()
        if request.query_params.get("initialPosition", "latest") != "earliest":
            number = state.entries - number + 1
        position = position_of(state.ledgers, number)
        if position is None:
            text = "Could not examine messages due to the total message is zero"
            raise rest.RestError(412, text)
        if number < 1:
            raise rest.RestError(500, f"The topic has {state.entries} entries only")
        found = await entry_at(topic.log, position)
        if found is None:
            raise rest.RestError(404, NO_MESSAGE)
        return await message_response(found)

    return examine


def _routes_of_places(service: BrokerService, domain: str, one: str) -> list[Route]:
    async def id_by_time(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        timestamp = number_of(request, "timestamp")
        await require_single(
            service,
            name,
            "Get message ID by timestamp on a partitioned topic is not allowed, please try do it "
            "on specific topic partition",
        )
        topic = await require_log_of(
            service, name, "Get message ID by timestamp on a non-persistent topic is not allowed"
        )
        return rest.ok(message_id_json(name, await topic.log.find_by_time(timestamp)), MessageId)

    async def backlog_size(request: Request) -> Response:
        name = rest.topic_of(request, domain)
        start = await rest.read_body(request, ResetCursorData)
        if start is None:
            raise rest.RestError(500, "A message id is missing")
        await require_single(
            service, name, "calculate backlog size is not allowed for partitioned-topic"
        )
        topic = await require_log_of(service, name, "A non-persistent topic has no backlog", 500)
        state = topic.log.statistics()
        if all(ledger.ledger_id != start.ledger_id for ledger in state.ledgers):
            return rest.ok(state.size_bytes, int)
        return rest.ok(backlog_bytes(state.ledgers, Position(start.ledger_id, start.entry_id)), int)

    return [
        rest.route("GET", one + "/messageid/{timestamp}", id_by_time),
        rest.route("PUT", one + "/backlogSize", backlog_size),
    ]
