"""Authorization of commands (spec PX-22)."""

from __future__ import annotations

import logging
from typing import Protocol, cast

import trio

from geminga_broker.authz.authorizer import place_of
from geminga_broker.authz.commands import COMMANDS, REFUSALS
from geminga_broker.authz.grants import SubscriptionRefused
from geminga_broker.authz.needs import Place, Scope
from geminga_broker.cluster.records import NAME
from geminga_broker.errors import BrokerError
from geminga_broker.session.registry import Opening
from geminga_broker.session.session import Session
from geminga_protocol.pb.pulsar_api_pb2 import BaseCommand, ServerError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.logs import shown

_log = logging.getLogger(__name__)

_SUBSCRIBE = BaseCommand.Type.SUBSCRIBE
_PARTITIONS = BaseCommand.Type.PARTITIONED_METADATA


class _OnTopic(Protocol):
    topic: str
    subscription: str


class _OnNamespace(Protocol):
    namespace: str


async def authorize(session: Session, kind: int, command: object) -> Place:
    """Check the sender's right and return the place that the command names. Raises BrokerError
    AuthorizationError.
    """
    need = COMMANDS[kind]
    place = _place(need.scope, command)
    allows, caller = session.service.authorizer.allows, session.caller
    try:
        allowed = await allows(caller, need, place)
        # A producer that creates a subscription also needs the right to do so (ServerCnx).
        if allowed and (first := getattr(command, "initial_subscription_name", "")):
            allowed = await allows(caller, COMMANDS[_SUBSCRIBE], place._replace(subscription=first))
    except SubscriptionRefused as error:
        raise BrokerError(ServerError.AuthorizationError, str(error)) from None
    if not allowed:
        what = BaseCommand.Type.Name(BaseCommand.Type.ValueType(kind))
        where = shown(place.topic or place.namespace)
        left_out = session.refusals.take(trio.current_time())
        if left_out is not None:
            if left_out:
                _log.warning("address=%s: %d refusals not logged", session.address, left_out)
            _log.warning(
                "address=%s %s may not %s %s", session.address, session.caller, what, where
            )
        await _require_tenant(session, kind, place)
        through = "Proxy " if session.service.authorizer.is_proxy(session.principal) else ""
        text = REFUSALS.get(kind, "Client is not authorized")
        raise BrokerError(ServerError.AuthorizationError, through + text)
    return place


def is_allowed_now(session: Session, kind: int, command: object) -> bool:
    """Whether the sender surely has the right; False also if records must be read to know it."""
    need = COMMANDS[kind]
    allows = session.service.authorizer.allows_now
    try:
        return bool(allows(session.caller, need, _place(need.scope, command)))
    except SubscriptionRefused:
        return False


async def _require_tenant(session: Session, kind: int, place: Place) -> None:
    """As in Apache's broker, only PARTITIONED_METADATA reports a missing tenant instead of the
    missing right. Raises BrokerError TopicNotFound.
    """
    if kind == _PARTITIONS and not await session.service.namespaces.tenants.exists(place.tenant):
        text = f"Tenant or namespace or topic does not exist: {shown(place.namespace)}"
        raise BrokerError(ServerError.TopicNotFound, text)


def _place(scope: Scope, command: object) -> Place:
    if scope is Scope.TOPIC:
        on_topic = cast(_OnTopic, command)
        subscription = getattr(command, "subscription", "")
        return place_of(TopicName.parse(on_topic.topic), subscription)
    if scope is Scope.NAMESPACE:
        return _place_of_namespace(cast(_OnNamespace, command).namespace)
    return Place()


def _place_of_namespace(namespace: str) -> Place:
    """Raises BrokerError InvalidTopicName; Apache's broker closes the connection then."""
    parts = namespace.split("/", 3)
    if not (2 <= len(parts) <= 3 and all(NAME.fullmatch(part) for part in parts)):
        text = f"Invalid namespace name {shown(namespace)}"
        raise BrokerError(ServerError.InvalidTopicName, text)
    return Place(parts[0], namespace)


async def reauthorize(session: Session, kind: int, command: object, opening: Opening) -> None:
    """Check the client's right to open the producer or consumer, and again if grants are revoked
    meanwhile. Returns at once if the last check is still valid. Raises BrokerError
    AuthorizationError.
    """
    while opening.requires_recheck():
        opening.require_recheck(required=False)
        opening.place = await authorize(session, kind, command)
