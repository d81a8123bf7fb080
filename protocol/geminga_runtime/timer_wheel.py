"""Many timers, one task: for keep-alives, ack timeouts, redelivery delays, idle flushes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import trio

from geminga_runtime.waiters import Wakeup

TICK_S = 0.02


class TimerHandle:
    """A scheduled callback; `cancel` may be called any time, also after it ran."""

    __slots__ = ("_callback", "_slot")

    def __init__(self, callback: Callable[[], object], slot: dict[TimerHandle, None]) -> None:
        self._callback = callback
        self._slot: dict[TimerHandle, None] | None = slot

    @property
    def active(self) -> bool:
        """Whether it is still to run."""
        return self._slot is not None

    def cancel(self) -> None:
        """Do not run it. Idempotent."""
        if self._slot is not None:
            self._slot.pop(self, None)
            self._slot = None

    def _run(self) -> None:
        if self._slot is not None:
            self._slot = None
            self._callback()


class TimerWheel:
    """Callbacks after a delay, never early and at most a tick (and a busy loop's turn) late.

    To schedule and to cancel costs a dict entry; timers of one tick share one slot. Callbacks are
    short and synchronous; what they raise comes out of `run`, since it is a defect.
    """

    def __init__(self, *, tick_s: float = TICK_S) -> None:
        if tick_s <= 0:
            raise ValueError("tick_s must be positive")
        self._tick_s = tick_s
        self._slots: dict[int, dict[TimerHandle, None]] = {}
        self._ticks: list[int] = []
        self._wakeup = Wakeup()
        self._sleeps_till = -math.inf
        self._run_tick = -1

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def schedule(self, callback: Callable[[], object], delay_s: float) -> TimerHandle:
        """Run `callback` once, `delay_s` seconds of Trio's clock from now."""
        due_s = trio.current_time() + max(delay_s, 0.0)
        # Never the tick that is just being run: a callback that schedules itself anew would spin.
        tick = max(math.ceil(due_s / self._tick_s), self._run_tick + 1)
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._slots[tick] = {}
            heapq.heappush(self._ticks, tick)
            if tick * self._tick_s < self._sleeps_till:
                self._wakeup.set()
        handle = TimerHandle(callback, slot)
        slot[handle] = None
        return handle

    async def run(self) -> None:
        """Run what is due, for ever; started once, by the owner."""
        while True:
            self._sleeps_till = self._next_due_s()
            with trio.move_on_at(self._sleeps_till):
                await self._wakeup.wait()
            self._sleeps_till = -math.inf
            self._run_due(trio.current_time())

    def _next_due_s(self) -> float:
        """When the first slot that still holds a timer is due; empty ones before it are dropped."""
        while self._ticks:
            tick = self._ticks[0]
            if self._slots[tick]:
                return tick * self._tick_s
            heapq.heappop(self._ticks)
            del self._slots[tick]
        return math.inf

    def _run_due(self, now_s: float) -> None:
        while self._ticks and self._ticks[0] * self._tick_s <= now_s:
            self._run_tick = heapq.heappop(self._ticks)
            slot = self._slots.pop(self._run_tick)
            for handle in list(slot):
                handle._run()
