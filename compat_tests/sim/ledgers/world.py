"""All that a run has: network, bookies, the metadata's tree, processes, books."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from geminga_bookie.client.append import LedgerWriter
from geminga_bookie.storage.bookie import InProcessBookie
from geminga_runtime.metadata.memory import MemoryMetadataStore

from ..chance import Chances, EventLog
from .bookies import BookieProcess
from .books import Books, LedgerBook
from .keeper import KeeperDoor
from .network import Network, Timeline
from .plan import LedgerPlan

if TYPE_CHECKING:
    from .clients import Process


EndDoubts = Callable[["World", BookieProcess, InProcessBookie, KeeperDoor], Awaitable[None]]


class World:
    """Lives as long as the run."""

    def __init__(
        self, plan: LedgerPlan, chances: Chances, log: EventLog, end_doubts: EndDoubts
    ) -> None:
        self._end_doubts = end_doubts
        self.plan = plan
        self.chances = chances
        self.books = Books(log)
        self.timeline = Timeline()
        self.network = Network(
            self.timeline,
            chances.of("network"),
            log,
            plan.latency_s,
            is_ordered=plan.is_ordered,
        )
        self.tree = MemoryMetadataStore()
        self.bookies: dict[str, BookieProcess] = {}
        self.processes: dict[str, Process] = {}
        self.nursery: trio.Nursery
        self.is_over = False
        """Nobody writes any more."""
        self.writers: list[tuple[LedgerBook, LedgerWriter]] = []
        for number in range(plan.bookies):
            self.add_bookie(number)

    def add_bookie(self, number: int) -> BookieProcess:
        """Another machine, with an empty disk."""
        bookie_id = f"b{number}:3181"
        chance = self.chances.of(bookie_id)
        bookie = BookieProcess(bookie_id, self.tree, self.network, chance, self.plan.session_s)
        if self.plan.is_unsynced:
            bookie.heals(partial(self._end_doubts, self, bookie))
        self.bookies[bookie_id] = bookie
        return bookie

    def may_doubt(self, bookie: BookieProcess) -> bool:
        """Whether the bookie may be killed, of those whose journals are not synced: what was
        confirmed must be on another one, and others must know where a ledger ends.
        """
        hurt = {each.bookie_id for each in self.bookies.values() if each.is_hurt}
        return len(hurt | {bookie.bookie_id}) <= self.plan.losable_disks

    def living(self) -> list[Process]:
        """Processes of clients that are there."""
        return [each for name, each in self.processes.items() if name not in self.network.dead]
