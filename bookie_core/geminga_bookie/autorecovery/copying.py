"""Copying the entries that a bookie lacks from the other ones (spec BK-26; Apache's
LedgerFragmentReplicator).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import partial

import trio

from geminga_bookie.autorecovery.fragments import Lack, share
from geminga_bookie.autorecovery.inspection import whole
from geminga_bookie.autorecovery.pace import Pace
from geminga_bookie.autorecovery.stats import WORKER, RecoveryStats
from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.patience import add_patiently, patiently
from geminga_bookie.client.placement import write_set
from geminga_bookie.errors import BookkeeperError, NoSuchEntry
from geminga_bookie.port import BookiePort
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest

RUNS_AT_ONCE = 16
"""Runs of one lack that are copied at the same time."""
RUN_BYTES_MAX = 1024 * 1024
"""Bound of one read, which a single entry may exceed."""


def batches(runs: Iterable[tuple[int, int]], entries_max: int) -> Iterator[tuple[int, int]]:
    """The runs, cut where they have more entries."""
    for first, end in runs:
        for at in range(first, end, entries_max):
            yield at, min(end, at + entries_max)


class Copier:
    """Copies entries of one ledger."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        digest: Digest,
        bookies: BookieDirectory,
        registered: Container[str],
        *,
        batch_entries: int,
        pace: Pace,
        stats: RecoveryStats | None = None,
    ) -> None:
        self._stats = stats or RecoveryStats()
        self._metadata = metadata
        self._digest = digest
        self._bookies = bookies
        self._registered = registered
        self._batch_entries = batch_entries
        self._pace = pace
        self._master_key = packets.master_key(metadata.password)

    async def copy(self, lack: Lack, target: str) -> None:
        """Write what is missing to the target, durably. Raises NoSuchEntry if no bookie has an
        entry whole; the error of the target. Idempotent.
        """
        runs = lack.missing
        if runs is None or target != lack.bookie_id:
            wanted: Iterable[tuple[int, int]] = share(self._metadata, lack.fragment, lack.place)
        else:
            wanted = runs
        left = batches(wanted, self._batch_entries)
        failures: list[BookkeeperError] = []
        port = self._bookies.port(target)

        async def work() -> None:
            try:
                for first, end in left:
                    await self._copy_run(lack, first, end, port)
            except BookkeeperError as error:
                failures.append(error)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(RUNS_AT_ONCE):
                nursery.start_soon(work)
        if failures:
            raise failures[0]

    async def _copy_run(self, lack: Lack, first: int, end: int, target: BookiePort) -> None:
        at = first
        while at < end:
            stats = self._stats
            with stats.timed(f"{WORKER}_READ_DATA_LATENCY"):
                found = await self._read(lack, at, end)
            size = sum(map(len, found))
            stats.count(f"{WORKER}_NUM_ENTRIES_READ", len(found))
            stats.observe(f"{WORKER}_NUM_BYTES_READ", size, count=len(found))
            await self._pace.spend(size)
            with stats.timed(f"{WORKER}_WRITE_DATA_LATENCY"):
                await self._write(target, at, found)
            stats.count(f"{WORKER}_NUM_ENTRIES_WRITTEN", len(found))
            stats.observe(f"{WORKER}_NUM_BYTES_WRITTEN", size, count=len(found))
            at += len(found)

    async def _read(self, lack: Lack, first: int, end: int) -> Sequence[bytes]:
        """Packets from `first` on, at least one, whole, of one of the other bookies. Those that are
        not registered are asked last: they may be there all the same.
        """
        metadata, ensemble = self._metadata, lack.fragment.ensemble
        places = write_set(first, metadata.ensemble_size, metadata.write_quorum)
        places.sort(
            key=lambda place: (place == lack.place, ensemble[place] not in self._registered)
        )
        failures: list[str] = []
        for place in places:
            try:
                port = self._bookies.port(ensemble[place])
                found = await patiently(
                    partial(
                        port.read, metadata.ledger_id, first,
                        entries_max=end - first, bytes_max=RUN_BYTES_MAX,
                    )
                )  # fmt: skip
            except BookkeeperError as error:
                failures.append(f"{ensemble[place]}: {error}")
                continue
            intact = whole(self._digest, metadata.ledger_id, first, found)
            if intact:
                return intact
            failures.append(f"{ensemble[place]}: the copy is damaged")
        self._stats.count(f"{WORKER}_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION")
        raise NoSuchEntry(
            f"no bookie has entry {metadata.ledger_id}:{first} whole: {'; '.join(failures)}"
        )

    async def _write(self, target: BookiePort, first: int, run: Sequence[bytes]) -> None:
        await add_patiently(target, self._metadata.ledger_id, self._master_key, [(first, run)])
