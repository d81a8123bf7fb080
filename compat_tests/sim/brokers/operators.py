"""What operators ask of brokers, and those that die while something is under way."""

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

from .processes import Life
from .world import World


class Operators:
    """Each request is a method of its name."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng

    def _for_s(self) -> float:
        """Within a session's time-out, or beyond it."""
        return self._rng.choice((0.3, 1.0, 0.7, 1.3, 3.0)) * self._world.plan.session_s

    def _after(self, wait_s: float, call: Callable[[], None]) -> None:
        self._world.timeline.at(trio.current_time() + wait_s, call)

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
