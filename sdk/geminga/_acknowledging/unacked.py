"""Received and unacknowledged messages, for ack timeouts and dead letters (spec SDK-23, SDK-25;
UnAckedMessageTracker of the Java client). Pure.

Entries are redelivered whole, so one position stands for all messages of a batch. The broker's
limit of unacknowledged messages bounds the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from geminga._entries.entry import Entry
from geminga.options import MultiplierBackoff

Position = tuple[int, int]

TICKS_PER_TIMEOUT = 32
"""A redelivery is late by at most this part of the timeout, and never early."""


class AckTimeouts:
    """Positions by the tick of their redelivery request; all times are Trio's clock."""

    def __init__(self, timeout_s: float, backoff: MultiplierBackoff | None) -> None:
        """A back-off adds its delay, which grows with each redelivery."""
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._tick_s = timeout_s / TICKS_PER_TIMEOUT
        self._ticks: dict[Position, int] = {}
        self._due: dict[int, dict[Position, None]] = {}

    def __len__(self) -> int:
        return len(self._ticks)

    def received(self, position: Position, redelivery_count: int, now_s: float) -> float:
        """(Re)start the timeout of a received entry. Returns when it ends."""
        delay_s = self._timeout_s
        if self._backoff is not None:
            delay_s += self._backoff.delay_s(redelivery_count)
        tick = math.ceil((now_s + delay_s) / self._tick_s)
        known = self._ticks.get(position)
        if known != tick:
            if known is not None:
                self._remove(position, known)
            self._ticks[position] = tick
            self._due.setdefault(tick, {})[position] = None
        return tick * self._tick_s

    def forget(self, position: Position) -> None:
        """Stop the timeout of an entry that is wholly acknowledged, or refused."""
        tick = self._ticks.pop(position, None)
        if tick is not None:
            self._remove(position, tick)

    def _remove(self, position: Position, tick: int) -> None:
        waiting = self._due[tick]
        del waiting[position]
        if not waiting:
            del self._due[tick]

    def due(self, now_s: float) -> list[Position]:
        """Remove and return the due ones, in the order of their time."""
        taken: list[Position] = []
        for tick in sorted(self._due):
            if tick * self._tick_s > now_s:
                break
            taken += self._due.pop(tick)
        for position in taken:
            del self._ticks[position]
        return taken

    def next_due_s(self) -> float:
        """When the next one is due; infinity if there is none."""
        return min(self._due) * self._tick_s if self._due else math.inf

    def positions(self) -> Iterable[Position]:
        """All positions with a timeout."""
        return self._ticks


class Unacked:
    """Ack timeouts and last tries. `max_redeliver_count` is that of a dead-letter policy."""

    def __init__(
        self, timeouts: AckTimeouts | None = None, max_redeliver_count: int | None = None
    ) -> None:
        self.timeouts = timeouts
        self._max_redeliver_count = max_redeliver_count
        self._last_tries: dict[Position, Entry] = {}

    def came(self, entry: Entry) -> bool:
        """Note a delivered entry. Returns whether it exceeds the redelivery limit: then the program
        doesn't get it. An entry at its last try is kept until it is acknowledged.
        """
        limit = self._max_redeliver_count
        if limit is None or entry.redelivery_count < limit:
            return False
        self._last_tries[entry.ledger_id, entry.entry_id] = entry
        return entry.redelivery_count > limit

    def take_last_tries(self, positions: Iterable[Position]) -> list[Entry]:
        """Remove and return those of the entries to be redelivered that had their last try."""
        found = [self._last_tries.pop(position, None) for position in positions]
        return [entry for entry in found if entry is not None]

    def forget(self, position: Position) -> None:
        """Forget an acknowledged entry."""
        if self.timeouts is not None:
            self.timeouts.forget(position)
        self._last_tries.pop(position, None)

    def forget_up_to(self, position: Position) -> None:
        """Forget all entries up to the position, inclusive."""
        known = list(self._last_tries)
        if self.timeouts is not None:
            known += self.timeouts.positions()
        for each in known:
            if each <= position:
                self.forget(each)

    def clear(self) -> None:
        """Forget all: everything is redelivered."""
        if self.timeouts is not None:
            for position in list(self.timeouts.positions()):
                self.timeouts.forget(position)
        self._last_tries.clear()
