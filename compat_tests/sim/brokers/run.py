"""One run of one seed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import trio
import trio.testing

from geminga import Client
from geminga._connection.service_url import parse
from geminga.client import open_client
from geminga.options import ClientOptions
from geminga_broker.cluster.catalog import TopicCatalog
from geminga_broker.cluster.namespaces import Namespaces
from geminga_protocol.bookkeeper import paths
from geminga_protocol.ids import EARLIEST
from geminga_protocol.topic_name import TopicName

from .. import checks as alone
from ..books import Books
from ..chance import Chances, EventLog, Wall, seeded
from ..consumers import Taker
from ..outcome import Outcome, Watch, ends, watched
from ..producers import Sender
from .ending import Ending
from .faults import Faults
from .link import simulated
from .plan import BrokersPlan, make_plan
from .world import World

FAULTS_S = 200.0
SEND_S = 300.0
DRAIN_S = 300.0
"""Virtual time within which all must be well once all has healed."""
LIMIT_S = 3000.0


def run_seed(seed: int, *, verbose: bool = False, is_brief: bool = False) -> Outcome:
    """Run it, if `is_brief` to the first violation; never raises for what the run finds."""
    chances = Chances(seed)
    plan = make_plan(seed, chances)
    log = EventLog(keep=verbose)
    books = Books(plan.work, log)
    ended_s = 0.0

    async def main() -> None:
        nonlocal ended_s
        with seeded(chances) as wall:
            run = Run(plan, books, chances, wall, watch).run
            with trio.CancelScope() as scope:
                books.on_violation = scope.cancel if is_brief else None
                ended_s = await ends(run, books.violations, limit_s=LIMIT_S)

    with watched() as watch:
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    books.violations += watch.found
    deliveries = sum(each.deliveries for each in books.received.values())
    return Outcome(seed, books.violations, log.digest, log.count, deliveries, ended_s, log.lines)


class Run:
    """Brokers, workload and faults side by side, then the checks."""

    def __init__(
        self, plan: BrokersPlan, books: Books, chances: Chances, wall: Wall, watch: Watch
    ) -> None:
        self._plan = plan
        self._watch = watch
        self._wall = wall
        self._books = books
        self._chances = chances
        self._clients: list[Client] = []
        self._senders: list[Sender] = []
        self._takers: list[Taker] = []

    async def run(self) -> None:
        """The whole run."""
        async with trio.open_nursery() as outer:
            world = World(self._plan, self._chances, self._books, self._wall, outer)
            self._watch.is_of_the_dead = world.is_of_the_dead
            outer.start_soon(world.timeline.run)
            with world.freezer.installed(), simulated(world.keeper):
                await self._prepare(world)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(world.watchman.run)
                    await self._live(world, nursery)
                    nursery.cancel_scope.cancel()
            outer.cancel_scope.cancel()

    async def _live(self, world: World, nursery: trio.Nursery) -> None:
        for process in world.brokers:
            nursery.start_soon(process.supervise)
        for process in world.brokers[: self._plan.brokers - self._plan.late_brokers]:
            process.start()
        while not world.ready():  # noqa: ASYNC110
            await trio.sleep(0.1)
        await self._subscriptions(world)
        await self._play(world)

    async def _prepare(self, world: World) -> None:
        store = world.keeper.store
        await store.put(paths.INSTANCE_ID, b"simulation")
        namespaces = Namespaces(store)
        config = self._plan.config
        await namespaces.bootstrap("standalone", {}, self._plan.bundles)
        catalog = TopicCatalog(store, namespaces, config.topics)
        for topic in self._plan.work.topics:
            if topic.partitions:
                await catalog.create_partitioned(TopicName.parse(topic.name), topic.partitions)

    async def _subscriptions(self, world: World) -> None:
        """Made before anything is sent, wherever their topics are."""
        ending = Ending(world)
        for plan in self._plan.work.subscriptions:
            for part in alone.parts_of(plan.topic):
                life = await ending.owner(part)
                topic = await life.service.topics.get(TopicName.parse(part), create=True)
                await topic.create_subscription(plan.name, EARLIEST)

    @asynccontextmanager
    async def _client(self, world: World, part: str) -> AsyncIterator[Client]:
        options = ClientOptions(
            operation_timeout_s=10.0,
            connection_timeout_s=3.0,
            keep_alive_interval_s=float(self._plan.work.keep_alive_s),
            max_backoff_s=2.0,
            connections_per_broker=self._plan.work.connections,
        )
        hosts = ",".join(f"{each.host}:6650" for each in world.brokers)
        url = parse(f"pulsar://{hosts}")
        async with open_client(url, options, world.connect) as client:
            client._core.chance.seed(self._chances.of(part).random())
            yield client

    async def _play(self, world: World) -> None:
        async with AsyncExitStack() as stack:
            for number in range(self._plan.work.clients):
                client = await stack.enter_async_context(self._client(world, f"client {number}"))
                self._clients.append(client)
            await self._work(world)
        ending = Ending(world)
        await ending.clients_are_gone()
        async with self._client(world, "reader") as client:
            await ending.check_logs(client)
        await ending.stop_all()

    async def _work(self, world: World) -> None:
        plan, books, chances = self._plan.work, self._books, self._chances
        async with trio.open_nursery() as consuming:
            for subscription in plan.subscriptions:
                for each in subscription.consumers:
                    client = self._clients[each.client % len(self._clients)]
                    taker = Taker(each, subscription, client, books, chances.of(each.label))
                    self._takers.append(taker)
                    consuming.start_soon(taker.run)
            async with trio.open_nursery() as producing:
                for plan_of in plan.producers:
                    client = self._clients[plan_of.client % len(self._clients)]
                    sender = Sender(plan_of, client, books, chances.of(plan_of.label))
                    self._senders.append(sender)
                    producing.start_soon(sender.run)
                with trio.move_on_after(FAULTS_S):
                    await Faults(world).run()
                ending = Ending(world)
                ending.heal()
                producing.cancel_scope.deadline = trio.current_time() + SEND_S
            if producing.cancel_scope.cancelled_caught:
                books.violate(f"producers are stuck: {[s.producer for s in self._senders]}")
            await ending.drain(DRAIN_S)
            await ending.check_served(self._takers)
            await ending.check_bundles()
            consuming.cancel_scope.cancel()
        await self._close()

    async def _close(self) -> None:
        for sender in self._senders:
            if sender.producer is not None:
                await sender.producer.aclose()
        for taker in self._takers:
            if taker.consumer is not None:
                await taker.consumer.aclose()
        await trio.sleep(3 * self._plan.work.keep_alive_s)
        alone.check_clients(self._clients, self._books)
