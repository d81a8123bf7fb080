"""Recovery of a ledger that its writer didn't close (spec BK-23; Apache's LedgerRecoveryOp).

State OPEN -> IN_RECOVERY, fence, read what is behind the last add confirmed, write again what any
bookie has, close by compare-and-set. Of two concurrent recoveries the second one to close
takes the first one's end. Bookies that take the place of failed ones are in the metadata only with
the close: until then readers would look for entries where they may not be yet.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from geminga_bookie.client.api import LOSS_ACCEPTED, LedgerMetadata, LedgerState
from geminga_bookie.client.confirmed import confirmed_in
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.metadata_store import LedgerMetadataStore, VersionedMetadata
from geminga_bookie.client.patience import add_patiently, patiently
from geminga_bookie.client.placement import (
    change_ensemble,
    covers_every_ack_quorum,
    ensemble_of,
    write_set,
)
from geminga_bookie.client.quorum import Quorums
from geminga_bookie.errors import (
    BookkeeperError,
    DigestMismatch,
    EntryLost,
    MetadataConflict,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
    UnknownLedgerState,
)
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest, DigestError
from geminga_runtime.background import side_by_side, until_enough

_log = logging.getLogger(__name__)

_RUN_ENTRIES = 256
"""Entries of one recovery read, at most, which are rewritten together. Behind those that bookies
have shown it begins with one: a bookie answers each entry that it doesn't have for itself, and a
broker that takes over thousands of ledgers asks about the ends of all.
"""
_FIRST_RUN_ENTRIES = 8
"""Of the first one: entries may be so large that a read has few of them."""

_RUN_BYTES = 4 * 1024 * 1024


async def recover(
    known: VersionedMetadata,
    digest: Digest,
    store: LedgerMetadataStore,
    bookies: BookieDirectory,
) -> tuple[VersionedMetadata, bytes | None]:
    """Fence, recover and close the ledger; returns its closed metadata, and the packet of its last
    entry if that was read for it. Raises UnknownLedgerState if too few bookies respond to find the
    ledger's end: a later retry may succeed. Raises DigestMismatch or NoSuchEntry if all copies of
    an entry behind the last confirmed one, or of that one if it is the last, are damaged or lost: a
    retry doesn't help. What a bookie knows to be lost is passed over (EntryLost). A bookie that
    answers TooManyRequests is asked again.
    """
    end: bytes | None = None
    while known.metadata.state is not LedgerState.CLOSED:
        try:
            if known.metadata.state is LedgerState.OPEN:
                fencing = replace(known.metadata, state=LedgerState.IN_RECOVERY)
                known = await store.update(known, fencing)
            attempt = _Recovery(known.metadata, digest, bookies)
            closed = await attempt.run()
            known = await store.update(known, closed)
            end = attempt.end
        except MetadataConflict:
            known = await store.read(known.metadata.ledger_id)
    return known, end


class _Recovery:
    """One attempt, with one version of the metadata."""

    def __init__(self, metadata: LedgerMetadata, digest: Digest, bookies: BookieDirectory) -> None:
        self._metadata = metadata
        """As the writer left it: entries are read from its ensembles."""
        self._changed = metadata
        """With the bookies that entries are written to."""
        self._fenced: set[str] = set()
        """Bookies that answered a fence."""
        self._has_lost = False
        self._accepts_loss = LOSS_ACCEPTED in metadata.custom_metadata
        self._held = -1
        """The highest entry that a bookie has shown, or said to be confirmed."""
        self._shown: dict[int, bytes] = {}
        """What bookies gave when they were fenced: packets by entry id, verified."""
        self.end: bytes | None = None
        """The packet of the last entry so far."""
        self._failed: set[str] = set()
        """Bookies that didn't take entries."""
        self._digest = digest
        self._bookies = bookies
        self._master_key = packets.master_key(metadata.password)

    async def run(self) -> LedgerMetadata:
        """The metadata of the closed ledger."""
        confirmed = await self._fence()
        at, unseen = confirmed + 1, 1
        length: int | None = None
        most = min(_FIRST_RUN_ENTRIES, self._run_entries_max)
        while True:
            shown = self._held + 1 - at
            asked = min(shown if shown > 0 else unseen, most)
            run = await self._unless_lost(at, asked)
            if run is None:
                at, self.end = at + 1, None
                continue
            if not run:
                break
            await self._write_again(at, run)
            at += len(run)
            self._shown = {last: packet for last, packet in self._shown.items() if last >= at}
            self.end = run[-1]
            length = packets.header(self.end)[3]
            # A short run ends the ledger, or the bytes of a read.
            is_whole = len(run) == asked
            if asked == most:
                most = min(2 * most if is_whole else len(run), self._run_entries_max)
            if shown <= 0:
                unseen = 2 * unseen if is_whole else len(run)
        if length is None:
            length = await self._confirmed_length(confirmed)
        return replace(self._changed, state=LedgerState.CLOSED, last_entry_id=at - 1, length=length)

    async def _confirmed_length(self, confirmed: int) -> int:
        """Of a ledger that ends with the last confirmed entry, which is where it has to be."""
        if confirmed < 0:
            return 0
        run = await self._unless_lost(confirmed, 1)
        if run == []:
            raise NoSuchEntry(f"{self._name}: no bookie has confirmed entry {confirmed} any more")
        if run is None:
            return 0
        [self.end] = run
        return packets.header(self.end)[3]

    @property
    def _run_entries_max(self) -> int:
        """Entries of one read. Of a striped ledger no bookie has more than a write quorum of
        neighbours, and it is asked for each of the others in vain.
        """
        metadata = self._metadata
        is_striped = metadata.write_quorum < metadata.ensemble_size
        return metadata.write_quorum if is_striped else _RUN_ENTRIES

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

        async def fence_one(index: int) -> bool:
            try:
                answers[index] = await self._fence_one(ensemble[index])
            except BookkeeperError as error:
                failures.append(error)
            return is_enough()

        def is_enough() -> bool:
            # Whoever gives up what is lost must have heard of all that is there.
            if self._accepts_loss:
                return len(answers) == len(ensemble)
            return covers_every_ack_quorum(set(answers), *sizes)

        await until_enough([partial(fence_one, index) for index in range(len(ensemble))])
        if not is_enough():
            self._refuse("can't be fenced", failures)
        # All entries of earlier fragments were confirmed before the last one began.
        last = max(*answers.values(), max(metadata.ensembles) - 1)
        self._held = max(self._held, last)
        return last

    async def _fence_one(self, bookie_id: str) -> int:
        """Fence a bookie; returns its LAC."""
        ledger_id = self._metadata.ledger_id
        port = self._bookies.port(bookie_id)
        answer = await patiently(partial(port.fence, ledger_id, self._master_key))
        self._fenced.add(bookie_id)
        confirmed = confirmed_in(answer, ledger_id, self._digest)
        if answer.last_packet is not None:
            last = packets.header(answer.last_packet)[1]
            self._shown[last] = answer.last_packet
            self._held = max(self._held, last)
        return confirmed

    async def _unless_lost(self, first: int, entries_max: int) -> list[bytes] | None:
        """As `_found_run`; None for an entry that is lost, in front of others that are there: the
        ledger goes on behind it, and who reads it is told. If the loss is accepted the ledger ends
        behind the last one that is there.
        """
        try:
            return await self._found_run(first, entries_max)
        except EntryLost as error:
            if not self._has_lost:
                _log.error("entries are passed over: %s", error)
            self._has_lost = True
            return [] if self._accepts_loss and first > self._held else None

    async def _found_run(self, first: int, entries_max: int) -> list[bytes]:
        """Packets from `first` on that some bookie has; empty if no ack quorum can have `first`.

        One verified copy is enough, as it is written again to the whole write quorum. Without any,
        (WQ - AQ) + 1 bookies that don't have the entry rule it out: it was never confirmed. With
        fewer its place is unknown, and never taken for the end. Only a fenced bookie rules anything
        out: another one may still get the entry from the old writer, and confirm it.
        """
        if entries_max == 1 and first in self._shown:
            return [self._shown[first]]
        metadata = self._metadata
        ensemble = ensemble_of(metadata.ensembles, first)
        found: list[bytes] = []
        negative, ruled_out = 0, metadata.write_quorum - metadata.ack_quorum + 1
        failures: list[BookkeeperError] = []

        async def read_one(bookie_id: str) -> bool:
            nonlocal found, negative
            try:
                if bookie_id not in self._fenced:
                    await self._fence_one(bookie_id)
                found = found or await self._verified(bookie_id, first, entries_max)
            except (NoSuchEntry, NoSuchLedger):
                negative += 1
            except BookkeeperError as error:
                failures.append(error)
            return bool(found) or negative >= ruled_out

        places = write_set(first, metadata.ensemble_size, metadata.write_quorum)
        await until_enough([partial(read_one, ensemble[place]) for place in places])
        if not found and negative < ruled_out:
            why = f"entry {first} is neither found nor ruled out"
            all_answered = negative + len(failures) == metadata.write_quorum
            if self._accepts_loss and all_answered and all(map(_may_be_lost, failures)):
                raise EntryLost(f"{self._name}: {why}, and its loss is accepted")
            self._refuse(why, failures)
        return found

    async def _verified(self, bookie_id: str, first: int, entries_max: int) -> list[bytes]:
        ledger_id = self._metadata.ledger_id
        port = self._bookies.port(bookie_id)
        run = await patiently(
            partial(port.read, ledger_id, first, entries_max=entries_max, bytes_max=_RUN_BYTES)
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
        """Write entries to their whole write sets, as copies that were read may not be durable.
        Failed bookies are replaced. Without another one an ack quorum of copies is enough.
        """
        if not run:
            return
        written: set[int] = set()
        failures: list[BookkeeperError] = []
        places = range(self._metadata.ensemble_size)
        while True:
            ensemble = ensemble_of(self._changed.ensembles, first)
            now = [each for each in places if each not in written]
            targets = [
                (place, ensemble[place]) for place in now if ensemble[place] not in self._failed
            ]
            write_to = partial(self._write_to, first=first, run=run, failures=failures)
            await side_by_side([partial(write_to, target) for target in targets], len(places))
            written.update(place for place in now if ensemble[place] not in self._failed)
            if len(written) == len(places):
                return
            try:
                self._changed = change_ensemble(
                    self._changed,
                    self._failed,
                    first - 1,
                    self._bookies.writable(),
                    self._bookies.rules(),
                )
            except NotEnoughBookies as error:
                if not self._has_ack_quorums(written):
                    self._refuse("recovered entries can't be written again", [*failures, error])
                return

    def _has_ack_quorums(self, places: set[int]) -> bool:
        """Whether each write set has an ack quorum at these places."""
        metadata = self._metadata
        return all(
            len(places.intersection(write_set(at, metadata.ensemble_size, metadata.write_quorum)))
            >= metadata.ack_quorum
            for at in range(metadata.ensemble_size)
        )

    async def _write_to(
        self,
        target: tuple[int, str],
        first: int,
        run: Sequence[bytes],
        failures: list[BookkeeperError],
    ) -> None:
        """Write one bookie's share of a run."""
        place, bookie_id = target
        metadata = self._metadata
        quorums = Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        shares = [
            (begin, run[begin - first : end - first])
            for begin, end in quorums.runs(place, first, first + len(run))
        ]
        try:
            port = self._bookies.port(bookie_id)
            await add_patiently(port, metadata.ledger_id, self._master_key, shares)
        except BookkeeperError as error:
            self._failed.add(bookie_id)
            failures.append(error)
            self._bookies.failed(bookie_id, error)

    def _refuse(self, why: str, failures: Sequence[BookkeeperError]) -> None:
        for error in failures:
            if isinstance(error, UnauthorizedAccess):
                raise error
        causes = "; ".join(str(error) for error in failures) or "too few answers"
        damaged = failures and all(isinstance(error, DigestMismatch) for error in failures)
        kind: type[BookkeeperError] = DigestMismatch if damaged else UnknownLedgerState
        if failures and all(isinstance(error, EntryLost) for error in failures):
            kind = EntryLost
        raise kind(f"{self._name}: {why}: {causes}")


def _may_be_lost(error: BookkeeperError) -> bool:
    """Whether a bookie says so itself; one that is away may have it."""
    return isinstance(error, UnknownLedgerState | DigestMismatch)
