"""All that a run has."""

from __future__ import annotations

import trio

from geminga_broker.cluster.addresses import Addresses
from geminga_broker.cluster.namespaces import Namespaces
from geminga_broker.loadbalance.manager import LoadManager
from geminga_broker.loadbalance.usage import Machine
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.finder import Placement
from geminga_runtime.errors import ConnectFailed
from geminga_runtime.stream import FramedStream

from ..books import Books
from ..chance import Chances, EventLog, Wall
from ..ledgers.network import Network, Timeline
from .bookies import Bookie
from .claims import Claims
from .freezing import Freezer
from .keeper import Keeper
from .plan import BrokersPlan
from .processes import BrokerProcess, Life
from .watching import Watchman


class World:
    """Lives as long as the run."""

    def __init__(
        self,
        plan: BrokersPlan,
        chances: Chances,
        books: Books,
        wall: Wall,
        nursery: trio.Nursery,
    ) -> None:
        self.plan = plan
        self.chances = chances
        self.books = books
        self.wall = wall
        self.nursery = nursery
        self.timeline = Timeline()
        self.network = Network(
            self.timeline, chances.of("messages"), books.log, plan.latency_s, is_ordered=True
        )
        self.freezer = Freezer()
        self.keeper = Keeper(self.network)
        self.namespaces = Namespaces(self.keeper.store)
        """As nobody can miss a change of them."""
        self.bookie = Bookie(nursery)
        self.brokers = [BrokerProcess(number, self) for number in range(plan.brokers)]
        self.watchman = Watchman(self)
        self.claims = self.keeper.claims = Claims(self)

    @property
    def log(self) -> EventLog:
        """Of all events."""
        return self.books.log

    def prepare(self, process: BrokerProcess, life: Life) -> None:
        """Of a broker that starts: what the simulation has in place of the product's."""
        service = life.service

        async def hand_over(broker_id: str, bundle: BundleId, topics: list[str]) -> Addresses:
            self.claims.chosen.add((bundle, broker_id))
            return await process.hand_over(life, broker_id, topics)

        service.unloader.handover = hand_over
        manager = LoadManager(
            self.plan.config,
            service._parts_for_load_manager(),
            machine=Quiet(),
            chance=self.chances.of(f"load manager of {life.name}"),
        )
        service.load_manager = manager
        placement: Placement = Drawn(self, life) if self.plan.placement == "drawn" else manager
        service.finder.placement = Noted(self, placement)

    def lives(self) -> list[Life]:
        """Brokers that are there and have their parts."""
        found = [each.life for each in self.brokers]
        return [each for each in found if each is not None and hasattr(each, "service")]

    def ready(self) -> list[Life]:
        """Brokers that serve."""
        return [each for each in self.lives() if each.is_ready]

    def running(self) -> list[Life]:
        """Brokers that don't stand still."""
        return [each for each in self.lives() if not self.freezer.is_frozen(each.name)]

    def is_of_the_dead(self) -> bool:
        """Whether the current task is of a process that was killed."""
        if not trio.lowlevel.in_trio_task():
            return False
        return self.freezer.owner(trio.lowlevel.current_task()) in self.network.dead

    async def connect(self, host: str, port: int, deadline: float) -> FramedStream:
        """The SDK's `Connector`."""
        for each in self.brokers:
            if each.host == host:
                return await each.sockets.connect(host, port, deadline)
        raise ConnectFailed(f"{host}:{port}: no such host")

    # ---- SIGSTOP ----

    def freeze(self, name: str, for_s: float) -> None:
        """A process stands still for a while."""
        if not self.freezer.is_frozen(name) and name not in self.network.dead:
            self.log.add(f"{name} stands still for {for_s}")
            self.freezer.freeze(name)
            self.network._paused[name] = []
            self.timeline.at(trio.current_time() + for_s, lambda: self.thaw(name))

    def thaw(self, name: str) -> None:
        """It goes on."""
        if self.freezer.is_frozen(name):
            self.log.add(f"{name} goes on")
            self.freezer.thaw(name)
            if self.plan.looks_at_once:
                self.watchman.look()
            self.network._resume(name)


class Quiet(Machine):
    """A machine that nothing is known of: the same at each run."""

    cores = 2
    memory_bytes = 1 << 30
    resident_bytes = 1 << 28

    def read(self, path: str) -> str:
        """See `Machine.read`."""
        raise FileNotFoundError(path)

    def process_busy_s(self) -> float:
        """See `Machine.process_busy_s`."""
        return 0.0

    def names(self, path: str) -> list[str]:
        """See `Machine.names`."""
        return []


class Noted:
    """A placement whose choices are known."""

    def __init__(self, world: World, placement: Placement) -> None:
        self._world = world
        self._placement = placement

    @property
    def centralized(self) -> bool:
        """See `Placement.centralized`."""
        return self._placement.centralized

    def has_non_persistent(self, bundle: BundleId) -> None:
        """See `Placement.has_non_persistent`."""
        self._placement.has_non_persistent(bundle)

    async def choose(self, bundle: BundleId) -> str | None:
        """See `Placement.choose`."""
        chosen = await self._placement.choose(bundle)
        if chosen is not None:
            self._world.claims.chosen.add((bundle, chosen))
        return chosen


class Drawn:
    """Placement anywhere: two questions may have two answers."""

    centralized = True

    def __init__(self, world: World, life: Life) -> None:
        self._rng = world.chances.of(f"placement of {life.name}")
        self._life = life

    def has_non_persistent(self, bundle: BundleId) -> None:
        """Any broker serves any topic."""

    async def choose(self, bundle: BundleId) -> str | None:
        """See `Placement.choose`."""
        ids = await self._life.service.brokers.ids()
        return self._rng.choice(ids) if ids else None
