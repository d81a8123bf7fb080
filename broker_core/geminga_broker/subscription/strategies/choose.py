"""The receivers of entries for Exclusive, Failover and Shared: pure (spec BR-30).

Follows AbstractDispatcherSingleActiveConsumer and AbstractDispatcherMultipleConsumers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from geminga_broker.log.api import Entry
from geminga_broker.subscription.state import M
from geminga_protocol.keys import murmur3_32

RING_POINTS = 100
"""Points of a consumer on a hash ring."""

RING_SIZE = 1 << 31
"""Points are below this."""

RING_MEMORY = 1 << 14
"""Consumers, of all topics, whose nearest point is cached: a join to a large group computes the new
consumer's points only.
"""


Give: TypeAlias = Callable[[M, Sequence[Entry], Sequence[int]], None]
"""Charge a consumer for entries, given with their message counts, and send them."""


def pick_active(consumers: Sequence[M], topic: str, partition: int) -> M | None:
    """The active consumer of a Failover subscription, None without consumers.

    Of the consumers with the lowest priority level, sorted by name, the one at partition number
    modulo count, so that a topic's partitions are spread. For a topic without partitions, by the
    hash of its name on a ring of the consumers' names.
    """
    if not consumers:
        return None
    level = min(consumer.priority for consumer in consumers)
    ordered = sorted((c for c in consumers if c.priority == level), key=lambda c: c.name)
    if len(ordered) == 1:
        return ordered[0]
    if partition >= 0:
        return ordered[partition % len(ordered)]
    target = murmur3_32(topic.encode())
    # Of two with the same point, the later name wins.
    return min(reversed(ordered), key=lambda consumer: _distance(consumer.name, target))


@lru_cache(maxsize=RING_MEMORY)
def _distance(name: str, target: int) -> int:
    """Distance up the ring from `target` to the consumer's nearest point."""
    points = (murmur3_32(f"{name}{point}".encode()) for point in range(RING_POINTS))
    return min((point - target) % RING_SIZE for point in points)


class RoundRobin:
    """Shared: round robin, at most `run_entries_max` entries at once; consumers with a lower
    priority level first, while they have permits.
    """

    __slots__ = ("_next", "_run_entries_max")

    def __init__(self, run_entries_max: int) -> None:
        self._run_entries_max = run_entries_max
        self._next = 0

    def assign(self, counts: Sequence[int], consumers: Sequence[M]) -> list[tuple[M, int, int]]:
        """Give out entries with these message counts, in order: (consumer, first, end) runs.

        For entries after the last run, no consumer has permits.
        """
        able = sorted((c for c in consumers if c.ready), key=lambda c: c.priority)
        runs: list[tuple[M, int, int]] = []
        total = len(counts)
        at = first = 0
        while first < len(able) and at < total:
            level = able[first].priority
            last = first
            while last < len(able) and able[last].priority == level:
                last += 1
            at = self._assign_level(able[first:last], counts, at, runs)
            first = last
        return runs

    def _assign_level(
        self, able: list[M], counts: Sequence[int], at: int, runs: list[tuple[M, int, int]]
    ) -> int:
        """Round robin among consumers of one priority level; returns the end of the last run."""
        total = len(counts)
        left = [consumer.room for consumer in able]
        turn = self._next % len(able)
        while able and at < total:
            permits = left[turn]
            start = at
            stop = min(total, at + self._run_entries_max)
            while at < stop and permits > 0:
                permits -= counts[at]
                at += 1
            runs.append((able[turn], start, at))
            if permits > 0:
                left[turn] = permits
                turn += 1
            else:
                del able[turn], left[turn]
            self._next += 1
            if able:
                turn %= len(able)
        return at
