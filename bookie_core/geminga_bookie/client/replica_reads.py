"""Which replica of an entry is asked, and when another one (spec BK-22; Apache's PendingReadOp,
sticky reads and reorderReadSequence). Work per range of entries, never per entry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from geminga_bookie.client.api import LedgerMetadata, ReadOptions
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.placement import ensemble_of, write_set
from geminga_bookie.errors import BookkeeperError, NoSuchEntry, NoSuchLedger

ReadOne = Callable[[str], Awaitable[list[memoryview]]]
"""Reads from the bookie of that id. Raises BookkeeperError."""


class ReplicaReads:
    """The replicas of one handle's ledger.

    All reads go to one bookie, whose cache and read-ahead then serve, as long as it answers; to
    another one if entries are striped, since no bookie has neighbouring ones.
    """

    def __init__(self, ledger_id: int, bookies: BookieDirectory, options: ReadOptions) -> None:
        self._bookies = bookies
        self._options = options
        self._sticky = ledger_id

    def order(self, metadata: LedgerMetadata, first: int) -> list[str]:
        """Ids of the bookies with that entry: those that do well first; of a striped ledger those
        with more of the following entries first.
        """
        size, write = metadata.ensemble_size, metadata.write_quorum
        ensemble = ensemble_of(metadata.ensembles, first)
        if size > write:
            places = write_set(first, size, write)[::-1]
        else:
            places = write_set(self._sticky if self._options.sticky else first, size, write)
        found = [ensemble[place] for place in places]
        if len(found) > 1:
            found.sort(key=self._bookies.read_rank)
        return found

    async def read(self, metadata: LedgerMetadata, first: int, read: ReadOne) -> list[memoryview]:
        """What the first replica that has the entry returns. Raises BookkeeperError if none has."""
        order = self.order(metadata, first)
        if self._options.speculative_s > 0 and len(order) > 1:
            return await _Race(self, order, read, self._options.speculative_s).run()
        failures: list[BookkeeperError] = []
        for bookie_id in order:
            try:
                return await read(bookie_id)
            except BookkeeperError as error:
                self.failed(bookie_id, error)
                failures.append(error)
        raise most_telling(failures)

    def failed(self, bookie_id: str, error: BookkeeperError) -> None:
        """Go on with another bookie next time."""
        self._sticky += 1
        self._bookies.failed(bookie_id, error)

    def slow(self, bookie_id: str) -> None:
        """Another bookie was asked too."""
        self._sticky += 1
        self._bookies.slow(bookie_id)


class _Race:
    """One more replica is asked whenever one failed, or none has answered for a while."""

    def __init__(
        self, replicas: ReplicaReads, order: Sequence[str], read: ReadOne, patience_s: float
    ) -> None:
        self._replicas = replicas
        self._order = order
        self._read = read
        self._patience_s = patience_s
        self._found: list[memoryview] | None = None
        self._failures: list[BookkeeperError] = []
        self._progress = trio.Event()

    async def run(self) -> list[memoryview]:
        async with trio.open_nursery() as nursery:
            for bookie_id in self._order:
                self._progress = trio.Event()
                nursery.start_soon(self._ask, bookie_id, nursery.cancel_scope)
                if bookie_id != self._order[-1]:
                    with trio.move_on_after(self._patience_s) as waiting:
                        await self._progress.wait()
                    if waiting.cancelled_caught:
                        self._replicas.slow(bookie_id)
        if self._found is None:
            raise most_telling(self._failures)
        return self._found

    async def _ask(self, bookie_id: str, scope: trio.CancelScope) -> None:
        try:
            found = await self._read(bookie_id)
        except BookkeeperError as error:
            self._replicas.failed(bookie_id, error)
            self._failures.append(error)
            self._progress.set()
        else:
            self._found = found
            scope.cancel()


def most_telling(failures: Sequence[BookkeeperError]) -> BookkeeperError:
    """The last failure that isn't only a missing entry, if there are several replicas."""
    for error in reversed(failures):
        if not isinstance(error, NoSuchEntry | NoSuchLedger):
            return error
    return failures[-1] if len(failures) == 1 else NoSuchEntry(str(failures[0]))
