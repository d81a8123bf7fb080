"""What operators ask of brokers, and those that die while something is under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import trio
from kazoo.protocol.serialization import Create2, Delete, SetData

from geminga_broker.errors import BrokerError
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.records import OWNERS_PATH, owner_path
from geminga_broker.ownership.splitting import BundleGone, NotOwned
from geminga_broker.ownership.unloading import UnloadRunning
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MetadataError

from .keeper import KEEPER
from .processes import Life
from .world import World

CUTS_PATH = "/admin/local-policies"
"""Where a namespace's bundles stand."""


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

    def _unload(self) -> Life | None:
        """Who was asked."""
        found = self._held()
        if found is None:
            return None
        life, bundle = found
        self._ask(life, f"unload {bundle}", lambda: life.service.unloader.unload(bundle))
        return life

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

    # ---- what is aimed at the middle of something ----

    def _unload_and_fail(self) -> None:
        """The request to remove the node is lost."""
        if life := self._rng.choice((self._unload, self._unload_to))():
            life.link.lose_request(Delete, OWNERS_PATH)

    def _split_and_fail(self) -> None:
        """One of its changes is lost."""
        if life := self._split():
            wanted = ((Create2, OWNERS_PATH, 1), (Delete, OWNERS_PATH, 0), (SetData, CUTS_PATH, 0))
            life.link.lose_request(*self._rng.choice(wanted))

    def _and_cut(self, ask: Callable[[], Life | None]) -> None:
        """From the store, beyond the session, when a change may have been made."""
        if life := ask():
            behind = self._rng.choice((0, 1, 2, 2, 3))
            life.link.lose_answers(1, behind)
            for_s = self._rng.choice((1.3, 3.0)) * self._world.plan.session_s
            self._after(self._soon_s(), lambda: self._world.network.cut(life.name, KEEPER, for_s))

    def _split_and_lose(self) -> None:
        """The answer to one of its changes."""
        if life := self._split():
            life.link.lose_answers(1, self._rng.choice((0, 1, 2, 2, 2, 3)))

    def _split_and_unload(self) -> None:
        """Of one bundle, into many parts."""
        found = self._held()
        if found is None:
            return
        life, bundle = found
        low, end = bundle.bounds
        if end - low <= 1 << 28:
            return
        cuts = [low + (end - low) * part // 8 for part in range(1, 8)]
        other = self._rng.choice(self._world.brokers).broker_id
        service = life.service
        self._ask(life, f"split {bundle}", lambda: service.splitter.split(bundle, cuts))
        self._after(
            self._soon_s() / 4,
            lambda: self._ask(
                life,
                f"unload {bundle} to {other} while it is split",
                lambda: service.unloader.unload(bundle, other),
            ),
        )

    def _rivals(self) -> None:
        """All are told at once that they were chosen for a bundle that is unloaded, as by leaders
        that follow each other.
        """
        found = self._held()
        loaded = [] if found is None else found[0].service.topics.loaded
        topics = [] if found is None else [each for each in loaded if found[1].covers(each)]
        if found is None or not topics:
            return
        life, bundle = found
        topic = TopicName.parse(self._rng.choice(topics))
        self._ask(life, f"unload {bundle}", lambda: life.service.unloader.unload(bundle))
        for each in self._world.ready():
            self._world.claims.chosen.add((bundle, each.service.addresses.broker_id))
            self._after(self._soon_s(), partial(self._take, each, topic))

    def _take(self, life: Life, topic: TopicName) -> None:
        locate = life.service.lookup.locate
        self._ask(life, f"take {topic}", lambda: locate(topic, authoritative=True))

    def _long_pause(self) -> None:
        """Who holds a bundle stands still until its session has ended."""
        if found := self._held():
            for_s = self._rng.choice((1.1, 1.5, 3.0)) * self._world.plan.session_s
            self._world.freeze(found[0].name, for_s)

    def _remove_node(self) -> None:
        """Somebody removes an owner's node by hand."""
        if found := self._held():
            path = owner_path(found[1])
            if self._world.keeper.rows.read(path) is not None:
                self._world.keeper.remove(path)

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
