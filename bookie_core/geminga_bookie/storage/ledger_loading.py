"""Ledgers that are not in memory: their records are read by threads, adds wait meanwhile."""

from __future__ import annotations

import trio

from geminga_bookie.errors import StorageFailed
from geminga_bookie.port import check_ledger, ids_fit
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.ledger_table import LedgerRuntime, LedgerTable
from geminga_bookie.storage.location_index import LedgerRecord
from geminga_bookie.storage.write_cache import PendingAdd, Throttle
from geminga_bookie.workers import Workers

BATCH_MAX = 256
"""Ledgers that one thread reads for adds at once."""
PENDING_BYTES = 500
"""Memory of an add that waits, beside its packets."""

_Found = tuple[LedgerRecord, LedgerDirectory] | None


class LedgerLoader:
    """Loop only. The event loop never waits for an index."""

    def __init__(
        self, table: LedgerTable, workers: Workers, throttle: Throttle, bytes_max: int
    ) -> None:
        self._table = table
        self._workers = workers
        self._throttle = throttle
        self._bytes_max = bytes_max
        self._pending: dict[int, list[tuple[int, PendingAdd]]] = {}
        self._bytes = 0
        self._wake = trio.Event()

    async def find(self, ledger_id: int) -> LedgerRuntime | None:
        """A ledger that the bookie has heard of. Raises StorageFailed, IncorrectParameter."""
        table = self._table
        while table.needs_search(ledger_id):
            check_ledger(ledger_id)
            deletions = table.deletions
            try:
                found = await self._workers.run(table.search, ledger_id)
            except OSError as error:
                raise StorageFailed(f"ledger {ledger_id}: {error}") from error
            if deletions == table.deletions:
                return table.enter(ledger_id, found)
        check_ledger(ledger_id)
        return table.states.get(ledger_id)

    async def known(self, ledger_id: int) -> LedgerRuntime:
        """As `find`. Raises NoSuchLedger, UnknownLedgerState too."""
        return self._table.check_known(ledger_id, await self.find(ledger_id))

    async def open(self, ledger_id: int, master_key: bytes) -> LedgerRuntime:
        """As `LedgerTable.open`, of any ledger."""
        check_ledger(ledger_id, master_key)
        await self.find(ledger_id)
        return self._table.open(ledger_id, master_key)

    def is_waited_for(self, ledger_id: int, state: LedgerRuntime | None) -> bool:
        """Whether adds of a ledger, of which that is in memory, must wait."""
        if state is None:
            return self._table.needs_search(ledger_id) and ids_fit(ledger_id)
        # A read has brought it into memory: earlier adds are still to be retried.
        return ledger_id in self._pending

    def defer(
        self, ledger_id: int, size_bytes: int, add: PendingAdd, *, always: bool = False
    ) -> bool:
        """Have an add retried when its ledger was looked for; False if the bound is reached."""
        size_bytes += PENDING_BYTES
        if self._bytes + size_bytes > self._bytes_max and self._pending and not always:
            return False
        self._pending.setdefault(ledger_id, []).append((size_bytes, add))
        self._bytes += size_bytes
        self._wake.set()
        return True

    async def run(self) -> None:
        """Look for ledgers of waiting adds."""
        while True:
            if not self._pending:
                self._wake = trio.Event()
                await self._wake.wait()
            deletions = self._table.deletions
            ledger_ids = list(self._pending)[:BATCH_MAX]
            results = await self._workers.run(self._search_all, ledger_ids)
            if deletions != self._table.deletions:
                continue
            for ledger_id, found in zip(ledger_ids, results, strict=True):
                self._retry(ledger_id, found)

    def _search_all(self, ledger_ids: list[int]) -> list[_Found | StorageFailed]:
        results: list[_Found | StorageFailed] = []
        for ledger_id in ledger_ids:
            try:
                results.append(self._table.search(ledger_id))
            except OSError as error:
                results.append(StorageFailed(f"ledger {ledger_id}: {error}"))
        return results

    def _retry(self, ledger_id: int, found: _Found | StorageFailed) -> None:
        """Retry the adds of one ledger in order. Those without room go before all that are deferred
        for room: some of these may be later ones of this ledger."""
        adds = self._pending.pop(ledger_id)
        self._bytes -= sum(size for size, _ in adds)
        if isinstance(found, StorageFailed):
            for _, add in adds:
                add(found)
            return
        if self._table.enter(ledger_id, found) is None:
            self._table.absent.add(ledger_id)
        try:
            for number, (_, add) in enumerate(adds):
                if not add(None):
                    self._throttle.defer_first(adds[number:])
                    return
        finally:
            self._table.absent.discard(ledger_id)
