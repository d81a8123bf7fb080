"""Negative acknowledgements that wait for their delay (spec SDK-23; NegativeAcksTracker). Pure.

Entries are redelivered whole, so the place in a batch doesn't matter. What waits here is bounded by
what the broker lets stay unacknowledged.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from geminga.options import MultiplierBackoff
from geminga_protocol.commands.consuming import redeliver_unacknowledged
from geminga_protocol.message_id import MessageId

Position = tuple[int, int]

REDELIVER_IDS_MAX = 1000
"""Ids in one REDELIVER_UNACKNOWLEDGED_MESSAGES."""


class NegativeAcks:
    """Positions with the time at which they are asked for again."""

    def __init__(self, delay_s: float, backoff: MultiplierBackoff | None) -> None:
        self._delay_s = delay_s
        self._backoff = backoff
        self._due_s: dict[Position, float] = {}
        self._heap: list[tuple[float, Position]] = []

    def __len__(self) -> int:
        return len(self._due_s)

    def add(self, position: Position, redelivery_count: int, now_s: float) -> float:
        """Note one; a second note of the same entry changes nothing. Returns when it is due."""
        known = self._due_s.get(position)
        if known is not None:
            return known
        if self._backoff is None:
            delay_s = self._delay_s
        else:
            delay_s = self._backoff.delay_s(redelivery_count)
        self._due_s[position] = now_s + delay_s
        heapq.heappush(self._heap, (now_s + delay_s, position))
        return now_s + delay_s

    def forget(self, position: Position) -> None:
        """The entry was acknowledged after all."""
        self._due_s.pop(position, None)

    def clear(self) -> None:
        """Nothing waits any more: the broker redelivers everything by itself."""
        self._due_s.clear()
        self._heap.clear()

    def due(self, now_s: float) -> list[Position]:
        """Take out those whose time has come, in the order of their time."""
        taken: list[Position] = []
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            due_s, position = heapq.heappop(heap)
            if self._due_s.get(position) == due_s:
                del self._due_s[position]
                taken.append(position)
        return taken

    def next_due_s(self) -> float:
        """When `due` will have something; infinity if nothing waits."""
        heap = self._heap
        while heap and self._due_s.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf


def redeliveries(consumer_id: int, positions: Sequence[Position]) -> list[bytes]:
    """The commands that have these redelivered."""
    return [
        redeliver_unacknowledged(
            consumer_id,
            [MessageId(*position) for position in positions[at : at + REDELIVER_IDS_MAX]],
        )
        for at in range(0, len(positions), REDELIVER_IDS_MAX)
    ]
