"""Reading a ledger: any replica, digest verified (spec BK-20, BK-22)."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from geminga_bookie.client.api import LedgerMetadata, LedgerState, ReadOptions
from geminga_bookie.client.confirmed import confirmed_in
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.metadata_store import LedgerMetadataStore
from geminga_bookie.client.placement import (
    covers_every_ack_quorum,
    fragment_end,
)
from geminga_bookie.client.replica_reads import ReplicaReads
from geminga_bookie.errors import (
    BookkeeperError,
    DigestMismatch,
    NoSuchEntry,
    NoSuchLedger,
)
from geminga_bookie.port import LacAnswer
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest, DigestError
from geminga_runtime.metadata.api import MetadataError

READ_ENTRIES_MAX = 4096
"""Bound of the entries of one request to a bookie."""
POLL_S = 5.0
"""While a reader waits for entries, metadata are read so often: the ledger may have been closed, or
have other bookies.
"""
WAIT_AGAIN_S = 0.5
"""Wait after a bookie failed to say that there is an entry."""
STRIPES_MAX = 64
"""Stripes that are read at once, if a ledger's entries are striped."""


class _Stripe:
    """Entries that one bookie has."""

    __slots__ = ("entries", "error", "first", "found")

    def __init__(self, first: int, entries: int) -> None:
        self.first = first
        self.entries = entries
        self.found: list[memoryview] = []
        self.error: BookkeeperError | None = None


class LedgerReader:
    """A ledger opened for reading. Payloads are views of the packets, without a copy."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        digest: Digest,
        bookies: BookieDirectory,
        store: LedgerMetadataStore,
        options: ReadOptions | None = None,
    ) -> None:
        self.ledger_id = metadata.ledger_id
        self.last_add_confirmed = metadata.last_entry_id
        """The last readable entry id; -1 for an empty ledger."""
        self.length = metadata.length
        """Payload bytes up to the last add confirmed."""
        self._end: bytes | None = None
        self._metadata = metadata
        self._digest = digest
        self._bookies = bookies
        self._store = store
        self._reads = ReplicaReads(self.ledger_id, bookies, options or ReadOptions())

    def take_end(self, packet: bytes) -> None:
        """The packet of the last entry, which a recovery has read. A cursor's state is in its
        ledger's last entry: a broker that takes it over need not ask for it again.
        """
        if packets.header(packet)[1] == self.last_add_confirmed:
            self._end = packet

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
        if self._end is not None and first == self.last_add_confirmed:
            await trio.lowlevel.checkpoint()
            return self._payloads(first, [self._end])
        found: list[memoryview] = []
        at = first
        while at <= last and bytes_max > 0:
            for view in await self._read_run(at, last, bytes_max):
                bytes_max -= len(view)
                found.append(view)
            at = first + len(found)
        return found

    async def read_last_add_confirmed(self) -> int:
        """Update the LAC from the bookies of the last fragment, of which each ack quorum must have
        one that answers; a closed ledger's is known. Raises the error of one that doesn't.
        """
        if self._metadata.state is not LedgerState.CLOSED:
            await self._learn_metadata()
        if self._metadata.state is not LedgerState.CLOSED:
            await self._ask_bookies()
            await self._learn_length()
        return self.last_add_confirmed

    async def wait_last_add_confirmed(self, timeout_s: float) -> int:
        """Wait by long poll until an entry above the LAC is confirmed, or the ledger is closed, or
        the time is over; returns the LAC. Whatever fails meanwhile is tried again (Apache's
        ReadLastConfirmedAndEntryOp).
        """
        known = self.last_add_confirmed
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(timeout_s):
            while self._metadata.state is not LedgerState.CLOSED:
                with trio.move_on_after(POLL_S):
                    await self._wait_on_bookies(known)
                if self.last_add_confirmed > known:
                    break
                await self._learn_metadata()
            if self._metadata.state is not LedgerState.CLOSED:
                await self._learn_length()
        return self.last_add_confirmed

    async def _wait_on_bookies(self, known: int) -> None:
        """Return when the LAC is above that. What one bookie says of it counts only with a packet
        of the ledger's writer.
        """
        last = max(self._metadata.ensembles)
        self.last_add_confirmed = max(self.last_add_confirmed, last - 1)
        if self.last_add_confirmed > known:
            return

        async def wait(bookie_id: str) -> None:
            while True:
                try:
                    port = self._bookies.port(bookie_id)
                    await port.wait_entry(self.ledger_id, known + 1, known)
                    lac = await self._lac_of(bookie_id)
                except BookkeeperError:
                    lac = -1
                if lac > known:
                    self.last_add_confirmed = max(self.last_add_confirmed, lac)
                    nursery.cancel_scope.cancel()
                    return
                await trio.sleep(WAIT_AGAIN_S)

        async with trio.open_nursery() as nursery:
            for bookie_id in self._metadata.ensembles[last]:
                nursery.start_soon(wait, bookie_id)

    async def _ask_bookies(self) -> None:
        metadata = self._metadata
        ensemble = metadata.ensembles[max(metadata.ensembles)]
        # All entries of earlier fragments were confirmed before the last one began.
        self.last_add_confirmed = max(self.last_add_confirmed, max(metadata.ensembles) - 1)
        answered: set[int] = set()
        failures: list[BookkeeperError] = []
        sizes = metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum

        async def ask(index: int) -> None:
            try:
                lac = await self._lac_of(ensemble[index])
            except BookkeeperError as error:
                failures.append(error)
                return
            self.last_add_confirmed = max(self.last_add_confirmed, lac)
            answered.add(index)
            if covers_every_ack_quorum(answered, *sizes):
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for index in range(len(ensemble)):
                nursery.start_soon(ask, index)
        if failures and not covers_every_ack_quorum(answered, *sizes):
            raise failures[0]

    async def _lac_of(self, bookie_id: str) -> int:
        try:
            answer = await self._bookies.port(bookie_id).read_lac(self.ledger_id)
        except NoSuchLedger:
            return -1
        try:
            return confirmed_in(answer, self.ledger_id, self._digest)
        except DigestMismatch:
            return self._confirmed_before(answer)

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
            [payload] = await self._read_any(self.last_add_confirmed, 1, 1)
        except BookkeeperError:
            return  # earlier entries are still readable
        self.length = packets.header(memoryview(payload.obj))[3]

    async def _read_run(self, first: int, last: int, bytes_max: int) -> list[memoryview]:
        """Entries from `first` on, as many as one replica returns at once."""
        entries_max = min(last - first + 1, READ_ENTRIES_MAX)
        end = fragment_end(self._metadata.ensembles, first)
        if end is not None:
            entries_max = min(entries_max, end - first)
        is_striped = self._metadata.write_quorum < self._metadata.ensemble_size
        read = self._read_striped if is_striped else self._read_any
        try:
            return await read(first, entries_max, bytes_max)
        except BookkeeperError as error:
            failure = error
        # Entries may have been copied to other bookies since the metadata was read.
        if not await self._learn_metadata():
            raise failure
        return await read(first, entries_max, bytes_max)

    async def _read_striped(self, first: int, entries_max: int, bytes_max: int) -> list[memoryview]:
        """Several stripes side by side: runs of a write quorum of entries, each of which some
        bookie has. Raises the error of the first one, if that has nothing.
        """
        write = self._metadata.write_quorum
        mean = max(1, self.length // (self.last_add_confirmed + 1))
        likely = min(entries_max, bytes_max // mean + 1)
        starts = range(first, first + likely, write)[:STRIPES_MAX]
        share = 2 * (bytes_max // len(starts) + 1)
        end = first + entries_max
        stripes = [_Stripe(at, min(write, end - at)) for at in starts]
        async with trio.open_nursery() as nursery:
            for stripe in stripes:
                nursery.start_soon(self._read_stripe, stripe, share)
        found: list[memoryview] = []
        for stripe in stripes:
            if stripe.error is not None and not found and not stripe.found:
                raise stripe.error
            for view in stripe.found:
                if found and bytes_max <= 0:
                    return found
                found.append(view)
                bytes_max -= len(view)
            if len(stripe.found) < stripe.entries:
                break
        return found

    async def _read_stripe(self, stripe: _Stripe, bytes_max: int) -> None:
        while len(stripe.found) < stripe.entries and bytes_max > 0:
            at, left = stripe.first + len(stripe.found), stripe.entries - len(stripe.found)
            try:
                views = await self._read_any(at, left, bytes_max)
            except BookkeeperError as error:
                stripe.error = error
                return
            stripe.found += views
            bytes_max -= sum(map(len, views))

    async def _read_any(self, first: int, entries_max: int, bytes_max: int) -> list[memoryview]:
        """Entries of the first bookie that has `first` whole."""

        async def read_from(bookie_id: str) -> list[memoryview]:
            found = await self._bookies.port(bookie_id).read(
                self.ledger_id, first, entries_max=entries_max, bytes_max=bytes_max
            )
            return self._payloads(first, found)

        return await self._reads.read(self._metadata, first, read_from)

    def _payloads(self, first: int, found: Sequence[bytes]) -> list[memoryview]:
        """Payloads up to the first damaged entry. Raises DigestMismatch if `first` is."""
        try:
            return self._digest.payloads(self.ledger_id, first, found)
        except DigestError:
            whole: list[memoryview] = []
        for entry_id, packet in enumerate(found, first):
            try:
                whole.append(self._digest.payload(self.ledger_id, entry_id, packet))
            except DigestError as error:
                if not whole:
                    raise DigestMismatch(f"ledger {self.ledger_id}: {error}") from error
                break
        return whole

    async def _learn_metadata(self) -> bool:
        """Read the metadata again; returns whether other bookies have the entries now."""
        try:
            metadata = (await self._store.read(self.ledger_id)).metadata
        except (MetadataError, NoSuchLedger):
            return False
        before = self._metadata
        self._take(metadata)
        return self._metadata.ensembles != before.ensembles

    def _take(self, metadata: LedgerMetadata) -> None:
        """Read on with this metadata."""
        if metadata.state is LedgerState.CLOSED and self._metadata.state is not LedgerState.CLOSED:
            self.last_add_confirmed = metadata.last_entry_id
            self.length = metadata.length
        self._metadata = metadata
