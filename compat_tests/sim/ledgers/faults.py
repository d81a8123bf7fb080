"""What goes wrong, as the plan says."""

from __future__ import annotations

from collections.abc import Callable

import trio

from .bookies import BookieProcess
from .clients import Process
from .keeper import KEEPER
from .world import World


class Faults:
    """Each fault is a method of its name. Most of them end by themselves."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        self._world = world
        self._nursery = nursery
        self._rng = world.chances.of("faults")
        self._network = world.network
        self._lost_disks = 0
        self._kinds: dict[str, Callable[[], None]] = {
            "isolate": self._isolate,
            "one-way": self._one_way,
            "cut": self._cut,
            "lossy": self._lossy,
            "slow-network": self._slow_network,
            "slow-link": self._slow_link,
            "reset": self._reset,
            "kill": lambda: self._kill(power=False),
            "power-loss": lambda: self._kill(power=True),
            "restart": self._restart,
            "pause": self._pause,
            "slow-disk": self._slow_disk,
            "full-disk": self._full_disk,
            "failing-disk": self._failing_disk,
            "lost-disk": self._lost_disk,
            "expire": self._expire,
            "lossy-metadata": self._lossy_metadata,
            "isolate-metadata": self._isolate_metadata,
            "slow-metadata": self._slow_metadata,
            "crash-client": self._crash_client,
            "pause-client": self._pause_client,
        }

    async def run(self) -> None:
        """All faults of the plan."""
        rng, plan = self._rng, self._world.plan
        await trio.sleep(rng.random() * 0.5)
        for _ in range(plan.fault_count):
            kind = rng.choice(plan.faults)
            self._world.books.log.add(f"fault {kind}")
            self._kinds[kind]()
            await trio.sleep(rng.expovariate(1 / plan.fault_pause_s))

    def _for_s(self) -> float:
        return self._rng.choice((0.1, 1.0, 7.0, 20.0))

    def _bookie(self) -> BookieProcess:
        return self._rng.choice(list(self._world.bookies.values()))

    def _process(self) -> Process | None:
        """Writers rather than others."""
        living = self._world.living()
        writers = [each for each in living if each.name.startswith("writer")]
        from_all = self._rng.random() < 0.3 or not writers
        return self._rng.choice(living if from_all else writers) if living else None

    def _after(self, wait_s: float, call: Callable[[], None]) -> None:
        self._world.timeline.at(trio.current_time() + wait_s, call)

    # ---- the network ----

    def _isolate(self) -> None:
        """One bookie from all, or from clients only."""
        bookie, for_s = self._bookie().bookie_id, self._for_s()
        self._network.cut("", bookie, for_s)
        if self._rng.random() < 0.7:
            self._network.cut(bookie, "", for_s)

    def _one_way(self) -> None:
        """Requests or answers of one bookie are lost."""
        bookie = self._bookie().bookie_id
        way = ("", bookie) if self._rng.random() < 0.3 else (bookie, "")
        self._network.cut(*way, self._for_s())

    def _cut(self) -> None:
        """One client from one bookie, or from half of them."""
        process = self._process()
        if process is None:
            return
        count = self._rng.choice((1, len(self._world.bookies) // 2))
        for bookie in self._rng.sample(sorted(self._world.bookies), count):
            for_s = self._for_s()
            ways = ((process.name, bookie), (bookie, process.name))
            for way in self._rng.choice((ways, ways[:1], ways[1:])):
                self._network.cut(*way, for_s)

    def _lossy(self) -> None:
        share = self._rng.choice((0.02, 0.2, 0.6))
        self._network.lost_share = share
        self._after(self._for_s(), lambda: setattr(self._network, "lost_share", 0.0))

    def _slow_network(self) -> None:
        """Of one bookie, or of a client."""
        process = self._process()
        to_client = process is not None and self._rng.random() < 0.3
        name = process.name if process and to_client else self._bookie().bookie_id
        self._slow(name)

    def _slow(self, name: str) -> None:
        slow_to = self._network.slow_to
        slow_to[name] = self._rng.choice((0.1, 2.0, 8.0))
        self._after(self._for_s(), lambda: void(slow_to.pop(name, None)))

    def _slow_link(self) -> None:
        """Of one client to some bookies, so that others overtake it."""
        process = self._process()
        if process is None:
            return
        slow_ways, slow_s = self._network.slow_ways, self._rng.choice((0.5, 4.0))
        for bookie in self._rng.sample(sorted(self._world.bookies), self._rng.choice((1, 1, 2))):
            for_s = self._for_s()
            for way in ((process.name, bookie), (bookie, process.name)):
                slow_ways[way] = slow_s
                self._after(for_s, lambda way=way: void(slow_ways.pop(way, None)))

    def _reset(self) -> None:
        for wire in self._bookie().wires:
            if self._rng.random() < 0.5:
                wire.reset()

    # ---- bookies ----

    def _kill(self, *, power: bool) -> None:
        """One, or all at once."""
        rng = self._rng
        everybody = list(self._world.bookies.values())
        chosen = everybody if rng.random() < 0.2 else [self._bookie()]
        if self._world.plan.is_unsynced:
            chosen = [each for each in chosen[:1] if self._world.may_doubt(each)]
        for bookie in chosen:
            steps = rng.choice((0, rng.randint(1, 12), rng.randint(1, 60)))
            down_s = rng.choice((0.0, 0.5, 5.0, 30.0))
            bookie.kill(power=power, steps=steps, down_s=down_s)

    def _restart(self) -> None:
        self._bookie().stop(self._rng.choice((0.0, 2.0)))

    def _pause(self) -> None:
        self._network.pause(self._bookie().bookie_id, self._for_s())

    def _slow_disk(self) -> None:
        self._bookie().slow_until_s = trio.current_time() + self._rng.choice((0.2, 2.0))

    def _full_disk(self) -> None:
        bookie = self._bookie()
        bookie.set_full(self._rng.choice((0, 5_000, 50_000)))
        self._after(self._for_s(), lambda: bookie.set_full(None))

    def _failing_disk(self) -> None:
        bookie = self._bookie()
        bookie.set_failing(self._rng.choice((0.05, 0.5, 1.0)))
        self._after(self._for_s(), lambda: bookie.set_failing(0.0))

    def _lost_disk(self) -> None:
        """An empty one in its place; and a new machine with another id."""
        bookie = self._bookie()
        if self._world.plan.is_unsynced:
            if self._world.may_doubt(bookie) and bookie.has_served:
                self._world.books.log.add(f"{bookie.bookie_id} loses its disk")
                bookie.lose_disk(self._rng.choice((0.0, 3.0)))
            return
        if self._lost_disks >= self._world.plan.losable_disks or not bookie.has_served:
            return
        self._lost_disks += 1
        self._world.books.log.add(f"{bookie.bookie_id} loses its disk")
        bookie.lose_disk(self._rng.choice((0.0, 3.0)))
        new = self._world.add_bookie(len(self._world.bookies))
        self._nursery.start_soon(new.run)

    # ---- metadata ----

    def _expire(self) -> None:
        rng, process = self._rng, self._process()
        store = self._bookie().store if process is None or rng.random() < 0.3 else process.store
        if store is not None:
            store.expire()

    def _lossy_metadata(self) -> None:
        share = self._network.lost_share_to
        share[KEEPER] = self._rng.choice((0.1, 0.5))
        self._after(self._for_s(), lambda: void(share.pop(KEEPER, None)))

    def _isolate_metadata(self) -> None:
        process = self._process()
        name = "" if process is None or self._rng.random() < 0.3 else process.name
        ways = ((name, KEEPER), (KEEPER, name))
        for_s = self._for_s()
        for way in self._rng.choice((ways, ways[:1], ways[1:])):
            self._network.cut(*way, for_s)

    def _slow_metadata(self) -> None:
        self._slow(KEEPER)

    # ---- clients ----

    def _crash_client(self) -> None:
        process = self._process()
        if process is not None:
            process.crash()

    def _pause_client(self) -> None:
        process = self._process()
        if process is not None:
            self._network.pause(process.name, self._for_s())


def void(_result: object) -> None:
    """For calls whose result nobody wants."""
