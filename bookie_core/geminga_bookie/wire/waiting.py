"""Reads that wait for an entry, of all connections of a bookie (spec BK-09; Apache's
LongPollReadEntryProcessorV3 with its request timer).

A read that waits is a small object. One task for each ledger waits for its next entry; what waited
goes back to its connection, which answers it in turn. When there are too many, the connection that
has most loses its newest one.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_bookie.port import ID_MAX, BookiePort

TICK_S = 0.01
"""Waits end up to this much late, those of one tick together (requestTimerTickDurationMs)."""

WOKEN_AT_ONCE = 512

NEVER = 1 << 63
"""Above each LAC, and each tick."""


class EntryWait:
    """One read that waits."""

    __slots__ = ("holder", "ledger_id", "previous_lac", "refuse", "tick", "wake")

    def __init__(
        self,
        ledger_id: int,
        previous_lac: int,
        wake: Callable[[bool], object],
        refuse: Callable[[], object],
    ) -> None:
        """`wake` gets whether there is an answer, or only the time is over."""
        self.ledger_id = ledger_id
        self.previous_lac = previous_lac
        self.wake = wake
        self.refuse = refuse
        self.tick = 0
        self.holder: Holder | None = None


class Holder:
    """The reads of one connection that wait."""

    def __init__(self) -> None:
        self.waits: dict[EntryWait, None] = {}
        self.count = 0
        """With those that are being answered."""


class _Ledger:
    def __init__(self) -> None:
        self.waits: dict[EntryWait, None] = {}
        self.lowest = -1
        self.scope = trio.CancelScope()


class EntryWaits:
    """The owner runs `run` in a task."""

    def __init__(self, bookie: BookiePort, waits_max: int) -> None:
        self._bookie = bookie
        self._waits_max = waits_max
        self._ledgers: dict[int, _Ledger] = {}
        self._ticks: dict[int, dict[EntryWait, None]] = {}
        self._levels: dict[int, dict[Holder, None]] = {}
        """Holders by their number of waits."""
        self._highest = 0
        self.count = 0
        self._begun: list[int] = []
        self._has_begun = trio.Event()
        self._has_ticks = trio.Event()
        self._next_tick = NEVER

    async def run(self) -> None:
        """Follow ledgers and the clock, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_the_clock)
            while True:
                await self._has_begun.wait()
                self._has_begun = trio.Event()
                begun, self._begun = self._begun, []
                for ledger_id in begun:
                    nursery.start_soon(self._follow, ledger_id, self._ledgers[ledger_id])

    def add(self, wait: EntryWait, holder: Holder, timeout_s: float) -> bool:
        """One more; False if there are too many, and none has more than this holder."""
        is_full = self.count >= self._waits_max
        if is_full and (holder.count + 1 >= self._highest or not self._evict()):
            return False
        wait.holder = holder
        holder.waits[wait] = None
        self._count(holder, 1)
        wait.tick = int((trio.current_time() + timeout_s) / TICK_S) + 1
        self._ticks.setdefault(wait.tick, {})[wait] = None
        if wait.tick < self._next_tick:
            self._has_ticks.set()
        ledger = self._ledgers.get(wait.ledger_id)
        if ledger is None:
            ledger = self._ledgers[wait.ledger_id] = _Ledger()
            ledger.lowest = wait.previous_lac
            self._begun.append(wait.ledger_id)
            self._has_begun.set()
        elif wait.previous_lac < ledger.lowest:
            ledger.scope.cancel()  # to begin anew
        ledger.waits[wait] = None
        return True

    def answered(self, holder: Holder) -> None:
        """One that was woken is answered."""
        self._count(holder, -1)

    def leave(self, holder: Holder) -> None:
        """The connection is gone."""
        for wait in list(holder.waits):
            self._remove(wait)
        self._count(holder, -holder.count)

    def _evict(self) -> bool:
        """Refuse one read of the connection that has most."""
        for holder in self._levels[self._highest]:
            if holder.waits:
                wait = next(reversed(holder.waits))
                self._remove(wait)
                self._count(holder, -1)
                wait.refuse()
                return True
        return False

    def _count(self, holder: Holder, change: int) -> None:
        before = holder.count
        now = holder.count = before + change
        self.count += change
        if before:
            level = self._levels[before]
            del level[holder]
            if not level:
                del self._levels[before]
        if now:
            self._levels.setdefault(now, {})[holder] = None
        if now > self._highest:
            self._highest = now
        elif self._highest not in self._levels:
            self._highest = max(self._levels, default=0) if change < -1 else now

    def _remove(self, wait: EntryWait) -> None:
        if wait.holder is not None:
            del wait.holder.waits[wait]
        tick = self._ticks[wait.tick]
        del tick[wait]
        if not tick:
            del self._ticks[wait.tick]
        ledger = self._ledgers[wait.ledger_id]
        del ledger.waits[wait]
        if not ledger.waits:
            ledger.scope.cancel()

    async def _follow(self, ledger_id: int, ledger: _Ledger) -> None:
        """Wake the waits of a ledger, as long as there are any."""
        while ledger.waits:
            ledger.lowest = min(wait.previous_lac for wait in ledger.waits)
            lac = NEVER
            with trio.CancelScope() as ledger.scope:
                try:
                    _, lac = await self._bookie.wait_entry(ledger_id, ID_MAX, ledger.lowest)
                except BookkeeperError:
                    lac = NEVER + 1  # each read finds out by itself
            if lac == NEVER:
                continue
            for number, wait in enumerate(list(ledger.waits), 1):
                if wait.previous_lac < lac and wait in ledger.waits:
                    self._remove(wait)
                    wait.wake(True)
                if number % WOKEN_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
        del self._ledgers[ledger_id]

    async def _watch_the_clock(self) -> None:
        while True:
            now = trio.current_time()
            for tick in sorted(tick for tick in self._ticks if tick * TICK_S <= now):
                for wait in list(self._ticks[tick]):
                    self._remove(wait)
                    wait.wake(False)
            self._next_tick = min(self._ticks, default=NEVER)
            self._has_ticks = trio.Event()
            with trio.move_on_at(self._next_tick * TICK_S):
                await self._has_ticks.wait()
