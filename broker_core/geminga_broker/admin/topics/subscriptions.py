"""Subscriptions of a topic over REST: create, delete, skip, reset, expire (spec OP-04)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga_broker.admin import rest
from geminga_broker.admin.joins import NO_EXPIRY
from geminga_broker.admin.topics.routes import require_topic, require_writable_namespace
from geminga_broker.errors import BrokerError
from geminga_broker.limits import check_subscription
from geminga_broker.service import BrokerService
from geminga_broker.topic.persistent import PersistentTopic
from geminga_broker.topic.topic import Topic
from geminga_protocol import ack_set as ack_sets
from geminga_protocol.ack_set import AckSet
from geminga_protocol.ids import EARLIEST, LATEST, Position
from geminga_protocol.pb.pulsar_api_pb2 import ServerError
from geminga_protocol.topic_name import TopicName

OnTopic = Callable[[Topic, TopicName, str, Request], Awaitable[None]]
JAVA_LONG_MAX = (1 << 63) - 1


class ResetCursorData(msgspec.Struct, rename="camel"):
    """A subscription's start or new position; Java's extreme values mean the ends."""

    ledger_id: int = 0
    entry_id: int = 0
    partition_index: int = -1
    batch_index: int = -1
    excluded: bool = False
    """Whether the message itself is left out."""
    properties: dict[str, str] | None = None

    def position(self) -> Position:
        """The position, or EARLIEST or LATEST."""
        if self.ledger_id == JAVA_LONG_MAX:
            return LATEST
        if self.ledger_id < 0:
            return EARLIEST
        return Position(self.ledger_id, self.entry_id)

    def start(self) -> Position:
        """Where to deliver from: after the position if it is excluded (a part of a batch isn't)."""
        position = self.position()
        if self.excluded and self.batch_index < 0:
            return Position(position.ledger_id, position.entry_id + 1)
        return position

    def within(self, batch_size: int) -> tuple[Position, AckSet]:
        """Where to deliver from in an entry of that many messages (0: no batch): the position, and
        what of its batch is left (PersistentTopicsBase.calculatePositionAckSet).
        """
        position = self.position()
        first = self.batch_index + 1 if self.excluded else self.batch_index
        if first >= batch_size and self.excluded:
            return Position(position.ledger_id, position.entry_id + 1), ()
        if batch_size <= 0 or not 0 < first < batch_size:
            return position, ()
        return position, ack_sets.cumulative(batch_size, first - 1)


def number_of(request: Request, name: str, bits: int = 64) -> int:
    """A number of the path that fits into so many bits. Raises Refused: another text is another
    path.
    """
    text = rest.parameter(request, name)
    try:
        number = int(text)
    except ValueError:
        raise rest.Refused(404) from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise rest.Refused(404)
    return number


def require_subscription(topic: Topic, name: TopicName, subscription: str) -> None:
    """Raises RestError 404."""
    if subscription not in topic.subscriptions:
        raise rest.RestError(404, f"Subscription {subscription} not found for topic {name}")


async def _auto_created(service: BrokerService, name: TopicName) -> Topic:
    """The topic, made now where policy makes topics for clients too.

    Raises RestError, BrokerError.
    """
    await require_writable_namespace(service, name)
    refused = rest.RestError(412, "Topic does not exist and cannot be auto-created")
    if name.is_partition:
        partitions = await service.catalog.partitions(name.partitioned_base)
        if 0 < partitions <= name.partition_index:
            raise refused
    try:
        return await service.topics.get(name, create=True)
    except BrokerError as error:
        if error.code != ServerError.TopicNotFound:
            raise
        raise refused from None


async def start_of(request: Request, default: Position | None) -> Position:
    """The position of a body: an object, or "earliest" or "latest". Raises RestError 400, and the
    error for an invalid body.
    """
    data = await rest.read_union(request, ResetCursorData, str)
    if data is None:
        if default is None:
            raise rest.RestError(400, "A message id is missing")
        return default
    return position_of_body(data)


def position_of_body(data: object) -> Position:
    """The same of a body that was read as ResetCursorData or text. Raises the error for an invalid
    body.
    """
    if isinstance(data, ResetCursorData):
        return data.start()
    if data == "latest":
        return LATEST
    if data == "earliest":
        return EARLIEST
    text = f"Invalid value {str(data)[:80]} for the position. Allowed values are [latest, earliest]"
    raise rest.bad_body(text)


def routes(service: BrokerService, domain: str) -> list[Route]:
    """All routes of the family for one domain."""

    def on_topic(action: OnTopic) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            subscription = rest.subscription_of(request)
            name = rest.topic_of(request, domain)
            topic = await require_topic(service, name)
            require_subscription(topic, name, subscription)
            await action(topic, name, subscription, request)
            return rest.no_content()

        return handler

    async def list_all(request: Request) -> Response:
        topic = await require_topic(service, rest.topic_of(request, domain))
        return rest.ok(list(topic.subscriptions), list[str])

    async def create(request: Request) -> Response:
        if domain == "non-persistent":
            text = "Create subscription on non-persistent topic can only be done through client"
            raise rest.RestError(400, text)
        subscription = rest.subscription_of(request)
        try:
            check_subscription(subscription)
        except BrokerError as error:
            raise rest.RestError(412, str(error)) from None
        data = await rest.read_union(request, ResetCursorData, str)
        start = LATEST if data is None else position_of_body(data)
        given = data.properties if isinstance(data, ResetCursorData) else None
        properties = rest.properties_of(rest.without_nulls(given))
        topic = await _auto_created(service, rest.topic_of(request, domain))
        assert isinstance(topic, PersistentTopic), "others were refused"
        if subscription in topic.subscriptions:
            raise rest.RestError(409, "Subscription already exists for topic")
        replicated = rest.flag(request, "replicated")
        await topic.create_subscription(subscription, start, properties, replicated=replicated)
        return rest.no_content()

    async def skip(request: Request) -> Response:
        number_of(request, "count", 32)
        if await service.catalog.partitions(rest.topic_of(request, domain)):
            raise rest.RestError(405, "Skip messages on a partitioned topic is not allowed")
        return await on_topic(_skip)(request)

    one = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}"
    sub = one + "/subscription/{subscription}"
    return [
        rest.route("GET", one + "/subscriptions", list_all),
        *rest.at(sub, put=create, delete=on_topic(_delete)),
        *_property_routes(service, domain, sub + "/properties"),
        rest.route("POST", sub + "/skip_all", on_topic(_skip_all)),
        rest.route("POST", sub + "/skip/{count}", skip),
        rest.route("POST", sub + "/resetcursor/{timestamp}", on_topic(_reset_to_time)),
        rest.route("POST", sub + "/resetcursor", _reset_to_id(service, domain)),
        rest.route(
            "POST", sub + "/expireMessages/{seconds}", _expiry(service, domain, on_topic(_expire))
        ),
    ]


def _expiry(service: BrokerService, domain: str, of_log: rest.Handler) -> rest.Handler:
    async def expire(request: Request) -> Response:
        number_of(request, "seconds", 32)
        name = rest.topic_of(request, domain)
        if not name.is_persistent:
            await require_topic(service, name)
            raise rest.RestError(405, NO_EXPIRY)
        return await of_log(request)

    return expire


def _reset_to_id(service: BrokerService, domain: str) -> rest.Handler:
    async def reset(request: Request) -> Response:
        data = await rest.read_union(request, ResetCursorData, str)
        if data is None:
            raise rest.RestError(400, "A message id is missing")
        name = rest.topic_of(request, domain)
        subscription = rest.subscription_of(request)
        if not name.is_partition and await service.catalog.partitions(name):
            text = "Reset-cursor at position is not allowed for partitioned-topic"
            raise rest.RestError(405, text)
        topic = await require_topic(service, name)
        require_subscription(topic, name, subscription)
        start = position_of_body(data)
        ack_set: AckSet = ()
        if isinstance(data, ResetCursorData) and isinstance(topic, PersistentTopic):
            size = await _batch_size(topic, data) if data.batch_index >= 0 else 0
            start, ack_set = data.within(size)
        await topic.reset(subscription, start, ack_set)
        return rest.no_content()

    return reset


async def _batch_size(topic: PersistentTopic, data: ResetCursorData) -> int:
    """The messages of the entry, 0 if there is none (any more)."""
    position = data.position()
    if position in (EARLIEST, LATEST) or position.entry_id < 0:
        return 0
    found = await topic.log.read_range(position, entries_max=1, bytes_max=1)
    return found[0].messages if found and found[0].position == position else 0


def _property_routes(service: BrokerService, domain: str, path: str) -> list[Route]:
    async def properties(request: Request) -> Response:
        subscription = rest.subscription_of(request)
        name = rest.topic_of(request, domain)
        topic = await require_topic(service, name)
        require_subscription(topic, name, subscription)
        return rest.ok(topic.subscriptions[subscription].properties, dict[str, str])

    async def set_properties(request: Request) -> Response:
        given = rest.properties_of(
            rest.without_nulls(await rest.read_body(request, dict[str, str]))
        )
        subscription = rest.subscription_of(request)
        name = rest.topic_of(request, domain)
        topic = await require_topic(service, name)
        require_subscription(topic, name, subscription)
        await topic.subscriptions[subscription].set_properties(given)
        return rest.no_content()

    return rest.at(path, get=properties, put=set_properties)


async def _delete(topic: Topic, _name: TopicName, subscription: str, request: Request) -> None:
    await topic.delete_subscription(subscription, force=rest.flag(request, "force"))


async def _skip_all(topic: Topic, _name: TopicName, subscription: str, _request: Request) -> None:
    await topic.skip(subscription, None)


async def _skip(topic: Topic, _name: TopicName, subscription: str, request: Request) -> None:
    await topic.skip(subscription, number_of(request, "count"))


async def _reset_to_time(
    topic: Topic, _name: TopicName, subscription: str, request: Request
) -> None:
    await topic.reset_to_time(subscription, number_of(request, "timestamp"))


def require_backlog(topic: Topic, name: TopicName, subscription: str) -> None:
    """Raises RestError 409, as in Apache: an operator must see that there was nothing to do."""
    if topic.subscriptions[subscription].backlog_entries() == 0:
        raise rest.RestError(
            409,
            f"Expire message by timestamp not issued on topic {name} for subscription "
            f"{subscription} due to ongoing message expiration not finished or subscription almost "
            "catch  up. If it's performed on a partitioned topic operation might succeeded on "
            "other partitions, please check stats of individual partition.",
        )


async def _expire(topic: Topic, name: TopicName, subscription: str, request: Request) -> None:
    seconds = number_of(request, "seconds")
    require_backlog(topic, name, subscription)
    await topic.expire(subscription, seconds)
