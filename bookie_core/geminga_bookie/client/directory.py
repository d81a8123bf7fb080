"""Which bookies there are, and which of them take new entries (spec BK-21, BK-25)."""

# A protocol's methods have docstrings for bodies.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import trio

from geminga_bookie.client.health import ReadRank
from geminga_bookie.client.placement_rules import PlacementRules
from geminga_bookie.errors import (
    BookieReadOnly,
    BookieUnavailable,
    BookkeeperError,
    NotEnoughBookies,
)
from geminga_bookie.port import BookiePort


class BookieDirectory(Protocol):
    """The bookies of a cluster, as a ledger client sees them."""

    def port(self, bookie_id: str) -> BookiePort:
        """The bookie's port. Raises BookieUnavailable if no bookie of that id is known."""

    def writable(self) -> Sequence[str]:
        """Ids of the bookies that take new entries now."""

    def rules(self) -> PlacementRules:
        """Where the bookies are, and which of them a ledger may have."""

    def read_rank(self, bookie_id: str) -> ReadRank:
        """Whom to read from first."""

    def failed(self, bookie_id: str, error: BookkeeperError) -> None:
        """A request to the bookie failed."""

    def slow(self, bookie_id: str) -> None:
        """Another bookie had to be asked for what this one should have sent."""

    async def wait_change(self) -> None:
        """Return when the bookies that take new entries may be others than before."""

    async def check_writable(self, count: int) -> None:
        """Before a ledger is made. Raises NotEnoughBookies, with the reasons, if bookies that said
        that they are read-only still are, so that there are less than `count` others.
        """


class KnownBookies:
    """A directory of bookies that are given: all of them take new entries."""

    def __init__(self, ports: Iterable[BookiePort] = ()) -> None:
        self._ports = {port.bookie_id: port for port in ports}
        self._changed = trio.Event()
        self.placement = PlacementRules()
        """What `rules` returns."""
        self._read_only: set[str] = set()
        """Those that said so and were not asked since."""

    def join(self, port: BookiePort) -> None:
        """Another bookie, or a new port to a known one."""
        self._ports[port.bookie_id] = port
        self._changed.set()
        self._changed = trio.Event()

    def leave(self, bookie_id: str) -> None:
        """Forget a bookie."""
        self._ports.pop(bookie_id, None)

    def port(self, bookie_id: str) -> BookiePort:
        """As BookieDirectory.port."""
        port = self._ports.get(bookie_id)
        if port is None:
            raise BookieUnavailable(f"bookie {bookie_id} is not known here")
        return port

    def writable(self) -> Sequence[str]:
        """As BookieDirectory.writable."""
        return list(self._ports)

    def rules(self) -> PlacementRules:
        """As BookieDirectory.rules."""
        return self.placement

    def read_rank(self, bookie_id: str) -> ReadRank:
        """As BookieDirectory.read_rank: all are alike."""
        return ReadRank.GOOD

    def failed(self, bookie_id: str, error: BookkeeperError) -> None:
        """As BookieDirectory.failed."""
        if isinstance(error, BookieReadOnly):
            self._read_only.add(bookie_id)

    def slow(self, bookie_id: str) -> None:
        """As BookieDirectory.slow; without effect."""

    async def wait_change(self) -> None:
        """As BookieDirectory.wait_change."""
        await self._changed.wait()

    async def check_writable(self, count: int) -> None:
        """As BookieDirectory.check_writable: nobody else tells when they write again."""
        reasons: list[str] = []
        for bookie_id in sorted(self._read_only.intersection(self._ports)):
            why = ""
            with suppress(BookkeeperError):  # else its next writes tell
                why = (await self.port(bookie_id).info()).read_only
            if why:
                reasons.append(f"bookie {bookie_id} is read-only: {why}")
            else:
                self._read_only.discard(bookie_id)
        if reasons and len(self._ports) - len(reasons) < count:
            few = "too few bookies take" if len(self._ports) > len(reasons) else "no bookie takes"
            raise NotEnoughBookies(f"{few} writes: {'; '.join(reasons)}")
