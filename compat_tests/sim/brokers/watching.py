"""What must hold at each moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from geminga_broker.ownership.bundle import BundleId
from geminga_broker.ownership.records import owner_path

if TYPE_CHECKING:
    from .processes import Life
    from .world import World

TOLD_S = 3.0
"""Within so long a broker knows that its node was deleted by another one."""


class Watchman:
    """Looks after each change of the metadata, and now and then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.looks = 0
        world.keeper.observers.append(self.look)

    async def run(self) -> None:
        """For ever."""
        while True:
            self.look()
            await trio.sleep(0.25)

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

    def _check(self, bundle: BundleId, lives: list[Life]) -> None:
        keeper, books = self._world.keeper, self._world.books
        path = owner_path(bundle)
        taken_s = keeper.taken.get(path)
        if taken_s is not None and trio.current_time() - taken_s < TOLD_S:
            return
        for life in lives:
            session = keeper.owner(path)
            if session is None or session.number != life.store._calls.session_id:
                owner = "nobody" if session is None else session.owner
                books.violate(f"{life.name} holds {bundle}, which is {owner}'s")
