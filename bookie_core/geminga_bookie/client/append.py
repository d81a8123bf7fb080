"""Appending to a ledger: pipelined, completed in order (spec BK-20, BK-21; Apache's LedgerHandle).

An append goes to the bookies of its entries' write sets at once. Those answer by runs, in any order
between them; it completes, run by run, as far as ack quorums have all entries. A bookie that fails
is replaced by another from the first entry on that is not confirmed; without another one the ledger
goes on as long as ack quorums are left.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import trio

from geminga_bookie.client.api import ClientOptions, LedgerMetadata, LedgerState
from geminga_bookie.client.directory import BookieDirectory
from geminga_bookie.client.ensemble_change import write_change
from geminga_bookie.client.metadata_store import LedgerMetadataStore, VersionedMetadata
from geminga_bookie.client.placement import change_ensemble
from geminga_bookie.client.quorum import Quorums
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.client.replicas import Replica, Replicas
from geminga_bookie.errors import (
    BookkeeperError,
    IncorrectParameter,
    LedgerClosed,
    LedgerFenced,
    MetadataConflict,
    NotEnoughBookies,
    RequestTimeout,
    TooManyRequests,
    UnauthorizedAccess,
)
from geminga_bookie.port import AddDone
from geminga_protocol.bookkeeper import digest as packets
from geminga_protocol.bookkeeper.digest import Digest
from geminga_protocol.buffers import Buffer
from geminga_runtime.logs import FewLines
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)

CLOSE_WAIT_S = 30.0
"""A close waits so long for pending appends, which fail then."""
CHANGE_WAIT_S = 30.0
"""A change of the ensemble must be durable within this time, or the ledger fails."""
SPARE_POLL_S = 10.0
"""Interval of looking for another bookie while none is writable."""

_GIVES_UP = (LedgerFenced, UnauthorizedAccess, IncorrectParameter)
"""Answers that every bookie would give: no other one is tried."""


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
    """The one writer of an open ledger."""

    def __init__(
        self,
        known: VersionedMetadata,
        digest: Digest,
        bookies: BookieDirectory,
        store: LedgerMetadataStore,
        nursery: trio.Nursery | None,
        options: ClientOptions,
        lines: FewLines,
    ) -> None:
        """Warnings of bookies that fail go to `lines`, which a client's ledgers share."""
        super().__init__(known.metadata, digest, bookies, store, options.reads)
        self._options = options
        self._lines = lines
        self._known = known
        self._nursery = nursery
        metadata = known.metadata
        self._replicas = Replicas(
            metadata.ledger_id,
            packets.master_key(metadata.password),
            Quorums(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
            metadata.ensembles[0],
            bookies,
            self._answered_by,
        )
        self.packet_head_bytes = digest.overhead_bytes
        """Size of a packet's part before the payload."""
        self.last_add_pushed = -1
        self._pushed_length = 0
        self._pending: deque[_Pending] = deque()
        self._answered = 0
        """Entries before this id are complete."""
        self._failure: BookkeeperError | None = None
        self._drained: Promise[None] | None = None
        self._replacing: trio.CancelScope | None = None
        """The task that replaces failed bookies, if there is one."""
        self._failed_again = trio.Event()
        self._is_changing = False
        """A new fragment is being written: until it is durable nothing is confirmed, since the
        entries that are not confirmed yet belong to it."""

    def append(self, entries: Sequence[Sequence[Buffer]], done: AddDone) -> tuple[int, list[bytes]]:
        """Queue entries, each given as the parts of its payload; buffers are copied before this
        returns. Returns the first entry id and the packets, which must not be changed; payloads
        begin behind `packet_head_bytes`.

        Never blocks; failures go to `done`. Runs come in order; after an error all later ones fail.
        """
        first = self.last_add_pushed + 1
        made, length = self._digest.packets(
            self.ledger_id, first, self.last_add_confirmed, self._pushed_length, entries
        )
        if self._failure is not None:
            done(first, len(made), self._failure)
            return first, made
        end = first + len(made)
        self.last_add_pushed = end - 1
        self._pushed_length = length
        self._pending.append(_Pending(first, end, made, length, done))
        self._replicas.send(first, made)
        if length - self.length > self._options.unanswered_bytes_max:
            # Later: the caller doesn't know its entries' ids yet.
            trio.lowlevel.current_trio_token().run_sync_soon(self._too_many, idempotent=True)
        return first, made

    def _too_many(self) -> None:
        size = self._pushed_length - self.length
        self.abandon(TooManyRequests(f"ledger {self.ledger_id}: {size} bytes wait for answers"))

    async def read_last_add_confirmed(self) -> int:
        """The writer's own last add confirmed."""
        return self.last_add_confirmed

    def _take(self, metadata: LedgerMetadata) -> None:
        """Only where earlier entries are: the end is known here."""
        if metadata.state is LedgerState.OPEN:
            self._metadata = metadata

    async def close(self) -> None:
        """Wait for pending appends, at most CLOSE_WAIT_S, then close the ledger by compare-and-set;
        after a failed append at the last confirmed entry. Raises LedgerFenced if another client has
        recovered the ledger. Idempotent.
        """
        if self._pending:
            if self._drained is None:
                self._drained = Promise()
            with trio.move_on_after(CLOSE_WAIT_S) as waiting:
                await self._drained.wait()
            if waiting.cancelled_caught:
                text = f"ledger {self.ledger_id}: no ack quorum answered in {CLOSE_WAIT_S:g} s"
                self._fail(RequestTimeout(text))
        if isinstance(self._failure, LedgerFenced):
            raise self._failure
        if self._failure is None:
            self._failure = LedgerClosed(f"ledger {self.ledger_id}")
        self._stop_replacing()
        while self._known.metadata.state is not LedgerState.CLOSED:
            closed = self._known.closed(self.last_add_confirmed, self.length)
            try:
                self._known = await self._store.update(self._known, closed)
            except MetadataConflict:
                self._known = await self._store.read(self.ledger_id)  # noqa: ASYNC120
                if self._known.metadata.state is not LedgerState.OPEN:
                    self._check_end(self._known.metadata)
        self._metadata = self._known.metadata

    def _check_end(self, found: LedgerMetadata) -> None:
        """Another client, or a close of this one whose answer was lost, was first."""
        end = self.last_add_confirmed, self.length
        if found.state is LedgerState.CLOSED and (found.last_entry_id, found.length) == end:
            return
        self._failure = LedgerFenced(f"ledger {self.ledger_id} was taken over")
        raise self._failure from None

    def abandon(self, error: BookkeeperError) -> None:
        """Fail all pending and later appends with the error."""
        if self._failure is None:
            self._fail(error)

    def _answered_by(
        self, replica: Replica, first: int, count: int, error: BookkeeperError | None
    ) -> None:
        """A bookie has stored a run, or not."""
        if error is not None:
            self._bookies.failed(replica.bookie_id, error)
        if self._failure is not None or replica.failure is not None:
            return
        if error is not None:
            self._bookie_failed(replica, error)
        elif replica.acked.add(first, first + count) and not self._is_changing:
            self._confirm()

    def _confirm(self) -> None:
        confirmed = self.last_add_confirmed + 1
        end = min(self._replicas.confirmed_end(confirmed), self.last_add_pushed + 1)
        if end <= confirmed:
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
        self._stop_replacing()
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

    # ---- a bookie that fails ----

    def _bookie_failed(self, replica: Replica, error: BookkeeperError) -> None:
        if isinstance(error, _GIVES_UP):
            self._fail(error)
            return
        self._replicas.give_up(replica, error)
        if self._replacing is not None:
            self._failed_again.set()
        elif self._options.delay_change and self._replicas.can_confirm():
            self._warn("ledger %d goes on without bookie %s: %s", replica, error)
        elif self._nursery is None or not (self._replicas.can_confirm() or self._has_spare()):
            self._fail(error)
        else:
            self._warn("ledger %d: gives up bookie %s: %s", replica, error)
            self._replacing = trio.CancelScope()
            self._nursery.start_soon(self._replace_failed, self._replacing, error)

    def _warn(self, text: str, replica: Replica, error: BookkeeperError) -> None:
        bookie_id = replica.bookie_id
        self._lines.warning(text, self.ledger_id, bookie_id, error, about=bookie_id)

    def _has_spare(self) -> bool:
        try:
            change_ensemble(
                self._known.metadata,
                self._replicas.avoided(),
                self.last_add_confirmed,
                self._bookies.writable(),
                self._bookies.rules(),
            )
        except NotEnoughBookies:
            return False
        return True

    async def _replace_failed(self, scope: trio.CancelScope, error: BookkeeperError) -> None:
        """Replace failed bookies until there are none, waiting for other ones as long as ack
        quorums are left.
        """
        with scope:
            while not self._replicas.is_whole:
                self._failed_again = trio.Event()
                self._is_changing = True
                is_replaced = await self._change_once()
                self._is_changing = False
                if self._failure is not None:
                    return
                self._confirm()
                if not is_replaced:
                    if not self._replicas.can_confirm():
                        self._fail(error)
                        return
                    await self._wait_for_spare()
            self._replacing = None

    async def _change_once(self) -> bool:
        """Write a new fragment and send its bookies what they lack; False if no bookie is left."""
        lac, failed = self.last_add_confirmed, self._replicas.avoided()
        failure: BookkeeperError
        with trio.move_on_after(CHANGE_WAIT_S) as waiting:
            try:
                self._known = await write_change(
                    self._store, self._known, failed, lac, self._bookies
                )
            except NotEnoughBookies:
                return False
            except BookkeeperError as error:
                failure = error
            else:
                self._begin_fragment(self._known.metadata, lac + 1)
                return True
        if waiting.cancelled_caught:
            failure = RequestTimeout(
                f"ledger {self.ledger_id}: the metadata store did not take another ensemble in "
                f"{CHANGE_WAIT_S:g} s"
            )
        self._fail(failure)
        return False

    def _begin_fragment(self, metadata: LedgerMetadata, first: int) -> None:
        self._metadata = metadata
        came = self._replicas.change(metadata.ensembles[max(metadata.ensembles)], first)
        runs = [
            (max(first, each.first), each.packets[max(0, first - each.first) :])
            for each in self._pending
        ]
        for replica in came:
            self._replicas.begin(replica, runs)

    async def _wait_for_spare(self) -> None:
        """Wait until another bookie may take new entries, or one more has failed."""
        with trio.move_on_after(SPARE_POLL_S):
            async with trio.open_nursery() as nursery:

                async def first_of(wait: Callable[[], Awaitable[None]]) -> None:
                    await wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(first_of, self._failed_again.wait)
                nursery.start_soon(first_of, self._bookies.wait_change)

    def _stop_replacing(self) -> None:
        if self._replacing is not None:
            self._replacing.cancel()


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
