"""What is under way between processes: it is late, lost, overtaken, or never leaves."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

import trio

from ..chance import EventLog
from .script import Script

Deliver = Callable[[], None]


CALLS_MAX = 200_000
"""Messages and time-outs of one run; with more of them somebody tries again without end."""


class Timeline:
    """Calls at their times, all made by one task."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Deliver]] = []
        self._count = 0
        self._scope = trio.CancelScope()

    def at(self, when_s: float, call: Deliver) -> None:
        """Call it then."""
        self._count += 1
        if self._count > CALLS_MAX:
            self._scope.deadline = 0.0
        heapq.heappush(self._calls, (when_s, self._count, call))
        if when_s < self._scope.deadline:
            self._scope.deadline = when_s

    async def run(self) -> None:
        """For ever."""
        while True:
            if self._count > CALLS_MAX:
                raise RuntimeError(f"{CALLS_MAX} messages and time-outs: somebody spins")
            while self._calls and self._calls[0][0] <= trio.current_time():
                heapq.heappop(self._calls)[2]()
            self._scope = trio.CancelScope()
            if self._calls:
                self._scope.deadline = self._calls[0][0]
            with self._scope:
                await trio.sleep_forever()


class Network:
    """Between processes, by their names."""

    def __init__(
        self, timeline: Timeline, rng: Random, log: EventLog, latency_s: float, *, is_ordered: bool
    ) -> None:
        self.timeline = timeline
        self.rng = rng
        self.log = log
        self.latency_s = latency_s
        self.is_calm = False
        self.lost_share = 0.0
        self.lost_share_to: dict[str, float] = {}
        self.slow_to: dict[str, float] = {}
        self.slow_ways: dict[tuple[str, str], float] = {}
        self._is_ordered = is_ordered
        self._last: dict[tuple[str, str], float] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._paused: dict[str, list[Deliver]] = {}
        self.dead: set[str] = set()
        """Processes that are gone for good."""
        self.scripts: dict[str, Script] = {}
        """Of processes whose messages are late, or lost, by their kind."""

    def send(self, source: str, target: str, deliver: Deliver, kind: str) -> None:
        """One message; it arrives later, or never. Its kind is that of the request: an answer has
        it too."""
        if source in self.dead:
            return
        if source in self._paused:
            self._paused[source].append(lambda: self.send(source, target, deliver, kind))
            return
        way = (source, target)
        share = max(self.lost_share, *(self.lost_share_to.get(each, 0.0) for each in way))
        if self._is_cut(way) or (share and self.rng.random() < share):
            return
        extra_s = self.slow_ways.get(way, 0.0)
        if self.slow_to:
            extra_s += sum(self.slow_to.get(each, 0.0) for each in way)
        delay_s = self.rng.random() * self.latency_s
        if extra_s:
            delay_s += self.rng.random() * extra_s
        if self.scripts:
            script_s, deliver = self._by_script(way, deliver, kind)
            if script_s is None:
                return
            delay_s += script_s
        when_s = trio.current_time() + delay_s
        if self._is_ordered:
            when_s = self._last[way] = max(when_s, self._last.get(way, 0.0))
        self.timeline.at(when_s, lambda: self._arrive(target, deliver))

    def _by_script(
        self, way: tuple[str, str], deliver: Deliver, kind: str
    ) -> tuple[float | None, Deliver]:
        source, target = way
        if script := self.scripts.get(source):
            return script.lateness(target, kind), script.with_what_follows(target, kind, deliver)
        if script := self.scripts.get(target):
            return script.lateness(source, f"{kind} answer"), deliver
        return 0.0, deliver

    def _is_cut(self, way: tuple[str, str]) -> bool:
        source, target = way
        cuts = self._cuts
        return bool(cuts) and (way in cuts or (source, "") in cuts or ("", target) in cuts)

    def _arrive(self, target: str, deliver: Deliver) -> None:
        if target in self._paused:
            self._paused[target].append(deliver)
        elif target not in self.dead:
            deliver()

    def cut(self, source: str, target: str, for_s: float) -> None:
        """Nothing leaves for there for a while; "": from or to anybody."""
        way = (source, target)
        self._cuts[way] = self._cuts.get(way, 0) + 1
        self.log.add(f"cut {source or 'all'} -> {target or 'all'} for {for_s}")
        self.timeline.at(trio.current_time() + for_s, lambda: self._join(way))

    def _join(self, way: tuple[str, str]) -> None:
        left = self._cuts.get(way, 0) - 1
        if left > 0:
            self._cuts[way] = left
        else:
            self._cuts.pop(way, None)

    def pause(self, name: str, for_s: float) -> None:
        """As SIGSTOP: nothing comes in or goes out for a while, and then all at once."""
        if name not in self._paused:
            self.log.add(f"{name} paused for {for_s}")
            self._paused[name] = []
            self.timeline.at(trio.current_time() + for_s, lambda: self._resume(name))

    def _resume(self, name: str) -> None:
        for each in self._paused.pop(name, ()):
            each()

    def heal(self) -> None:
        """From now on all arrives, soon."""
        self._cuts.clear()
        self.lost_share = 0.0
        self.lost_share_to.clear()
        self.slow_to.clear()
        self.slow_ways.clear()
        self.scripts.clear()
        self.is_calm = True
        for name in list(self._paused):
            self._resume(name)
