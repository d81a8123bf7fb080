"""What befalls brokers, and what operators ask of them."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ..network import Cut
from .bookies import BOOKIE
from .keeper import KEEPER
from .operators import Operators
from .processes import BrokerProcess, Life
from .world import World


class Faults(Operators):
    """Each fault is a method of its name. Most of them end by themselves."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.chances.of("faults"))
        self._network = world.network
        self._kinds: dict[str, Callable[[], object]] = {
            "cut-store": self._cut_store,
            "reset-store": self._reset_store,
            "slow-store": lambda: self._slow(KEEPER),
            "missed-changes": self._missed_changes,
            "kill": self._kill,
            "restart": self._restart,
            "pause": self._pause,
            "lost-answer": self._lose_answers,
            "clock-step": self._step_clock,
            "cut-clients": self._cut_clients,
            "cut-link": self._cut_link,
            "stall-link": self._stall_link,
            "cut-bookie": self._cut_bookie,
            "slow-bookie": lambda: self._slow(BOOKIE),
            "unload": self._unload,
            "unload-to": self._unload_to,
            "unload-topic": self._unload_topic,
            "split": self._split,
            "two-splits": self._two_splits,
            "split-and-kill": lambda: self._and_kill(self._split),
            "unload-and-kill": lambda: self._and_kill(self._unload_to),
            "leader-killed": self._kill_leader,
            "split-and-lose": self._split_and_lose,
            "split-and-fail": self._split_and_fail,
            "split-and-cut": lambda: self._and_cut(self._split),
            "split-and-unload": self._split_and_unload,
            "unload-and-fail": self._unload_and_fail,
            "long-pause": self._long_pause,
            "rivals": self._rivals,
            "node-removed": self._remove_node,
        }

    async def run(self) -> None:
        """All faults of the plan."""
        rng, plan = self._rng, self._world.plan
        await trio.sleep(rng.random())
        for _ in range(plan.fault_count):
            kind = rng.choice(plan.faults)
            self._world.log.add(f"fault {kind}")
            self._kinds[kind]()
            await trio.sleep(rng.expovariate(1 / plan.fault_pause_s))

    def _life(self) -> Life | None:
        lives = self._world.lives()
        return self._rng.choice(lives) if lives else None

    # ---- the store ----

    def _cut_store(self) -> None:
        """One broker, or all of them, also one way."""
        life = self._life()
        name = "" if life is None or self._rng.random() < 0.2 else life.name
        for_s = self._for_s()
        ways = ((name, KEEPER), (KEEPER, name))
        for way in self._rng.choice((ways, ways, ways[:1], ways[1:])):
            self._network.cut(*way, for_s)

    def _reset_store(self) -> None:
        if life := self._life():
            life.link.drop()

    def _slow(self, name: str) -> None:
        slow_to = self._network.slow_to
        slow_to[name] = self._rng.choice((0.1, 0.5, 2.0))
        self._after(self._for_s(), lambda: void(slow_to.pop(name, None)))

    def _missed_changes(self) -> None:
        """A broker is told that it missed some; the next ones it does miss."""
        if life := self._life():
            life.link.miss(self._rng.choice((0, 1, 3)))

    def _lose_answers(self) -> None:
        """The next changes are made, but their answers don't come."""
        if life := self._life():
            life.link.lose_answers(self._rng.choice((1, 1, 2)))

    # ---- processes ----

    def _process(self) -> BrokerProcess:
        living = [each for each in self._world.brokers if each.life is not None]
        return self._rng.choice(living or self._world.brokers)

    def _kill(self) -> None:
        chosen = self._world.brokers if self._rng.random() < 0.1 else [self._process()]
        for process in chosen:
            process.kill()
            self._after(self._rng.choice((0.0, 0.5, self._for_s())), process.start)

    def _restart(self) -> None:
        process = self._process()
        process.stop()
        self._after(self._rng.choice((0.5, 5.0, 12.0)), process.start)

    def _pause(self) -> None:
        """At once, or when it is about to send something."""
        life = self._life()
        if life is not None:
            self._world.freeze(life.name, self._for_s())

    def _step_clock(self) -> None:
        """The wall clock of all machines, forward or back; sessions don't go by it."""
        self._world.wall.offset_s += self._rng.choice((-60.0, -1.0, 0.5, 5.0, 60.0))

    # ---- clients, the bookie ----

    def _cut_clients(self) -> None:
        process = self._process()
        for link in list(process.sockets.links.values()):
            link.cut(self._rng.choice((Cut.RESET, Cut.SILENT)))

    def _cut_link(self) -> None:
        links = [each for one in self._world.brokers for each in one.sockets.links.values()]
        if links:
            self._rng.choice(links).cut(self._rng.choices(list(Cut), (5, 4, 1))[0])

    def _stall_link(self) -> None:
        links = [each for one in self._world.brokers for each in one.sockets.links.values()]
        if links:
            link = self._rng.choice(links)
            pipe = self._rng.choice((link.up, link.down))
            pipe.stalled_until_s = trio.current_time() + self._for_s()

    def _cut_bookie(self) -> None:
        life = self._life()
        if life is not None:
            ways = ((life.name, BOOKIE), (BOOKIE, life.name))
            for way in self._rng.choice((ways, ways[:1], ways[1:])):
                self._network.cut(*way, self._for_s())


def void(_result: object) -> None:
    """For calls whose result nobody wants."""
