"""What must hold at each moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.records import owner_path

if TYPE_CHECKING:
    from .processes import Life
    from .world import World

TOLD_S = 9.0
"""Within so long, and two sessions, a broker knows that its node was deleted by another one."""
FENCED_S = 1.0
"""Within so long of its own time a broker refuses the clients of a bundle that it lost."""
UNLOADED_S = 45.0
"""Within so long of its own time, once all has healed, a broker has given up what it unloads."""
LOOK_S = 0.25


class Watchman:
    """Looks after each change of the metadata, and now and then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.looks = 0
        self._unloading: dict[tuple[str, BundleId], int] = {}
        """By process and bundle: looks since it is being given up and all is well."""
        self._unowned: dict[tuple[str, str], int] = {}
        """By process and topic: looks since it serves without the bundle."""
        world.keeper.observers.append(self.look)

    async def run(self) -> None:
        """For ever."""
        while True:
            self.look()
            self._look_at_topics()
            self._look_at_unloads()
            await trio.sleep(LOOK_S)

    def look(self) -> None:
        """Who holds what."""
        self.looks += 1
        holders: dict[BundleId, list[Life]] = {}
        for life in self._world.running():
            ownership = life.service.ownership
            for bundle in list(ownership._holds):
                if ownership.holds(bundle):
                    holders.setdefault(bundle, []).append(life)
        for bundle, lives in holders.items():
            self._check(bundle, lives)

    def _told_s(self) -> float:
        return TOLD_S + 2 * self._world.plan.session_s

    def _look_at_topics(self) -> None:
        """Who serves what."""
        unowned: dict[tuple[str, str], int] = {}
        for life in self._world.lives():
            service = life.service
            bundles = [*service.ownership.owned(), *service.hold_over.kept]
            frozen = self._world.freezer.is_frozen(life.name)
            for name, topic in service.topics.loaded.items():
                key = (life.name, name)
                if frozen:
                    unowned[key] = self._unowned.get(key, 0)
                elif not topic.fenced and not any(each.covers(name) for each in bundles):
                    unowned[key] = self._unowned.get(key, 0) + 1
                    if unowned[key] == int(FENCED_S / LOOK_S):
                        self._world.books.violate(f"{life.name} serves {name} without its bundle")
        self._unowned = unowned

    def _look_at_unloads(self) -> None:
        """What is being given up."""
        if not self._world.network.is_calm:
            return
        unloading: dict[tuple[str, BundleId], int] = {}
        for life in self._world.lives():
            ownership = life.service.ownership
            for bundle in filter(ownership.is_unloading, ownership.owned()):
                key = (life.name, bundle)
                unloading[key] = self._unloading.get(key, 0) + 1
                if unloading[key] == int(UNLOADED_S / LOOK_S):
                    self._world.books.violate(f"{life.name} doesn't give up {bundle}")
        self._unloading = unloading

    def _check(self, bundle: BundleId, lives: list[Life]) -> None:
        keeper, books = self._world.keeper, self._world.books
        path = owner_path(bundle)
        taken_s = keeper.taken.get(path)
        if taken_s is not None and trio.current_time() - taken_s < self._told_s():
            return
        for life in lives:
            session = keeper.owner(path)
            if session is None or session.number != life.store._calls.session_id:
                owner = "nobody" if session is None else session.owner
                books.violate(f"{life.name} holds {bundle}, which is {owner}'s")
