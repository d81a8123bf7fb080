"""Negative acknowledgements that wait for their delay (spec SDK-23; NegativeAcksTracker). Pure.

Entries are redelivered whole, so the index in a batch doesn't matter. The broker's limit of
unacknowledged messages bounds the waiting ones.
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
    """Positions with the time of their redelivery request."""

    def __init__(self, delay_s: float, backoff: MultiplierBackoff | None) -> None:
        self._delay_s = delay_s
        self._backoff = backoff
        self._due_s: dict[Position, float] = {}
        self._heap: list[tuple[float, Position]] = []

    def __len__(self) -> int:
        return len(self._due_s)

    def add(self, position: Position, redelivery_count: int, now_s: float) -> float:
        """Add an entry; has no effect if it is there already. Returns when it is due."""
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
        """Remove an entry that was acknowledged later."""
        self._due_s.pop(position, None)

    def clear(self) -> None:
        """Remove all: the broker redelivers everything without a request."""
        self._due_s.clear()
        self._heap.clear()

    def due(self, now_s: float) -> list[Position]:
        """Remove and return the due ones, in the order of their time."""
        taken: list[Position] = []
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            due_s, position = heapq.heappop(heap)
            if self._due_s.get(position) == due_s:
                del self._due_s[position]
                taken.append(position)
        return taken

    def next_due_s(self) -> float:
        """When the next one is due; infinity if there is none."""
        heap = self._heap
        while heap and self._due_s.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf


def redeliveries(consumer_id: int, positions: Sequence[Position]) -> list[bytes]:
    """The commands that request redelivery of these."""
    return [
        redeliver_unacknowledged(
            consumer_id,
            [MessageId(*position) for position in positions[at : at + REDELIVER_IDS_MAX]],
        )
        for at in range(0, len(positions), REDELIVER_IDS_MAX)
    ]
