"""The ledgers of one bookie that are in doubt (limbo), and how a doubt ends (spec BK-02; Apache's
LedgerStorage.setLimboState, clearLimboState and StorageState.NEEDS_INTEGRITY_CHECK).

A doubt is kept in two places: the record of each ledger that the bookie knew, and `limbo` beside
the journal, for ledgers that it may have forgotten. That file goes last. Loop only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from geminga_bookie.storage.bookie import InProcessBookie
from geminga_bookie.storage.doubt import LIMBO_NAME

RUNS_MAX = 10_000
"""Missing runs that are reported at once; those behind them are found when these are there."""

_Run = tuple[int, int]
"""Entries from the first to before the second number."""


class Doubts:
    """All methods raise OSError."""

    def __init__(self, bookie: InProcessBookie) -> None:
        self._bookie = bookie
        self._storage = bookie.storage
        self._table = bookie.storage.table

    @property
    def may_have_forgotten(self) -> bool:
        """Whether the bookie may have held ledgers that it doesn't know."""
        return self._table.is_in_limbo

    async def ledgers(self) -> set[int]:
        """Ids of known ledgers in doubt."""
        states = self._table.states
        before = {state.ledger_id for state in states.values() if state.limbo}
        found = await self._storage.workers.run(self._stored)
        for state in states.values():
            if state.limbo:
                found.add(state.ledger_id)
            else:
                found.discard(state.ledger_id)
                before.discard(state.ledger_id)
        return found | before

    def _stored(self) -> set[int]:
        return {
            record.ledger_id
            for store in self._storage.stores
            for record in store.index.ledgers()
            if record.limbo
        }

    async def knows(self, ledger_id: int) -> bool:
        """Whether the bookie has heard of the ledger. Raises BookkeeperError."""
        return await self._bookie.loader.find(ledger_id) is not None

    async def missing(self, ledger_id: int, runs: Iterable[_Run]) -> list[_Run]:
        """Of ascending runs of entries those that the bookie lacks, at most `RUNS_MAX`. Raises
        BookkeeperError.
        """
        state = await self._bookie.loader.find(ledger_id)
        if state is None:
            return list(without(runs, ()))
        store = state.store
        # The caches first: what is flushed meanwhile is in the index then.
        cached = [*store.active.runs(ledger_id)]
        if store.sealed is not None:
            cached += store.sealed.cache.runs(ledger_id)

        def compare() -> list[_Run]:
            locations = store.index.locations(ledger_id)
            held = sorted([*cached, *((at.first, at.first + at.entries) for at in locations)])
            return list(without(runs, held))

        return await self._storage.workers.run(compare)

    async def settle(self, ledger_id: int) -> None:
        """The bookie has, durably, all entries of the ledger that it should have; it stays fenced.
        A kill before the next checkpoint brings the doubt back. Raises BookkeeperError.
        """
        state = await self._bookie.loader.find(ledger_id)
        if state is None or not state.limbo:
            return
        state.limbo = False
        self._table.touch(state)
        if state.store.is_full:
            self._bookie.checkpointer.seal()

    async def end(self) -> bool:
        """Nothing is in doubt any more; False if a known ledger still is. Until it returns True
        unknown ledgers may be forgotten ones.

        The records are on disk before `limbo` is removed: a lost index is rebuilt with all ledgers
        in doubt as long as that stands.
        """
        self._table.is_in_limbo, is_ended = False, False
        try:
            if not await self.ledgers():
                await self._bookie.checkpointer.checkpoint()
                await self._storage.workers.run(self._remove_limbo)
                is_ended = True
        finally:
            self._table.is_in_limbo = not is_ended
        return is_ended

    def _remove_limbo(self) -> None:
        disk = self._storage.disk
        for directory in self._storage.journal_dirs:
            disk.remove(directory / LIMBO_NAME)
            disk.sync_directory(directory)


def without(runs: Iterable[_Run], held: Sequence[_Run]) -> Iterator[_Run]:
    """Ascending runs less those of `held`, which are sorted and may overlap; at most `RUNS_MAX`."""
    count = at = 0
    for first, end in runs:
        while first < end:
            while at < len(held) and held[at][1] <= first:
                at += 1
            if at < len(held) and held[at][0] <= first:
                first = held[at][1]
                continue
            gap_end = min(end, held[at][0]) if at < len(held) else end
            yield first, gap_end
            count += 1
            if count >= RUNS_MAX:
                return
            first = gap_end
