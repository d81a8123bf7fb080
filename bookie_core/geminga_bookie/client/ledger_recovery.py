"""Recovery of a ledger that its writer didn't close (spec BK-23; Apache's LedgerRecoveryOp).

State OPEN -> IN_RECOVERY, fence, read from the last add confirmed on, write again what any bookie
has, close by compare-and-set. Of two concurrent recoveries the second one to close
takes the first one's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import trio

from geminga_bookie.client.api import LedgerMetadata, LedgerState
from geminga_bookie.client.confirmed import confirmed_in
from geminga_bookie.client.metadata_store import LedgerMetadataStore, VersionedMetadata
from geminga_bookie.client.placement import covers_every_ack_quorum, ensemble_of, write_set
from geminga_bookie.client.read import port_of
from geminga_bookie.errors import (
    BookkeeperError,
    DigestMismatch,
    MetadataConflict,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
    UnknownLedgerState,
)
from geminga_bookie.port import BookiePort
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest, DigestError
from geminga_runtime.waiters import Promise

_RUN_ENTRIES = 256
"""Entries of one recovery read, which are rewritten together."""

_RUN_BYTES = 4 * 1024 * 1024


async def recover(
    known: VersionedMetadata,
    digest: Digest,
    store: LedgerMetadataStore,
    ports: Mapping[str, BookiePort],
) -> VersionedMetadata:
    """Fence, recover and close the ledger; returns its closed metadata. Raises UnknownLedgerState
    if too few bookies respond to find the ledger's end: a later retry may succeed. Raises
    DigestMismatch or NoSuchEntry if all copies of a needed entry are damaged or lost: a retry
    doesn't help.
    """
    while known.metadata.state is not LedgerState.CLOSED:
        try:
            if known.metadata.state is LedgerState.OPEN:
                fencing = replace(known.metadata, state=LedgerState.IN_RECOVERY)
                known = await store.update(known, fencing)
            recovery = _Recovery(known.metadata, digest, ports)
            last_entry_id, length = await recovery.run()
            known = await store.update(known, known.closed(last_entry_id, length))
        except MetadataConflict:
            known = await store.read(known.metadata.ledger_id)
    return known


class _Recovery:
    """One attempt, with one version of the metadata."""

    def __init__(
        self, metadata: LedgerMetadata, digest: Digest, ports: Mapping[str, BookiePort]
    ) -> None:
        self._metadata = metadata
        self._digest = digest
        self._ports = ports
        self._master_key = packets.master_key(metadata.password)

    async def run(self) -> tuple[int, int]:
        """(last entry id, length) for closing the ledger."""
        last = await self._fence()
        length = 0
        if last >= 0:
            run = await self._found_run(last, 1)
            if not run:
                raise NoSuchEntry(f"{self._name}: no bookie has confirmed entry {last} any more")
            length = packets.header(run[0])[3]
        while run := await self._found_run(last + 1, _RUN_ENTRIES):
            await self._write_again(last + 1, run)
            last += len(run)
            length = packets.header(run[-1])[3]
        return last, length

    @property
    def _name(self) -> str:
        return f"ledger {self._metadata.ledger_id}"

    async def _fence(self) -> int:
        """Fence until the old writer can't get an ack quorum; returns the highest LAC of the
        bookies that answered. The others are not waited for: one may be away for long.
        """
        metadata = self._metadata
        ensemble = metadata.ensembles[max(metadata.ensembles)]
        answers: dict[int, int] = {}
        failures: list[BookkeeperError] = []
        sizes = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum

        async def fence_one(index: int) -> None:
            try:
                port = port_of(self._ports, ensemble[index])
                answer = await port.fence(metadata.ledger_id, self._master_key)
                answers[index] = confirmed_in(answer, metadata.ledger_id, self._digest)
            except BookkeeperError as error:
                failures.append(error)
            if covers_every_ack_quorum(set(answers), *sizes):
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for index in range(len(ensemble)):
                nursery.start_soon(fence_one, index)
        if not covers_every_ack_quorum(set(answers), *sizes):
            self._refuse("can't be fenced", failures)
        # All entries of earlier fragments were confirmed before the last one began.
        return max(*answers.values(), max(metadata.ensembles) - 1)

    async def _found_run(self, first: int, entries_max: int) -> list[bytes]:
        """Packets from `first` on that some bookie has; empty if no ack quorum can have `first`.

        One verified copy is enough, as it is written again to the whole write quorum. Without any,
        (WQ - AQ) + 1 bookies that don't have the entry rule it out: it was never confirmed. With
        fewer its place is unknown, and never taken for the end.
        """
        metadata = self._metadata
        ensemble = ensemble_of(metadata.ensembles, first)
        found: list[bytes] = []
        negative, ruled_out = 0, metadata.write_quorum - metadata.ack_quorum + 1
        failures: list[BookkeeperError] = []

        async def read_one(bookie_id: str) -> None:
            nonlocal found, negative
            try:
                found = found or await self._verified(bookie_id, first, entries_max)
            except (NoSuchEntry, NoSuchLedger):
                negative += 1
            except BookkeeperError as error:
                failures.append(error)
            if found or negative >= ruled_out:
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for index in write_set(first, metadata.ensemble_size, metadata.write_quorum):
                nursery.start_soon(read_one, ensemble[index])
        if not found and negative < ruled_out:
            self._refuse(f"entry {first} is neither found nor ruled out", failures)
        return found

    async def _verified(self, bookie_id: str, first: int, entries_max: int) -> list[bytes]:
        ledger_id = self._metadata.ledger_id
        run = await port_of(self._ports, bookie_id).read(
            ledger_id, first, entries_max=entries_max, bytes_max=_RUN_BYTES
        )
        for entry_id, packet in enumerate(run, first):
            try:
                self._digest.payload(ledger_id, entry_id, packet)
            except DigestError as error:
                if entry_id > first:
                    return run[: entry_id - first]  # another bookie may have it whole
                raise DigestMismatch(f"bookie {bookie_id}: {error}") from error
        return run

    async def _write_again(self, first: int, run: Sequence[bytes]) -> None:
        """Write entries to their whole write sets, as copies that were read may not be durable."""
        metadata = self._metadata
        ensemble = ensemble_of(metadata.ensembles, first)
        failures: list[BookkeeperError] = []
        async with trio.open_nursery() as nursery:
            for index in range(metadata.ensemble_size):
                mine = [
                    (first + n, packet)
                    for n, packet in enumerate(run)
                    if index in write_set(first + n, metadata.ensemble_size, metadata.write_quorum)
                ]
                if mine:
                    nursery.start_soon(self._write_to, ensemble[index], mine, failures)
        if failures:
            self._refuse("recovered entries can't be written again", failures)

    async def _write_to(
        self,
        bookie_id: str,
        entries: list[tuple[int, bytes]],
        failures: list[BookkeeperError],
    ) -> None:
        answer: Promise[None] = Promise()
        left = len(entries)

        def done(first: int, count: int, error: BookkeeperError | None) -> None:
            nonlocal left
            left -= count
            if error is not None:
                answer.reject(error)
            elif left == 0:
                answer.resolve(None)

        ledger_id, key = self._metadata.ledger_id, self._master_key
        try:
            port = port_of(self._ports, bookie_id)
            for entry_id, packet in entries:
                port.add(ledger_id, key, entry_id, [packet], done, recovery=True)
            await answer.wait()
        except BookkeeperError as error:
            failures.append(error)

    def _refuse(self, why: str, failures: Sequence[BookkeeperError]) -> None:
        for error in failures:
            if isinstance(error, UnauthorizedAccess):
                raise error
        causes = "; ".join(str(error) for error in failures) or "too few answers"
        damaged = failures and all(isinstance(error, DigestMismatch) for error in failures)
        kind = DigestMismatch if damaged else UnknownLedgerState
        raise kind(f"{self._name}: {why}: {causes}")
