"""What goes wrong, as the plan says; then it stops, and all must come right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import trio

from geminga_protocol.topic_name import TopicName

from .cluster import Cluster
from .network import Cut, CutPlan, Link, Pipe
from .plan import Plan


class Faults:
    """Each fault is a method of its name."""

    def __init__(self, plan: Plan, cluster: Cluster, rng: Random) -> None:
        self._plan = plan
        self._cluster = cluster
        self._rng = rng
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "cut": self._cut,
            "cut-at-command": self._cut_at_command,
            "cut-in-frame": self._cut_in_frame,
            "stall": self._stall,
            "unload": self._unload,
            "kill": self._kill,
            "power-loss": self._power_loss,
            "full-disk": self._full_disk,
            "restart": self._restart,
            "slow-disk": self._slow_disk,
            "failing-disk": self._failing_disk,
        }

    async def run(self) -> None:
        """All faults of the plan; when it returns the broker lives and nothing more goes wrong."""
        rng, plan = self._rng, self._plan
        for _ in range(plan.fault_count):
            await trio.sleep(rng.expovariate(1 / plan.fault_pause_s))
            await self._kinds[rng.choice(plan.faults)]()
        network = self._cluster.network
        network.is_calm = True
        self._cluster.disk.set_failing(0.0)
        self._cluster.disk.set_full(None)
        for link in network.links.values():
            link.up.cut = link.down.cut = None

    def _how(self) -> Cut:
        return self._rng.choices(list(Cut), (5, 4, 1))[0]

    def _link(self) -> Link | None:
        links = list(self._cluster.network.links.values())
        return self._rng.choice(links) if links else None

    def _pipe(self) -> Pipe | None:
        link = self._link()
        return None if link is None else self._rng.choice((link.up, link.down))

    async def _cut(self) -> None:
        link = self._link()
        if link is not None:
            link.cut(self._how())

    async def _cut_at_command(self) -> None:
        pipe = self._pipe()
        if pipe is not None:
            pipe.cut = CutPlan(self._rng.randint(0, 12), 0.0, self._how())

    async def _cut_in_frame(self) -> None:
        pipe = self._pipe()
        if pipe is not None:
            pipe.cut = CutPlan(self._rng.randint(0, 12), self._rng.random(), self._how())

    async def _stall(self) -> None:
        pipe = self._pipe()
        if pipe is not None:
            pipe.stalled_until_s = trio.current_time() + self._rng.choice((0.3, 3.0, 15.0))
            self._cluster.disk.log.add(f"{pipe.name} stalls until {pipe.stalled_until_s}")

    async def _unload(self) -> None:
        life = self._cluster.life
        names = list(life.service.topics.loaded) if life is not None else []
        if names and life is not None:
            name = self._rng.choice(names)
            self._cluster.disk.log.add(f"unload {name}")
            with trio.move_on_after(20):
                await life.service.topics.unload(TopicName.parse(name))

    async def _kill(self) -> None:
        how = self._rng.choice((Cut.RESET, Cut.END))
        await self._cluster.kill(how, steps=self._steps())
        await self._back()

    async def _power_loss(self) -> None:
        how = self._rng.choice((Cut.RESET, Cut.SILENT))
        await self._cluster.kill(how, power=True, steps=self._steps())
        await self._back()

    def _steps(self) -> int:
        return self._rng.choice((0, self._rng.randint(1, 12), self._rng.randint(1, 60)))

    async def _full_disk(self) -> None:
        disk = self._cluster.disk
        disk.set_full(self._rng.choice((0, 20_000, 100_000)))
        await trio.sleep(self._rng.choice((0.3, 3.0)))
        disk.set_full(None)

    async def _restart(self) -> None:
        await self._cluster.stop()
        await self._back()

    async def _back(self) -> None:
        await trio.sleep(self._rng.choice((0.0, 0.1, 2.0)))
        await self._cluster.start()

    async def _slow_disk(self) -> None:
        self._cluster.disk.slow_until_s = trio.current_time() + self._rng.choice((0.2, 2.0))

    async def _failing_disk(self) -> None:
        disk = self._cluster.disk
        disk.set_failing(self._rng.choice((0.05, 0.5)))
        await trio.sleep(self._rng.random())
        disk.set_failing(0.0)
