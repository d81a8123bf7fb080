"""Authorization of callers (`AuthorizationService`, `PulsarAuthorizationProvider`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

from geminga_broker.authz.grants import check_subscription, namespace_allows, topic_allows
from geminga_broker.authz.needs import NAMESPACE_ACTIONS, TOPIC_ACTIONS, Need, Place, Scope
from geminga_broker.authz.settings import AuthorizationSettings
from geminga_broker.cluster.catalog import is_system_topic
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.cluster.records import JsonObject, decode
from geminga_protocol.topic_name import TopicName

DECODED_MAX = 1000
DECODED_BYTES_MAX = 32 * 1024 * 1024
"""Records of tenants and namespaces that stay decoded: their number and their size in all."""
LARGE_BYTES = 32 * 1024
"""Larger records are decoded in a task of a request, not for its answer at once."""

_Rule = Generator[str, "JsonObject | None", bool]
"""Decides: yields the name of a tenant's or namespace's record, gets it, returns the verdict."""


class Caller(NamedTuple):
    """A client: its authenticated role and, behind a proxy, the original principal."""

    role: str | None
    original: str | None = None

    def __str__(self) -> str:
        """For logs: the role and its proxy."""
        return f"role={self.original} through {self.role}" if self.original else f"role={self.role}"


THIS_BROKER: Final = Caller("this broker")
"""The broker as a client of itself: it may do everything. It is told by the object, so that no
client can have the name.
"""


class Authorizer:
    """Applies the policies in the metadata store. If disabled, it allows everything."""

    def __init__(self, settings: AuthorizationSettings, namespaces: Namespaces) -> None:
        self.settings = settings
        self.enabled = settings.enabled
        self._namespaces = namespaces
        self._super_users = settings.super_users
        self._proxies = settings.proxies
        self._records: dict[str, tuple[bytes, JsonObject]] = {}
        self._records_bytes = 0

    def reload(self) -> None:
        """The settings have changed."""
        self._super_users = self.settings.super_users

    def is_proxy(self, role: str | None) -> bool:
        """Whether it is a proxy's role."""
        return role is not None and role in self._proxies

    def original_is_valid(self, role: str | None, original: str | None, *, http: bool) -> bool:
        """Whether `original` is valid. A proxy must name an original principal that is no proxy;
        others must name none, or, over HTTP only, themselves
        (`AuthorizationService.isValidOriginalPrincipal`).
        """
        if self.is_proxy(role):
            return bool(original) and original not in self._proxies
        return not original or (http and original == role)

    async def allows(self, caller: Caller, need: Need, place: Place = Place()) -> bool:
        """Whether role and original principal both have the right. Raises SubscriptionRefused."""
        rule = self._rule(caller, need, place)
        record: JsonObject | None = None
        while True:
            try:
                name = rule.send(record)
            except StopIteration as end:
                return bool(end.value)
            value = await self._namespaces.tenants.value(name)
            record = None if value is None else self._decoded(name, value)

    def allows_now(self, caller: Caller, need: Need, place: Place) -> bool | None:
        """As `allows`, if no record needs to be read for it; else None."""
        rule = self._rule(caller, need, place)
        record: JsonObject | None = None
        while True:
            try:
                name = rule.send(record)
            except StopIteration as end:
                return bool(end.value)
            known = self._namespaces.tenants.known(name)
            if known is None:
                return None
            (value,) = known
            if value is not None and len(value) > LARGE_BYTES and not self._kept(name, value):
                return None
            record = None if value is None else self._decoded(name, value)

    def _decoded(self, name: str, value: bytes) -> JsonObject:
        """The record, which stays decoded: each lookup asks for it, and nobody changes it."""
        if (kept := self._kept(name, value)) is not None:
            return kept[1]
        record = decode(value)
        if (old := self._records.pop(name, None)) is not None:
            self._records_bytes -= len(old[0])
        full = self._records_bytes + len(value) > DECODED_BYTES_MAX
        if full or len(self._records) >= DECODED_MAX:
            self._records.clear()
            self._records_bytes = 0
        self._records[name] = value, record
        self._records_bytes += len(value)
        return record

    def _kept(self, name: str, value: bytes) -> tuple[bytes, JsonObject] | None:
        kept = self._records.get(name)
        return kept if kept is not None and kept[0] == value else None

    def _rule(self, caller: Caller, need: Need, place: Place) -> _Rule:
        if not self.enabled or need.scope in (Scope.PUBLIC, Scope.HELD) or caller is THIS_BROKER:
            return True
        if not (yield from self._role_rule(caller.role, need, place)):
            return False
        if not self.is_proxy(caller.role):
            return True
        return (yield from self._role_rule(caller.original, need, place))

    def _role_rule(self, role: str | None, need: Need, place: Place) -> _Rule:
        if not role:
            return False
        if role in self._super_users or need.scope is Scope.ROLE:
            return True
        if need.scope in (Scope.SUPER_USER, Scope.CLUSTER, Scope.BROKER):
            return False
        record = (yield place.tenant) if place.tenant else None
        roles = record.get("adminRoles") if record else None
        if isinstance(roles, list) and role in roles:
            return True
        if need.scope is Scope.NAMESPACE:
            return (yield from self._namespace_rule(role, need, place))
        if need.scope is Scope.TOPIC:
            return (yield from self._topic_rule(role, need, place))
        return False

    def _namespace_rule(self, role: str, need: Need, place: Place) -> _Rule:
        actions = NAMESPACE_ACTIONS.get(need.operation, ())
        policies = (yield place.namespace) if actions else None
        wildcards = self.settings.wildcards
        return policies is not None and any(
            namespace_allows(policies, role, action, wildcards=wildcards) for action in actions
        )

    def _topic_rule(self, role: str, need: Need, place: Place) -> _Rule:
        actions = TOPIC_ACTIONS.get(need.operation, ())
        policies = (yield place.namespace) if actions else None
        if policies is None:
            return False
        if (
            place.subscription
            and "produce" not in actions
            and not check_subscription(policies, place.topic, role, place.subscription)
        ):
            return False
        topic = TopicName.parse(place.topic)
        # Stricter than Apache: who could write there would set the policies of others' topics.
        if need.operation == "PRODUCE" and is_system_topic(topic):
            return False
        wildcards = self.settings.wildcards
        return any(
            topic_allows(policies, topic, role, action, wildcards=wildcards) for action in actions
        )


def place_of(topic: TopicName, subscription: str = "") -> Place:
    """A topic's place."""
    return Place(topic.tenant, topic.namespace, str(topic), subscription)
