"""What befalls brokers, and what operators ask of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import trio

from geminga_broker.errors import BrokerError
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.splitting import BundleGone, NotOwned
from geminga_broker.ownership.unloading import UnloadRunning
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MetadataError

from ..network import Cut
from .bookies import BOOKIE
from .keeper import KEEPER
from .processes import BrokerProcess, Life
from .world import World


class Faults:
    """Each fault is a method of its name. Most of them end by themselves."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng: Random = world.chances.of("faults")
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

    def _for_s(self) -> float:
        """Within a session's time-out, or beyond it."""
        return self._rng.choice((0.3, 1.0, 0.7, 1.3, 3.0)) * self._world.plan.session_s

    def _life(self) -> Life | None:
        lives = self._world.lives()
        return self._rng.choice(lives) if lives else None

    def _after(self, wait_s: float, call: Callable[[], None]) -> None:
        self._world.timeline.at(trio.current_time() + wait_s, call)

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

    # ---- operators ----

    def _held(self) -> tuple[Life, BundleId] | None:
        """A bundle, and who holds it; or one that nobody asked for."""
        found = [
            (life, bundle)
            for life in self._world.ready()
            for bundle in life.service.ownership.owned()
        ]
        return self._rng.choice(found) if found else None

    def _ask(self, life: Life, what: str, work: Callable[[], Awaitable[object]]) -> None:
        """An operator's request at a broker, given up after a while at times."""
        patience_s = self._rng.choice((60.0, 60.0, 0.05, 1.0))

        async def run() -> None:
            said = "done"
            try:
                with trio.move_on_after(patience_s) as scope:
                    said = str(await work())
                if scope.cancelled_caught:
                    said = "given up"
            except (MetadataError, BrokerError, UnloadRunning, NotOwned, BundleGone) as error:
                said = f"{type(error).__name__} {error}"
            self._world.log.add(f"{life.name} {what}: {said}")

        self._world.log.add(f"{life.name} {what}")
        life.nursery.start_soon(run)

    def _unload(self) -> None:
        if found := self._held():
            life, bundle = found
            self._ask(life, f"unload {bundle}", lambda: life.service.unloader.unload(bundle))

    def _unload_to(self) -> Life | None:
        """Who was asked."""
        found = self._held()
        if found is None:
            return None
        life, bundle = found
        other = self._rng.choice(self._world.brokers).broker_id
        unloader = life.service.unloader
        self._ask(life, f"unload {bundle} to {other}", lambda: unloader.unload(bundle, other))
        return life

    def _unload_topic(self) -> None:
        lives = self._world.ready()
        names = [(life, name) for life in lives for name in life.service.topics.loaded]
        if names:
            life, name = self._rng.choice(names)
            topic = TopicName.parse(name)
            self._ask(life, f"unload {name}", lambda: life.service.topics.unload(topic))

    def _split(self, chosen: tuple[Life, BundleId] | None = None) -> Life | None:
        """Who was asked."""
        found = chosen or self._held()
        if found is None:
            return None
        life, bundle = found
        low, end = bundle.bounds
        if end - low <= 1 << 28:
            return None
        unload = self._rng.random() < 0.5
        cut = self._rng.choice(((low + end) // 2, low + self._rng.randrange(1, end - low - 1)))
        splitter = life.service.splitter
        what = f"split {bundle} unload={unload}"
        self._ask(life, what, lambda: splitter.split(bundle, [cut], unload=unload))
        return life

    def _two_splits(self) -> None:
        """At once, of one bundle or of two, at other hashes."""
        found = self._held()
        self._split(found)
        self._split(found if self._rng.random() < 0.5 else None)

    # ---- those who die while something is under way ----

    def _soon_s(self) -> float:
        """About as long as a request or a few of them take."""
        return self._rng.random() * self._rng.choice((4, 20)) * self._world.plan.latency_s

    def _and_kill(self, ask: Callable[[], Life | None]) -> None:
        life = ask()
        if life is not None:
            self._after(self._soon_s(), lambda: self._kill_life(life))

    def _kill_leader(self) -> None:
        """While others do what it has asked for: a round of shedding, or a split."""
        leaders = [each for each in self._world.ready() if each.service.election.is_leader]
        if leaders:
            for _ in range(self._rng.choice((1, 3))):
                self._rng.choice((self._unload_to, self._unload_to, self._split))()
            self._after(self._soon_s(), lambda: self._kill_life(leaders[0]))

    def _kill_life(self, life: Life) -> None:
        for process in self._world.brokers:
            if process.life is life:
                process.kill()
                self._after(self._rng.choice((0.0, 0.5, self._for_s())), process.start)


def void(_result: object) -> None:
    """For calls whose result nobody wants."""
