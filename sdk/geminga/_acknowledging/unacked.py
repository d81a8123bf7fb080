"""What the program has received and not acknowledged, where something depends on it: ack timeouts
and dead letters (spec SDK-23, SDK-25; UnAckedMessageTracker of the Java client). Pure.

Entries are redelivered whole, so one position stands for all messages of a batch. What is held here
is bounded by what the broker lets stay unacknowledged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from geminga._entries.entry import Entry
from geminga.options import MultiplierBackoff

Position = tuple[int, int]

TICKS_PER_TIMEOUT = 32
"""A message is redelivered by at most that part of the timeout too late, never too early."""


class AckTimeouts:
    """Positions by the tick at which they are asked for again; all times are Trio's clock."""

    def __init__(self, timeout_s: float, backoff: MultiplierBackoff | None) -> None:
        """With a back-off its delay is waited too, growing with each redelivery."""
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._tick_s = timeout_s / TICKS_PER_TIMEOUT
        self._ticks: dict[Position, int] = {}
        self._due: dict[int, dict[Position, None]] = {}

    def __len__(self) -> int:
        return len(self._ticks)

    def received(self, position: Position, redelivery_count: int, now_s: float) -> float:
        """The program got a message of that entry: its time begins anew. Returns when it ends."""
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
        """Acknowledged, whole, or refused: it doesn't time out."""
        tick = self._ticks.pop(position, None)
        if tick is not None:
            self._remove(position, tick)

    def _remove(self, position: Position, tick: int) -> None:
        waiting = self._due[tick]
        del waiting[position]
        if not waiting:
            del self._due[tick]

    def due(self, now_s: float) -> list[Position]:
        """Take out those whose time has come, in the order of their time."""
        taken: list[Position] = []
        for tick in sorted(self._due):
            if tick * self._tick_s > now_s:
                break
            taken += self._due.pop(tick)
        for position in taken:
            del self._ticks[position]
        return taken

    def next_due_s(self) -> float:
        """When `due` will have something; infinity if nothing waits."""
        return min(self._due) * self._tick_s if self._due else math.inf

    def positions(self) -> Iterable[Position]:
        """All that wait."""
        return self._ticks


class Unacked:
    """Both, forgotten together. `max_redeliver_count` is that of a dead-letter policy."""

    def __init__(
        self, timeouts: AckTimeouts | None = None, max_redeliver_count: int | None = None
    ) -> None:
        self.timeouts = timeouts
        self._max_redeliver_count = max_redeliver_count
        self._last_tries: dict[Position, Entry] = {}

    def came(self, entry: Entry) -> bool:
        """An entry arrived. Returns whether it has come more often than is allowed: it isn't for
        the program any more. One that comes for the last time is kept until it is acknowledged.
        """
        limit = self._max_redeliver_count
        if limit is None or entry.redelivery_count < limit:
            return False
        self._last_tries[entry.ledger_id, entry.entry_id] = entry
        return entry.redelivery_count > limit

    def take_last_tries(self, positions: Iterable[Position]) -> list[Entry]:
        """Of entries that are to be redelivered: those that had their last try; they are forgotten
        here.
        """
        found = [self._last_tries.pop(position, None) for position in positions]
        return [entry for entry in found if entry is not None]

    def forget(self, position: Position) -> None:
        """The entry is acknowledged."""
        if self.timeouts is not None:
            self.timeouts.forget(position)
        self._last_tries.pop(position, None)

    def forget_up_to(self, position: Position) -> None:
        """So is everything up to and including it."""
        known = list(self._last_tries)
        if self.timeouts is not None:
            known += self.timeouts.positions()
        for each in known:
            if each <= position:
                self.forget(each)

    def clear(self) -> None:
        """Everything comes again."""
        if self.timeouts is not None:
            for position in list(self.timeouts.positions()):
                self.timeouts.forget(position)
        self._last_tries.clear()
