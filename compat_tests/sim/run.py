"""One run of one seed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from random import Random

import trio
import trio.testing

from geminga import Client
from geminga._connection.service_url import parse
from geminga.client import open_client
from geminga.options import ClientOptions
from geminga_protocol.ids import EARLIEST
from geminga_protocol.topic_name import TopicName

from . import checks
from .books import Books
from .chance import Chances, EventLog, seeded
from .cluster import URL, Cluster
from .consumers import Taker
from .disk import Disk
from .faults import Faults
from .network import Cut, Network
from .outcome import Outcome, ends, watched
from .plan import Plan, make_plan
from .producers import Sender

SEND_S = 300.0
DRAIN_S = 300.0
"""Virtual time within which all must be well once faults have stopped."""
LIMIT_S = 3000.0
"""Virtual time of a whole run."""


def run_seed(seed: int, *, verbose: bool = False, is_brief: bool = False) -> Outcome:
    """Run it, if `is_brief` to the first violation; never raises for what the run finds."""
    chances = Chances(seed)
    plan = make_plan(seed, chances.of("plan"))
    log = EventLog(keep=verbose)
    books = Books(plan, log)
    ended_s = 0.0

    async def main() -> None:
        nonlocal ended_s
        with seeded(chances):
            run = Run(plan, books, chances)
            with trio.CancelScope() as scope:
                books.on_violation = scope.cancel if is_brief else None
                ended_s = await ends(run.run, books.violations, limit_s=LIMIT_S)

    with watched() as watch:
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    books.violations += watch.found
    deliveries = sum(each.deliveries for each in books.received.values())
    return Outcome(seed, books.violations, log.digest, log.count, deliveries, ended_s, log.lines)


@asynccontextmanager
async def _seeded_client(
    options: ClientOptions, network: Network, rng: Random
) -> AsyncIterator[Client]:
    async with open_client(parse(URL), options, network.connect) as client:
        client._core.chance.seed(rng.random())
        yield client


class Run:
    """Faults and workload side by side, then the checks."""

    def __init__(self, plan: Plan, books: Books, chances: Chances) -> None:
        self._plan = plan
        self._books = books
        self._chances = chances
        self._disk = Disk(chances.of("disk"), books.log)
        self._network = Network(chances.of("network"), books.log)
        self._clients: list[Client] = []
        self._senders: list[Sender] = []
        self._takers: list[Taker] = []

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(self._plan.config(), self._disk, self._network, nursery)
            await cluster.start()
            await self._prepare(cluster)
            async with AsyncExitStack() as stack:
                for number in range(self._plan.clients):
                    client = await stack.enter_async_context(self._client(f"client {number}"))
                    self._clients.append(client)
                await self._work(cluster)
            await self._after(cluster)
            await cluster.stop()

    def _client(self, part: str) -> AbstractAsyncContextManager[Client]:
        options = ClientOptions(
            operation_timeout_s=10.0,
            connection_timeout_s=3.0,
            keep_alive_interval_s=float(self._plan.keep_alive_s),
            max_backoff_s=2.0,
            connections_per_broker=self._plan.connections,
        )
        return _seeded_client(options, self._network, self._chances.of(part))

    async def _prepare(self, cluster: Cluster) -> None:
        """Make partitions, and all subscriptions before anything is sent."""
        service = cluster.service
        for topic in self._plan.topics:
            if topic.partitions:
                name = TopicName.parse(topic.name)
                await service.catalog.create_partitioned(name, topic.partitions)
        for plan in self._plan.subscriptions:
            for part in checks.parts_of(plan.topic):
                made = await service.topics.get(TopicName.parse(part), create=True)
                await made.create_subscription(plan.name, EARLIEST)

    async def _work(self, cluster: Cluster) -> None:
        books, chances = self._books, self._chances
        faults = Faults(self._plan, cluster, chances.of("faults"))
        async with trio.open_nursery() as consuming:
            for subscription in self._plan.subscriptions:
                for each in subscription.consumers:
                    client = self._clients[each.client]
                    taker = Taker(each, subscription, client, books, chances.of(each.label))
                    self._takers.append(taker)
                    consuming.start_soon(taker.run)
            async with trio.open_nursery() as producing:
                for plan in self._plan.producers:
                    client = self._clients[plan.client]
                    sender = Sender(plan, client, books, chances.of(plan.label))
                    self._senders.append(sender)
                    producing.start_soon(sender.run)
                await faults.run()
                books.log.add("faults have stopped")
                producing.cancel_scope.deadline = trio.current_time() + SEND_S
            if producing.cancel_scope.cancelled_caught:
                books.violate(f"producers are stuck: {[s.producer for s in self._senders]}")
            await self._drain(cluster)
            consuming.cancel_scope.cancel()
        await self._close()

    async def _drain(self, cluster: Cluster) -> None:
        """Until every subscription has got and acknowledged all."""
        books = self._books
        books.draining = True
        books.log.add("draining")
        deadline_s = trio.current_time() + DRAIN_S
        for plan in self._plan.subscriptions:
            while books.missing(plan) or await checks.backlog(cluster, plan):
                if trio.current_time() > deadline_s:
                    left = await checks.backlog(cluster, plan)
                    missing = books.missing(plan)
                    books.violate(f"{plan.name} is stuck: {left} left, missing {missing[:5]}")
                    return
                await trio.sleep(0.5)
        await trio.sleep(3 * self._plan.keep_alive_s + 2)
        checks.check_permits(cluster.service, self._takers, books)
        books.check_order()

    async def _close(self) -> None:
        for sender in self._senders:
            if sender.producer is not None:
                await sender.producer.aclose()
        for taker in self._takers:
            if taker.consumer is not None:
                await taker.consumer.aclose()
        await trio.sleep(3 * self._plan.keep_alive_s)
        checks.check_clients(self._clients, self._books)

    async def _after(self, cluster: Cluster) -> None:
        """The clients are gone."""
        await trio.sleep(5)
        checks.check_service(cluster.service, self._books)
        if self._chances.of("end").random() < 0.5:
            await cluster.stop()
            await cluster.start()
            await checks.check_backlogs(cluster, self._books)
        else:
            await cluster.kill(Cut.RESET)
            await cluster.start()
        async with self._client("reader") as client:
            await checks.check_logs(client, cluster, self._books)
