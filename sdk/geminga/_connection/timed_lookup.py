"""Lookups whose durations are measured (spec SDK-49)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from geminga._connection.http_lookup import HttpLookup
from geminga._connection.lookup import Lookup
from geminga._connection.pool import Endpoint
from geminga._connection.topic_pattern import TopicPattern
from geminga.options import RegexSubscriptionMode


class Timer(Protocol):
    """What measures them."""

    def lookup(self, kind: str, transport: str = ...) -> AbstractContextManager[None]:
        """Measures the block."""
        ...


class TimedLookup(Lookup):
    """A lookup over brokers' connections."""

    timer: Timer
    _transport = "binary"

    async def broker_of(self, topic: str) -> Endpoint:
        """As Lookup.broker_of."""
        with self.timer.lookup("topic", self._transport):
            return await super().broker_of(topic)

    async def topics_of(
        self, pattern: TopicPattern, mode: RegexSubscriptionMode
    ) -> tuple[list[str], bool]:
        """As Lookup.topics_of."""
        with self.timer.lookup("list-topics", self._transport):
            return await super().topics_of(pattern, mode)

    async def partitions_of(self, topic: str, *, auto_create: bool = True) -> int:
        """As Lookup.partitions_of."""
        with self.timer.lookup("metadata", self._transport):
            return await super().partitions_of(topic, auto_create=auto_create)


class TimedHttpLookup(TimedLookup, HttpLookup):
    """A lookup over HTTP."""

    _transport = "http"
