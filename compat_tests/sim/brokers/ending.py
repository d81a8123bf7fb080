"""All heals; then each topic is served once, all is drained, and nothing is left."""

from __future__ import annotations

import trio

from geminga import Client
from geminga_broker.errors import BrokerError
from geminga_broker.log.api import LogError
from geminga_protocol.topic_name import TopicName
from geminga_runtime.metadata.api import MetadataError

from .. import checks as alone
from ..consumers import Taker
from ..plan import SubscriptionPlan
from .processes import Life
from .world import World

OWNED_S = 100.0
SERVED_S = 60.0
HOPS_MAX = 10


class Ending:
    """The checks once nothing goes wrong any more."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._books = world.books

    def heal(self) -> None:
        """From now on nothing goes wrong."""
        world = self._world
        self._books.log.add("all heals")
        for life in world.lives():
            world.thaw(life.name)
            life.link.miss(0)
            life.link.lose_answers(0)
            life.link.lose_request(None, "")
        world.network.heal()
        for process in world.brokers:
            process.sockets.is_calm = True
            process.start()
            for link in process.sockets.links.values():
                link.up.cut = link.down.cut = None

    async def owner(self, topic: str) -> Life:
        """The broker that owns it, once there is one. Raises TooSlowError."""
        with trio.fail_after(OWNED_S):
            while True:
                for life in self._world.ready():
                    try:
                        found = await self._look_up(life, topic)
                    except (BrokerError, MetadataError):
                        continue
                    if found is not None:
                        return found
                await trio.sleep(0.5)

    async def _look_up(self, first: Life, topic: str) -> Life | None:
        """As a client, which follows redirects. Raises BrokerError, MetadataError."""
        life, authoritative, name = first, False, TopicName.parse(topic)
        for _ in range(HOPS_MAX):
            found = await life.service.lookup.locate(name, authoritative=authoritative)
            there = [
                each for each in self._world.ready() if each.service.addresses == found.addresses
            ]
            if not there:
                return None
            if not found.redirect:
                bundle = await life.service.namespaces.bundle_of(name)
                return there[0] if there[0].service.ownership.holds(bundle) else None
            life, authoritative = there[0], found.authoritative
        return None

    async def _backlog(self, plan: SubscriptionPlan) -> int | str:
        """Entries that are not acknowledged, or why that isn't known."""
        total = 0
        for part in alone.parts_of(plan.topic):
            try:
                life = await self.owner(part)
                topic = await life.service.topics.get(TopicName.parse(part), create=False)
            except (BrokerError, LogError, MetadataError, trio.TooSlowError) as error:
                return f"{part}: {error!r}"
            total += topic.subscriptions[plan.name].backlog_entries()
        return total

    async def drain(self, within_s: float) -> None:
        """Until every subscription has got and acknowledged all."""
        books = self._books
        books.draining = True
        books.log.add("draining")
        deadline_s = trio.current_time() + within_s
        for plan in books.plan.subscriptions:
            while books.missing(plan) or await self._backlog(plan):
                if trio.current_time() > deadline_s:
                    left, missing = await self._backlog(plan), books.missing(plan)
                    books.violate(f"{plan.name} is stuck: {left} left, missing {missing[:5]}")
                    return
                await trio.sleep(0.5)
        await trio.sleep(3 * books.plan.keep_alive_s + 2)
        books.check_order()

    async def check_served(self, takers: list[Taker]) -> None:
        """Each topic is loaded by its owner only, and consumers are there: soon, for its owner may
        stand still beyond the end of the faults, and another one take it over just now.
        """
        deadline_s = trio.current_time() + SERVED_S
        for topic in self._books.plan.topics:
            for part in alone.parts_of(topic):
                while fault := await self._misplaced(part):
                    await trio.sleep(0.5)
                    if trio.current_time() > deadline_s:
                        self._books.violate(fault)
                        break

    async def _misplaced(self, part: str) -> str:
        """Where it is loaded, if that isn't its owner alone."""
        where = [life.name for life in self._world.lives() if part in life.service.topics.loaded]
        owner = await self.owner(part)
        return "" if where == [owner.name] else f"{part} of {owner.name} is loaded by {where}"

    async def check_bundles(self) -> None:
        """None is owned that its namespace doesn't have."""
        for life in self._world.lives():
            for bundle in life.service.ownership.owned():
                if not await self._world.namespaces.has_bundle(bundle):
                    self._books.violate(f"{life.name} owns {bundle}, which is no bundle any more")

    async def clients_are_gone(self) -> None:
        """Nothing of them is left."""
        await trio.sleep(5)
        for life in self._world.lives():
            alone.check_service(life.service, self._books)

    async def check_logs(self, client: Client) -> None:
        """What is stored."""
        if self._books.plan.retains:
            for topic in self._books.plan.topics:
                stored = await alone.read_log(client, topic)
                self._books.check_log(topic.name, stored)

    async def stop_all(self) -> None:
        """One after the other, in order: nothing of them is left in the metadata."""
        world = self._world
        for process in world.brokers:
            process.is_over = True
        for process in world.brokers:
            process.stop()
            with trio.move_on_after(60):
                while process.life is not None:  # noqa: ASYNC110
                    await trio.sleep(0.1)
            if process.life is not None:
                self._books.violate(f"{process.host} does not stop")
        left = [path for path, row in world.keeper.rows._rows.items() if row.owner]
        if left or world.keeper.sessions:
            self._books.violate(f"left in the metadata: {left}, {list(world.keeper.sessions)}")
