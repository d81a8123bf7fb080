"""Which bookies lack entries of a ledger (spec BK-26; Apache's LedgerChecker, which looks at the
first and the last entry only).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

import trio

from geminga_bookie.autorecovery.fragments import Fragment, Lack, closed_fragments, share
from geminga_bookie.autorecovery.pace import Pace
from geminga_bookie.client.api import LedgerMetadata
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.errors import (
    BookieUnavailable,
    BookkeeperError,
    DigestMismatch,
    NoSuchEntry,
    NoSuchLedger,
    RequestTimeout,
    StorageFailed,
    UnknownLedgerState,
)
from geminga_bookie.port import BookiePort
from geminga_protocol.bookkeeper.digest import Digest, DigestError

READ_BYTES_MAX = 4 * 1024 * 1024
"""Bound of one read."""

LIST_TIMEOUT_S = 5.0
"""Apache's bookies don't answer the question for a ledger's entries; they are not asked again for
some time."""

LIST_AGAIN_S = 3600.0
LISTED_ENTRIES_MAX = 1_000_000
"""Entries of longer ledgers are read instead: a list would need too much memory."""

ENTRIES_AT_ONCE = 10_000
"""Entries that are looked for in a list without a pause: others share the loop."""

RUNS_MAX = 10_000
"""Missing runs that one inspection reports of a place; the next one finds the rest."""

ABSENT = NoSuchEntry, NoSuchLedger, DigestMismatch, UnknownLedgerState, StorageFailed
"""A bookie that answers so has no copy that anybody can read: it gets the entry again."""


@dataclass
class Findings:
    """What an inspection found."""

    lacks: list[Lack] = field(default_factory=list)
    unknown: list[BookkeeperError] = field(default_factory=list)
    """Of bookies that are registered, but don't answer."""

    @property
    def is_whole(self) -> bool:
        """Whether every bookie certainly has all of its entries."""
        return not self.lacks and not self.unknown


class Inspector:
    """Inspects one ledger after the other. Memory is bounded by a ledger's list of entries."""

    def __init__(self, bookies: BookieDirectory, *, batch_entries: int, pace: Pace) -> None:
        self._bookies = bookies
        self._batch_entries = batch_entries
        self._pace = pace
        self._silent: dict[str, float] = {}
        """Bookies that don't list entries, and until when they are not asked."""

    async def inspect(
        self,
        metadata: LedgerMetadata,
        digest: Digest,
        registered: Container[str],
        suspects: Container[str] | None = None,
    ) -> Findings:
        """Compare each place of each closed fragment with its bookie. A bookie that isn't
        registered lacks all. Of one that can't list its entries only the first and the last one are
        read, unless it is among the suspects; None suspects all.
        """
        findings = Findings()
        places: dict[str, list[tuple[Fragment, int]]] = {}
        for fragment in closed_fragments(metadata):
            for place, bookie_id in enumerate(fragment.ensemble):
                if next(share(metadata, fragment, place), None) is not None:
                    places.setdefault(bookie_id, []).append((fragment, place))
        for bookie_id, held in places.items():
            if bookie_id not in registered:
                findings.lacks += [Lack(fragment, place, None) for fragment, place in held]
                continue
            is_suspect = suspects is None or bookie_id in suspects
            look = _Look(metadata, digest, self._batch_entries, self._pace)
            try:
                port = self._bookies.port(bookie_id)
                listed = await self._listed(port, metadata)
                for fragment, place in held:
                    if listed is not None:
                        missing = await not_in(listed, share(metadata, fragment, place))
                    else:
                        missing = await look.read(port, fragment, place, every=is_suspect)
                    if missing:
                        findings.lacks.append(Lack(fragment, place, missing))
            except BookkeeperError as error:
                findings.unknown.append(error)
        return findings

    async def _listed(self, port: BookiePort, metadata: LedgerMetadata) -> set[int] | None:
        """Ids of the bookie's entries; None if they must be read."""
        fragments = closed_fragments(metadata)
        if fragments[-1].end > LISTED_ENTRIES_MAX:
            return None
        if self._silent.get(port.bookie_id, 0.0) > trio.current_time():
            return None
        with trio.move_on_after(LIST_TIMEOUT_S):
            try:
                entry_ids = await port.list_entries(metadata.ledger_id)
                await trio.lowlevel.checkpoint()
                return set(entry_ids)
            except NoSuchLedger:
                return set()
            except BookieUnavailable:
                raise
            except RequestTimeout:
                pass
            except BookkeeperError:
                return None
        self._silent = {each: at for each, at in self._silent.items() if at > trio.current_time()}
        self._silent[port.bookie_id] = trio.current_time() + LIST_AGAIN_S
        return None


@dataclass
class _Look:
    """Reads a ledger's entries to see whether they are there and whole."""

    metadata: LedgerMetadata
    digest: Digest
    batch_entries: int
    pace: Pace

    async def read(
        self, port: BookiePort, fragment: Fragment, place: int, *, every: bool
    ) -> list[tuple[int, int]]:
        """Runs of entries that the bookie lacks. Raises BookkeeperError if it doesn't answer."""
        runs: Iterable[tuple[int, int]] = share(self.metadata, fragment, place)
        if not every:
            runs = _edges(runs)
        missing: list[tuple[int, int]] = []
        for first, end in runs:
            at = first
            while at < end:
                found = await self._found(port, at, end)
                if not found:
                    _extend(missing, at)
                    if len(missing) > RUNS_MAX:
                        return missing[:-1]
                at += max(1, found)
        return missing

    async def _found(self, port: BookiePort, first: int, end: int) -> int:
        """How many entries from `first` on are there."""
        ledger_id = self.metadata.ledger_id
        entries_max = min(self.batch_entries, end - first)
        try:
            found = await port.read(
                ledger_id, first, entries_max=entries_max, bytes_max=READ_BYTES_MAX
            )
        except ABSENT:
            return 0
        await self.pace.spend(sum(map(len, found)))
        return len(whole(self.digest, ledger_id, first, found))


def whole(digest: Digest, ledger_id: int, first: int, packets: Sequence[bytes]) -> Sequence[bytes]:
    """The packets up to the first one that isn't what the ledger's writer made."""
    for count, packet in enumerate(packets):
        try:
            digest.payload(ledger_id, first + count, packet)
        except DigestError:
            return packets[:count]
    return packets


def _edges(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The first and the last entry of the runs."""
    first = last = -1
    for begin, end in runs:
        first, last = (begin if first < 0 else first), end - 1
    return [(first, first + 1)] if first == last else [(first, first + 1), (last, last + 1)]


async def not_in(listed: Container[int], runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs of the entries that aren't listed, of RUNS_MAX the first ones."""
    missing: list[tuple[int, int]] = []
    looked = 0
    for first, end in runs:
        for at in range(first, end, ENTRIES_AT_ONCE):
            part = range(at, min(end, at + ENTRIES_AT_ONCE))
            for entry_id in part:
                if entry_id not in listed:
                    _extend(missing, entry_id)
            looked += len(part)
            if looked >= ENTRIES_AT_ONCE:
                looked = 0
                await trio.lowlevel.checkpoint()
            if len(missing) > RUNS_MAX:
                return missing[:RUNS_MAX]
    return missing


def _extend(runs: list[tuple[int, int]], entry_id: int) -> None:
    if runs and runs[-1][1] == entry_id:
        runs[-1] = (runs[-1][0], entry_id + 1)
    else:
        runs.append((entry_id, entry_id + 1))
