"""Appending to a ledger: pipelined, answered in order (spec BK-20).

One replica (E = WQ = AQ = 1): the bookie's answers are the ledger's. What completes, completes by
runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from geminga_bookie.client.api import AppendDone, LedgerState
from geminga_bookie.client.metadata_store import LedgerMetadataStore, VersionedMetadata
from geminga_bookie.client.read import LedgerHandle, port_of
from geminga_bookie.errors import (
    BookkeeperError,
    LedgerClosed,
    LedgerFenced,
    MetadataConflict,
    StorageFailed,
)
from geminga_bookie.port import BookiePort
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest
from geminga_protocol.buffers import Buffer
from geminga_runtime.waiters import Promise


class _Pending(NamedTuple):
    """An append that is not wholly answered: entries from `first` to before `end`.

    It is kept whole: how much of it is answered follows from the last confirmed entry.
    """

    first: int
    end: int
    packets: Sequence[bytes]
    length: int
    done: AppendDone


class LedgerAppender(LedgerHandle):
    """The one writer of an open ledger: `LedgerWriter`.

    Memory for unanswered appends is bounded by the callers' own limits on what they have
    outstanding.
    """

    def __init__(
        self,
        known: VersionedMetadata,
        digest: Digest,
        ports: Mapping[str, BookiePort],
        store: LedgerMetadataStore,
    ) -> None:
        super().__init__(known.metadata, digest, ports)
        self._known = known
        self._store = store
        [bookie_id] = known.metadata.ensembles[0]
        self._bookie = port_of(ports, bookie_id)
        self._master_key = packets.master_key(known.metadata.password)
        self._pushed = -1
        self._pushed_length = 0
        self._pending: deque[_Pending] = deque()
        self._failure: BookkeeperError | None = None
        self._drained: Promise[None] | None = None
        self._added_now = self._added

    @property
    def last_add_pushed(self) -> int:
        """Highest entry id given out, -1 if none."""
        return self._pushed

    def append(
        self, entries: Sequence[Sequence[Buffer]], done: AppendDone
    ) -> tuple[int, list[memoryview]]:
        """See `LedgerWriter.append`."""
        ledger_id = self._metadata.ledger_id
        first = self._pushed + 1
        entry_id = first
        length = self._pushed_length
        lac = self._lac
        packet = self._digest.packet
        overhead = self._digest.overhead_bytes
        made: list[bytes] = []
        views: list[memoryview] = []
        for parts in entries:
            for part in parts:
                length += len(part)
            made.append(data := packet(ledger_id, entry_id, lac, length, parts))
            views.append(memoryview(data)[overhead:])
            entry_id += 1
        if self._failure is not None:
            done(first, len(made), self._failure)
            return first, views
        self._pushed = entry_id - 1
        self._pushed_length = length
        self._pending.append(_Pending(first, entry_id, made, length, done))
        self._bookie.add(ledger_id, self._master_key, first, made, self._added_now)
        return first, views

    async def read_last_add_confirmed(self) -> int:
        """The writer knows it."""
        return self._lac

    async def close(self) -> None:
        """See `LedgerWriter.close`. After a failed append the ledger ends at its last confirmed
        entry.

        Raises LedgerFenced if another client recovered the ledger meanwhile. Idempotent.
        """
        if self._pending:
            if self._drained is None:
                self._drained = Promise()
            await self._drained.wait()
        if isinstance(self._failure, LedgerFenced):
            raise self._failure
        if self._failure is None:
            self._failure = LedgerClosed(f"ledger {self.ledger_id}")
        if self._known.metadata.state is LedgerState.CLOSED:
            return
        closed = self._known.closed(self._lac, self._length)
        try:
            self._known = await self._store.update(self._known, closed)
        except MetadataConflict:
            self._known = await self._store.read(self.ledger_id)  # noqa: ASYNC120
            if self._known.metadata != closed:
                self._failure = LedgerFenced(f"ledger {self.ledger_id} was taken over")
                raise self._failure from None
        self._metadata = closed

    def _added(self, first: int, count: int, error: BookkeeperError | None) -> None:
        """The bookie's answer for a run of entries."""
        if self._failure is not None:
            return
        if error is not None or first != self._lac + 1:
            self._fail(error or StorageFailed(f"ledger {self.ledger_id}: answers out of order"))
            return
        end = first + count
        self._lac = end - 1
        pending = self._pending
        while pending and first < end:
            head = pending[0]
            if head.end > end:
                part_end = end
                self._length = packets.header(head.packets[end - 1 - head.first])[3]
            else:
                pending.popleft()
                last = head
                # Appends of one caller that are complete are answered together.
                while pending and pending[0].done is head.done and pending[0].end <= end:
                    last = pending.popleft()
                part_end = last.end
                self._length = last.length
            head.done(first, part_end - first, None)
            first = part_end
        if not pending and self._drained is not None:
            self._drained.resolve(None)

    def _fail(self, error: BookkeeperError) -> None:
        self._failure = error
        pending, self._pending = self._pending, deque()
        for head in pending:
            first = max(head.first, self._lac + 1)
            head.done(first, head.end - first, error)
        if self._drained is not None:
            self._drained.resolve(None)
