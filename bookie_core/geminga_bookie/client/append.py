"""Appending to a ledger: pipelined, completed in order (spec BK-20; Apache's LedgerHandle).

An append goes to the bookies of its entries' write sets at once. Those answer by runs, in any order
between them; it completes, run by run, as far as ack quorums have all entries.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from geminga_bookie.client.api import LedgerState
from geminga_bookie.client.metadata_store import LedgerMetadataStore, VersionedMetadata
from geminga_bookie.client.quorum import Acked, Quorums
from geminga_bookie.client.read import LedgerReader, port_of
from geminga_bookie.errors import (
    BookkeeperError,
    LedgerClosed,
    LedgerFenced,
    MetadataConflict,
)
from geminga_bookie.port import AddDone, BookiePort
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest
from geminga_protocol.buffers import Buffer
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)


class _Pending(NamedTuple):
    """An incomplete append: entries from `first` to before `end`. Those before
    `LedgerWriter._answered` are complete.
    """

    first: int
    end: int
    packets: Sequence[bytes]
    length: int
    done: AddDone


class LedgerWriter(LedgerReader):
    """The one writer of an open ledger.

    The callers' own limits bound the memory of pending appends.
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
        metadata = known.metadata
        self._quorums = Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._replicas = [
            (port_of(ports, bookie_id), self._answer_of(place))
            for place, bookie_id in enumerate(metadata.ensembles[0])
        ]
        self._is_striped = metadata.write_quorum < metadata.ensemble_size
        self._acked = [Acked(self._quorums, place, 0) for place in range(metadata.ensemble_size)]
        self._master_key = packets.master_key(known.metadata.password)
        self.packet_head_bytes = digest.overhead_bytes
        """Size of a packet's part before the payload."""
        self.last_add_pushed = -1
        self._pushed_length = 0
        self._pending: deque[_Pending] = deque()
        self._answered = 0
        """Entries before this id are complete."""
        self._failure: BookkeeperError | None = None
        self._drained: Promise[None] | None = None

    def append(self, entries: Sequence[Sequence[Buffer]], done: AddDone) -> tuple[int, list[bytes]]:
        """Queue entries, each given as the parts of its payload; buffers are copied before this
        returns. Returns the first entry id and the packets, which must not be changed; payloads
        begin behind `packet_head_bytes`.

        Never blocks; failures go to `done`. Runs come in order; after an error all later ones fail.
        """
        ledger_id = self.ledger_id
        first = self.last_add_pushed + 1
        made, length = self._digest.packets(
            ledger_id, first, self.last_add_confirmed, self._pushed_length, entries
        )
        if self._failure is not None:
            done(first, len(made), self._failure)
            return first, made
        end = first + len(made)
        self.last_add_pushed = end - 1
        self._pushed_length = length
        self._pending.append(_Pending(first, end, made, length, done))
        if self._is_striped:
            self._add_shares(first, made)
            return first, made
        for bookie, added in self._replicas:
            bookie.add(ledger_id, self._master_key, first, made, added)
        return first, made

    def _add_shares(self, first: int, made: Sequence[bytes]) -> None:
        for place, (bookie, added) in enumerate(self._replicas):
            for begin, behind in self._quorums.runs(place, first, first + len(made)):
                run = made[begin - first : behind - first]
                bookie.add(self.ledger_id, self._master_key, begin, run, added)

    async def read_last_add_confirmed(self) -> int:
        """The writer's own last add confirmed."""
        return self.last_add_confirmed

    async def close(self) -> None:
        """Wait for pending appends, then close the ledger by compare-and-set; after a failed append
        at the last confirmed entry. Raises LedgerFenced if another client has recovered the ledger.
        Idempotent.
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
        closed = self._known.closed(self.last_add_confirmed, self.length)
        try:
            self._known = await self._store.update(self._known, closed)
        except MetadataConflict:
            self._known = await self._store.read(self.ledger_id)  # noqa: ASYNC120
            if self._known.metadata != closed:
                self._failure = LedgerFenced(f"ledger {self.ledger_id} was taken over")
                raise self._failure from None
        self._metadata = closed

    def abandon(self, error: BookkeeperError) -> None:
        """Fail all pending and later appends with the error."""
        if self._failure is None:
            self._fail(error)

    def _answer_of(self, place: int) -> AddDone:
        """The callback for runs of the bookie at that place."""

        def added(first: int, count: int, error: BookkeeperError | None) -> None:
            if self._failure is not None:
                return
            if error is not None:
                self._fail(error)
            elif self._acked[place].add(first, first + count):
                self._confirm()

        return added

    def _confirm(self) -> None:
        confirmed = self.last_add_confirmed + 1
        acked = self._acked
        end = acked[0].to
        if len(acked) > 1:
            end = self._quorums.confirmed_end([each.to for each in acked], confirmed)
        end = min(end, self.last_add_pushed + 1)
        if end == confirmed:
            return
        self.last_add_confirmed = end - 1
        pending = self._pending
        while pending and self._answered < end:
            head = pending[0]
            if head.end > end:
                self.length = packets.header(head.packets[end - 1 - head.first])[3]
                self._answer(head, end, None)
            else:
                pending.popleft()
                self.length = head.length
                self._answer(head, head.end, None)
        if not pending and self._drained is not None:
            self._drained.resolve(None)

    def _fail(self, error: BookkeeperError) -> None:
        self._failure = error
        while self._pending:
            head = self._pending.popleft()
            self._answer(head, head.end, error)
        if self._drained is not None:
            self._drained.resolve(None)

    def _answer(self, append: _Pending, end: int, error: BookkeeperError | None) -> None:
        """Complete an append up to `end`. A failing callback doesn't affect others."""
        first, self._answered = self._answered, end
        try:
            append.done(first, end - first, error)
        except Exception:
            _log.exception("ledger %d: the answer to an append failed", self.ledger_id)


def append_whole(
    writer: LedgerWriter,
    entries: Sequence[Sequence[Buffer]],
    finished: Callable[[BookkeeperError | None], None],
) -> int:
    """Append; calls `finished` once, with None or an error. Returns the first id."""
    left = len(entries)

    def done(_first: int, count: int, error: BookkeeperError | None) -> None:
        nonlocal left
        if left <= 0:
            return
        left = left - count if error is None else 0
        if not left:
            finished(error)

    return writer.append(entries, done)[0]


async def append_durably(writer: LedgerWriter, entries: Sequence[Sequence[Buffer]]) -> int:
    """Append; returns the first entry id when all are durable. Raises BookkeeperError."""
    written: Promise[None] = Promise()

    def finished(error: BookkeeperError | None) -> None:
        if error is None:
            written.resolve(None)
        else:
            written.reject(error)

    first = append_whole(writer, entries, finished)
    await written.wait()
    return first
