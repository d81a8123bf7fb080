"""What the events of one namespace amount to. Pure."""

from __future__ import annotations

from typing import cast

from geminga_broker.change_events.codec import PolicyEvent
from geminga_broker.cluster.records import JsonObject

_MAPS = ("backLogQuotaMap", "subscriptionPolicies")
"""Fields of which a topic's own policies and those of all clusters may each hold a part."""


class Policies:
    """The policies of topics by their full names: those of this cluster, and those that hold in all
    clusters unless this one has others.
    """

    __slots__ = ("_everywhere", "_here")

    def __init__(self) -> None:
        self._here: dict[str, JsonObject] = {}
        self._everywhere: dict[str, JsonObject] = {}

    def __bool__(self) -> bool:
        return bool(self._here or self._everywhere)

    def apply(self, event: PolicyEvent) -> None:
        """The next event (`refreshTopicPoliciesCache`)."""
        records = self._everywhere if event.is_global else self._here
        if event.record is None:
            records.pop(event.topic, None)
        elif not (event.only_new and event.topic in records):
            records[event.topic] = event.record

    def of(self, topic: str, *, is_global: bool) -> JsonObject | None:
        """The record at one level, None if there is none."""
        return (self._everywhere if is_global else self._here).get(topic)

    def merged(self, topic: str) -> JsonObject:
        """Both levels as one record (`PolicyHierarchyValue`); don't change it."""
        here, everywhere = self._here.get(topic), self._everywhere.get(topic)
        if not here or not everywhere:
            return here or everywhere or {}
        found = everywhere | here
        for name in _MAPS:
            maps = [each.get(name) for each in (everywhere, here)]
            if all(isinstance(each, dict) for each in maps):
                found[name] = cast(JsonObject, maps[0]) | cast(JsonObject, maps[1])
        return found

    def differing(self, other: Policies) -> set[str]:
        """Topics whose policies the other one has differently."""
        topics = {*self._here, *self._everywhere, *other._here, *other._everywhere}
        return {each for each in topics if self.merged(each) != other.merged(each)}
