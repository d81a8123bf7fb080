"""Reading a ledger: any replica, digest verified (spec BK-20, BK-22)."""

from __future__ import annotations

from collections.abc import Mapping

from geminga_bookie.client.api import LedgerMetadata, LedgerState
from geminga_bookie.client.confirmed import confirmed_in
from geminga_bookie.client.placement import ensemble_of, fragment_end, write_set
from geminga_bookie.errors import (
    BookkeeperError,
    DigestMismatch,
    NoSuchEntry,
    NoSuchLedger,
    UnknownLedgerState,
)
from geminga_bookie.port import BookiePort, LacAnswer
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest, DigestError

READ_ENTRIES_MAX = 4096
"""Bound of the entries of one request to a bookie."""


class LedgerReader:
    """A ledger opened for reading. Payloads are views of the packets, without a copy."""

    def __init__(
        self, metadata: LedgerMetadata, digest: Digest, ports: Mapping[str, BookiePort]
    ) -> None:
        self.ledger_id = metadata.ledger_id
        self.last_add_confirmed = metadata.last_entry_id
        """The last readable entry id; -1 for an empty ledger."""
        self.length = metadata.length
        """Payload bytes up to the last add confirmed."""
        self._metadata = metadata
        self._digest = digest
        self._ports = ports

    async def read(self, first: int, last: int, *, bytes_max: int = 1 << 62) -> list[memoryview]:
        """Payloads of entries first..last (inclusive), with verified digests; fewer, but at least
        one, if `bytes_max` is reached. Raises BookkeeperError, NoSuchEntry beyond the last add
        confirmed.
        """
        if not 0 <= first <= last or last > self.last_add_confirmed:
            raise NoSuchEntry(
                f"entries {first}..{last} of ledger {self.ledger_id}, "
                f"which ends at {self.last_add_confirmed}"
            )
        found: list[memoryview] = []
        at = first
        while at <= last and bytes_max > 0:
            for view in await self._read_run(at, last, bytes_max):
                bytes_max -= len(view)
                found.append(view)
            at = first + len(found)
        return found

    async def read_last_add_confirmed(self) -> int:
        """Update the LAC from the bookies; a closed ledger's is known."""
        if self._metadata.state is not LedgerState.CLOSED:
            bookies = ensemble_of(self._metadata.ensembles, max(self.last_add_confirmed, 0))
            for bookie_id in bookies:
                port = port_of(self._ports, bookie_id)
                try:
                    answer = await port.read_lac(self.ledger_id)
                except NoSuchLedger:
                    continue
                try:
                    lac = confirmed_in(answer, self.ledger_id, self._digest)
                except DigestMismatch:
                    lac = self._confirmed_before(answer)
                self.last_add_confirmed = max(self.last_add_confirmed, lac)
            await self._learn_length()
        return self.last_add_confirmed

    def _confirmed_before(self, answer: LacAnswer) -> int:
        """The LAC in a damaged last packet. It is sufficient for reading, since each read entry is
        checked; a recovery doesn't use it. Raises DigestMismatch.
        """
        try:
            ledger_id, entry_id, lac, _ = packets.header(answer.last_packet or b"")
        except DigestError as error:
            raise DigestMismatch(f"ledger {self.ledger_id}: {error}") from error
        if ledger_id != self.ledger_id:
            raise DigestMismatch(f"ledger {self.ledger_id}: the last packet is of {ledger_id}")
        return min(lac, entry_id - 1)

    async def aclose(self) -> None:
        """Close the handle; has no effect yet."""

    async def _learn_length(self) -> None:
        if self.last_add_confirmed < 0:
            return
        try:
            [packet] = await self._packets(self.last_add_confirmed, 1, 1)
        except (DigestMismatch, NoSuchEntry):
            return  # earlier entries are still readable
        self.length = packets.header(packet)[3]

    async def _read_run(self, first: int, last: int, bytes_max: int) -> list[memoryview]:
        """Entries from `first` on, as many as one replica returns at once."""
        entries_max = min(last - first + 1, READ_ENTRIES_MAX)
        end = fragment_end(self._metadata.ensembles, first)
        if end is not None:
            entries_max = min(entries_max, end - first)
        found = await self._packets(first, entries_max, bytes_max)
        try:
            return self._digest.payloads(self.ledger_id, first, found)
        except DigestError as error:
            raise DigestMismatch(f"ledger {self.ledger_id}: {error}") from error

    async def _packets(self, first: int, entries_max: int, bytes_max: int) -> list[bytes]:
        metadata = self._metadata
        ensemble = ensemble_of(metadata.ensembles, first)
        failure: BookkeeperError = NoSuchEntry(f"entry {self.ledger_id}:{first}")
        for index in write_set(first, metadata.ensemble_size, metadata.write_quorum):
            try:
                return await port_of(self._ports, ensemble[index]).read(
                    self.ledger_id, first, entries_max=entries_max, bytes_max=bytes_max
                )
            except BookkeeperError as error:
                # Another replica's failure is more informative than a missing entry.
                if not isinstance(error, NoSuchEntry | NoSuchLedger) or len(ensemble) == 1:
                    failure = error
        raise failure


def port_of(ports: Mapping[str, BookiePort], bookie_id: str) -> BookiePort:
    """The bookie's port. Raises UnknownLedgerState if it can't be reached."""
    port = ports.get(bookie_id)
    if port is None:
        raise UnknownLedgerState(f"bookie {bookie_id} can't be reached")
    return port
