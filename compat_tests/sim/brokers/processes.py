"""Brokers that are started, stopped, killed, stopped by SIGSTOP, and started again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from geminga_bookie.client.client import BookkeeperClient
from geminga_bookie.client.directory import KnownBookies
from geminga_broker.broker import LOAD_BALANCE, RECORDS
from geminga_broker.cluster.addresses import Addresses
from geminga_broker.errors import BrokerError
from geminga_broker.log.factory import ManagedLedgerFactory
from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.records import OWNERS_PATH
from geminga_broker.process import log_options
from geminga_broker.service import BrokerService
from geminga_broker.session.serving import handle_connection
from geminga_broker.topic.moving import NOWHERE
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MetadataError
from geminga_runtime.metadata.cached import CachedMetadataStore
from geminga_runtime.metadata.zookeeper import ZooKeeperMetadataStore
from geminga_runtime.stream import FramedStream
from geminga_runtime.waiters import Promise

from ..network import Cut
from ..network import Network as Sockets
from .bookies import Door
from .link import SimLink

if TYPE_CHECKING:
    from .world import World

START_RETRY_S = 1.0
HANDOVER_CALL_S = 4.0


class Life:
    """One life of a broker: from its start until it is killed or has stopped."""

    def __init__(self, name: str, nursery: trio.Nursery) -> None:
        self.name = name
        self.nursery = nursery
        """Of all its tasks."""
        self.scope = trio.CancelScope()
        """Cancelled for an orderly stop."""
        self.is_dead = False
        self.is_ready = False
        """It is registered, and takes clients."""
        self.was_taking = False
        """The stop cut off a claim without an answer: its node, if there is one, goes with the
        session."""
        self.service: BrokerService
        self.store: ZooKeeperMetadataStore

    @property
    def link(self) -> SimLink:
        """Its connection to the keeper."""
        link = self.store._calls._link
        assert isinstance(link, SimLink)
        return link


@asynccontextmanager
async def _tasks() -> AsyncIterator[trio.Nursery]:
    """A nursery that is cancelled at the end, before what its tasks use is closed."""
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        finally:
            nursery.cancel_scope.cancel()


class BrokerProcess:
    """One broker's machine. `life` is None while there is none."""

    def __init__(self, number: int, world: World) -> None:
        self.host = f"b{number}"
        self.addresses = Addresses(f"pulsar://{self.host}:6650", f"http://{self.host}:8080")
        self.broker_id = self.addresses.broker_id
        self.sockets = Sockets(world.chances.of(f"{self.host} sockets"), world.books.log, self.host)
        self.life: Life | None = None
        self.lives = 0
        self.is_wanted = False
        """Whether a supervisor starts it again."""
        self.is_over = False
        self._world = world
        self._wakeup = trio.Event()

    async def supervise(self) -> None:
        """Start it whenever it is wanted and not there; until cancelled."""
        while True:
            while not self.is_wanted:
                await self._wakeup.wait()
            try:
                await self._live()
            except* MetadataError as errors:
                self._world.books.log.add(f"{self.host} can't start: {errors.exceptions[0]}")
            await trio.sleep(START_RETRY_S)

    def start(self) -> None:
        """It is wanted from now on, unless all is over: a fault's start may come late."""
        if self.is_over:
            return
        self.is_wanted = True
        wakeup, self._wakeup = self._wakeup, trio.Event()
        wakeup.set()

    async def _live(self) -> None:
        world = self._world
        self.lives += 1
        name = f"{self.host}.{self.lives}"
        world.books.log.add(f"{name} starts")
        world.freezer.belongs(name)
        try:
            async with trio.open_nursery() as nursery:
                life = self.life = Life(name, nursery)
                try:
                    with life.scope:
                        await self._serve(life)
                finally:
                    if not life.is_dead:
                        self._end(life)
                    nursery.cancel_scope.cancel()
        finally:
            world.freezer.ended()
            world.books.log.add(f"{name} is gone")

    def _end(self, life: Life) -> None:
        """The process is gone: nothing of it is heard any more."""
        life.is_dead = True
        if self.life is life:
            self.life = None
        self._world.network.dead.add(life.name)
        if (link := self._world.keeper.links.get(life.name)) is not None:
            link.die()
        self.sockets.close(Cut.RESET)

    async def _serve(self, life: Life) -> None:
        world = self._world
        async with AsyncExitStack() as stack:
            url = f"zk:{life.name}:2181"
            zk = await ZooKeeperMetadataStore.open(url, session_timeout_s=world.plan.session_s)
            life.store = zk
            stack.push_async_callback(zk.aclose)
            store: CachedMetadataStore | ZooKeeperMetadataStore = zk
            for subtree in (RECORDS, OWNERS_PATH, LOAD_BALANCE):
                store = await CachedMetadataStore.open(store, subtree)
                stack.push_async_callback(store.aclose)
            door = Door(life.name, world.bookie, world.network, world.plan.bookie_timeout_s)
            client = BookkeeperClient(KnownBookies([door]), zk, nursery=life.nursery)
            config = world.plan.config
            factory = ManagedLedgerFactory(client, store, log_options(config))
            logs = await stack.enter_async_context(factory)
            nursery = await stack.enter_async_context(_tasks())
            service = BrokerService(config, store, logs, nursery)
            life.service = service
            world.prepare(self, life)
            await logs.finish_deletions()
            nursery.start_soon(service.run)
            await stack.enter_async_context(self._served(life))
            self.sockets.listen(partial(self._connected, life), life.nursery)
            await service.start(self.addresses, is_whole_cluster=False)
            await stack.enter_async_context(service.load_manager.registered(self.addresses))
            life.is_ready = True
            world.books.log.add(f"{life.name} serves")
            await trio.sleep_forever()

    @asynccontextmanager
    async def _served(self, life: Life) -> AsyncIterator[None]:
        """As `process.serving`: clients are there while the broker gives up what it has."""
        try:
            yield
        finally:
            self.sockets.listener = None
            if not life.is_dead:
                await self._shut_down(life)

    async def _shut_down(self, life: Life) -> None:
        world, service, session = self._world, life.service, life.store._calls.session_id
        taking = life.was_taking or service.ownership._acquiring
        is_busy = bool(service.unloader._kept or taking or service.hold_over.kept)
        with trio.move_on_after(life.service.shutdown_s, shield=True) as scope:
            await life.service.shutdown()
        world.books.log.add(f"{life.name} has given up its bundles")
        if is_busy or scope.cancelled_caught or session is None:
            return
        if world.keeper.sessions.get(session) is not None and life.link.is_up:
            with trio.CancelScope(shield=True):
                await self._check_released(life, session)

    async def _check_released(self, life: Life, session: int) -> None:
        """Nodes of bundles that were replaced may stay, if the store didn't answer then."""
        rows = self._world.keeper.rows
        for path in rows.owned_by(session):
            if path.startswith(f"{OWNERS_PATH}/"):
                bundle = BundleId.parse(path.removeprefix(f"{OWNERS_PATH}/"))
                if await self._world.namespaces.has_bundle(bundle):
                    self._world.books.violate(f"{life.name} has stopped, and owns {bundle}")

    async def _connected(self, life: Life, stream: FramedStream) -> None:
        try:
            await handle_connection(stream, life.service)
        finally:
            await stream.aclose()

    # ---- what befalls it ----

    def stop(self) -> None:
        """SIGTERM."""
        self.is_wanted = False
        life = self.life
        if life is not None:
            self._world.books.log.add(f"{life.name} stops")
            if hasattr(life, "service") and life.service.ownership._acquiring:
                life.was_taking = True
            life.scope.cancel()

    def kill(self) -> None:
        """SIGKILL."""
        life = self.life
        self.is_wanted = False
        if life is None or life.is_dead:
            return
        self._world.books.log.add(f"{life.name} is killed")
        self._end(life)
        if hasattr(life, "store"):
            self._end_session(life.link.session_id)
            life.link.die()
            life.store._tracker.close()
        self._world.thaw(life.name)
        life.nursery.cancel_scope.cancel()

    def _end_session(self, number: int | None) -> None:
        """Its witness has seen the process end."""
        world = self._world
        session = None if number is None else world.keeper.sessions.get(number)
        if session is not None and world.plan.witness_s is not None:
            at_s = trio.current_time() + world.plan.witness_s
            world.network.timeline.at(at_s, lambda: world.keeper.end(session))

    # ---- calls of other brokers ----

    async def hand_over(self, life: Life, broker_id: str, topics: list[str]) -> Addresses:
        """As `LookupHandover`, through the network."""
        world = self._world
        other = next((each for each in world.brokers if each.broker_id == broker_id), None)
        there = None if other is None else other.life
        if there is None or not topics or not hasattr(there, "service"):
            return NOWHERE
        answer: Promise[Addresses] = Promise()
        network, here, topic = world.network, life.name, TopicName.parse(topics[0])

        async def serve() -> None:
            found = NOWHERE
            with suppress(BrokerError, MetadataError):
                found = (await there.service.lookup.locate(topic, authoritative=True)).addresses
            network.send(there.name, here, lambda: answer.resolve(found), "taken")

        network.send(here, there.name, lambda: there.nursery.start_soon(serve), "take")
        with trio.move_on_after(HANDOVER_CALL_S):
            found = await answer.wait()
            return found if found.broker_id == broker_id else NOWHERE
        return NOWHERE
