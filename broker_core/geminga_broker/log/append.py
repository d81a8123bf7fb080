"""The writing side of a log: appends, their results, and the roll-over to the next ledger (spec
BR-01, BR-02).

The hot path is `append`, the ledger's `append` beneath it, and `_written` on the way back; all of
it works on runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import trio

from geminga_bookie.errors import BookkeeperError, LedgerFenced
from geminga_broker.log.api import (
    AppendDone,
    LogClosed,
    LogError,
    LogFenced,
    LogTerminated,
    LogWriteFailed,
)
from geminga_broker.log.catalog import INDEX_PROPERTY
from geminga_broker.log.chain import LedgerInfo
from geminga_broker.log.context import FailureLines, LogContext
from geminga_broker.log.entry import PrefixMaker
from geminga_broker.log.reading import entries_of, index_at
from geminga_broker.log.state import LogState
from geminga_broker.log.unnamed import open_named
from geminga_protocol.buffers import Buffer
from geminga_protocol.ids import EARLIEST, Position
from geminga_runtime.metadata.api import MetadataError
from geminga_runtime.observing.slow import SlowOperations
from geminga_runtime.waiters import Promise

_log = logging.getLogger(__name__)
_slow = SlowOperations(_log)

_ERRORS: dict[LogState, type[LogError]] = {
    LogState.TERMINATED: LogTerminated,
    LogState.FENCED: LogFenced,
    LogState.CLOSED: LogClosed,
}


class LogAppender:
    """Appends of one log. `wants_cache` is called per append, `grown` per group commit, `rolled`
    after a ledger was closed and the next one opened.
    """

    def __init__(
        self,
        context: LogContext,
        *,
        index: int,
        wants_cache: Callable[[], bool],
        grown: Callable[[], None],
        rolled: Callable[[], None],
    ) -> None:
        self.index = index
        self._context = context
        self._wants_cache = wants_cache
        self._grown = grown
        self._rolled = rolled
        self._spawn = context.spawn
        self._ledger = LedgerInfo(-1)
        self._start_index = index
        self._opened_s = trio.current_time()
        self._retry_s = 0.0
        self._cause = ""
        self._failures = FailureLines(context.name)
        self._barren = False
        self._unanswered = 0
        """Entries in the open ledger without a result yet; results come in order."""
        self._refusal: LogError | None = None
        """Why the open ledger failed."""
        self._held: list[tuple[list[tuple[bytes, int]], AppendDone, float]] = []
        """Appends without a ledger, and when each was asked for."""
        context.when_fenced.append(self._fenced)
        self._settling: dict[Promise[None], int] = {}
        """Callers of `settled`, and the number of results that each still waits for."""

    def append(self, entries: Sequence[tuple[Buffer, int]], done: AppendDone) -> None:
        """See `ManagedLedger.append`."""
        writer = self._context.writer
        if writer is None:
            self._hold(entries, done)
            return
        if self._context.options.broker_entry_metadata:
            index = self.index
            prefix = PrefixMaker(self._context.options.now_ms()).prefix
            payloads: list[tuple[Buffer, ...]] = []
            for data, messages in entries:
                index += messages
                payloads.append((prefix(index), data))
            self.index = index
        else:
            payloads = [(entry[0],) for entry in entries]
        self._unanswered += len(payloads)
        first, packets = writer.append(payloads, partial(self._written, done, perf_counter()))
        if self._wants_cache() and self._context.writer is writer:
            self._fill_cache(first, packets, writer.packet_head_bytes, entries)

    async def make_ready(self) -> None:
        """See `ManagedLedger.make_ready`."""
        context = self._context
        if context.writer is None and context.state not in _ERRORS and not self._is_waiting:
            done = trio.Event()

            async def attempt() -> None:
                try:
                    await self.roll()
                finally:
                    done.set()

            self._spawn(attempt)  # not here: the caller may be cancelled in the middle
            await done.wait()
        if context.state is LogState.NO_LEDGER:
            raise LogWriteFailed(f"{context.name}: {self._cause}")

    @property
    def _is_waiting(self) -> bool:
        """Whether making a ledger failed so lately that it isn't tried again yet."""
        return self._context.state is LogState.NO_LEDGER and trio.current_time() < self._retry_s

    async def settled(self) -> None:
        """See `ManagedLedger.settled`."""
        waiting = self._unanswered + sum([len(entries) for entries, _, _ in self._held])
        if not waiting:
            await trio.lowlevel.checkpoint()
            return
        promise: Promise[None] = Promise()
        self._settling[promise] = waiting
        try:
            await promise.wait()
        finally:
            self._settling.pop(promise, None)

    def _count_settled(self, entries: int) -> None:
        """Count results of the oldest entries."""
        for promise, waiting in list(self._settling.items()):
            self._settling[promise] = waiting - entries
            if waiting <= entries:
                promise.resolve(None)

    def roll_if_due(self) -> None:
        """Start to roll over if the open ledger is full, old, or failed."""
        if self._context.state is LogState.OPEN and self._is_due():
            self._spawn(self.roll)

    async def roll(self, *, force: bool = False) -> None:
        """Close the open ledger and open the next, if due, or with `force` if it has entries.

        A failure sets the state NO_LEDGER or FENCED.
        """
        context = self._context
        async with context.mutex:
            if context.state is LogState.OPEN:
                if not (self._is_due() or (force and self._ledger.entries)):
                    return
            elif context.state is not LogState.NO_LEDGER or (self._is_waiting and not force):
                return
            await self._next_ledger()

    async def start(self) -> None:
        """Create the first ledger after opening. Raises the error that stopped it."""
        await self._open_next()

    async def finish(self, state: LogState) -> None:
        """Close the open ledger finally, entering TERMINATED or CLOSED; the caller holds the
        mutex.

        Appends that wait for a ledger fail. Raises LogFenced, BookkeeperError, MetadataError.
        """
        writer, self._context.writer = self._context.writer, None
        if self._context.state is not state:
            self._context.enter(state)
        self._refuse_held()
        if writer is not None:
            self._context.unclosed = writer
        await self._close_old()

    def _fenced(self, why: str) -> None:
        """Another broker owns the log: acknowledge nothing from now on."""
        context = self._context
        writer = context.writer or context.unclosed
        context.writer = context.unclosed = None
        if writer is not None:
            writer.abandon(LedgerFenced(why))
        if not self._unanswered:
            self._refuse_held()

    @property
    def ledger_age_s(self) -> float:
        """Seconds since the open ledger was created."""
        return trio.current_time() - self._opened_s

    def _is_due(self) -> bool:
        """A ledger that works stays open while the metadata store is away, as in Apache."""
        ledger, context = self._ledger, self._context
        return context.unclosed is not None or (
            context.options.rollover.is_due(ledger.entries, ledger.size_bytes, self.ledger_age_s)
            and context.catalog.is_reachable
        )

    def _fill_cache(
        self,
        first: int,
        packets: list[bytes],
        head_bytes: int,
        entries: Sequence[tuple[Buffer, int]],
    ) -> None:
        ledger_id = self._ledger.ledger_id
        made = entries_of(ledger_id, first, packets, head_bytes, entries)
        self._context.cache.add(ledger_id, first, *made)

    def _written(
        self,
        done: AppendDone,
        added_s: float,
        first: int,
        count: int,
        error: BookkeeperError | None,
    ) -> None:
        """Handle the ledger's result for entries of one append; results come in order."""
        try:
            if error is None:
                self._context.meter.stored(count, added_s)
                self._stored(done, first, count)
            else:
                self._failed(done, first, count, error)
        finally:
            self._unanswered -= count
            if self._settling:
                self._count_settled(count)
            if self._held and not self._unanswered:
                self._refuse_late()

    def _refuse_late(self) -> None:
        """After the last result, fail appends queued behind a failure or the end of the log."""
        if self._refusal is not None or self._context.state in _ERRORS:
            self._refuse_held(self._refusal)

    def _stored(self, done: AppendDone, first: int, count: int) -> None:
        context = self._context
        writer = context.writer or context.unclosed
        assert writer is not None, "a ledger that was given up confirms nothing"
        end = first + count
        ledger = self._ledger
        ledger.entries = end
        ledger.size_bytes = writer.length
        context.last_position = Position(ledger.ledger_id, end - 1)
        try:
            done(Position(ledger.ledger_id, first), count, None)
        finally:
            if end >= writer.last_add_confirmed:  # else the same group commit has more results
                self._stored_group(end)

    def _stored_group(self, end: int) -> None:
        """After a group commit, wake the readers; roll over if the ledger is full."""
        entries, took_s = self._context.meter.committed()
        if self._failures.told:
            self._failures.over()
        _slow.ended(took_s, "log=%s: %d entries were stored", self._context.name, entries)
        self._grown()
        rollover = self._context.options.rollover
        if end >= rollover.entries_max or self._ledger.size_bytes >= rollover.size_bytes_max:
            self.roll_if_due()

    def _failed(self, done: AppendDone, first: int, count: int, error: BookkeeperError) -> None:
        """The ledger failed: fail its unwritten entries, and continue in a new ledger.

        Also fail the appends queued behind it: the producer resends, and order must hold.
        """
        context = self._context
        if self._refusal is None:
            context.cache.truncate(self._ledger.ledger_id, first)
            self._cause = str(error) or type(error).__name__
            text = f"{context.name}: {self._cause}"
            if isinstance(error, LedgerFenced):
                self._refusal = LogFenced(text)
                context.fence(self._cause)
            else:
                self._refusal = LogWriteFailed(text)
                self._barren = not self._ledger.entries
                self._failures.tell(error, f"entries were not written: {self._cause}")
                if context.writer is not None:
                    context.writer, context.unclosed = None, context.writer
                    self._spawn(self.roll)
        context.meter.failed(count)
        done(EARLIEST, count, self._refusal)

    def _hold(self, entries: Sequence[tuple[Buffer, int]], done: AppendDone) -> None:
        """Queue an append until there is a ledger, or fail it, after earlier results."""
        state = self._context.state
        kind = _ERRORS.get(state)
        if kind is not None and not self._unanswered:
            done(EARLIEST, len(entries), kind(f"{self._context.name} is {state.value}"))
        elif self._is_waiting:
            done(EARLIEST, len(entries), LogWriteFailed(f"{self._context.name}: {self._cause}"))
        else:
            copied = [(bytes(data), messages) for data, messages in entries]
            self._held.append((copied, done, perf_counter()))
            if state is LogState.NO_LEDGER:
                self._spawn(self.roll)

    def _refuse_held(self, refusal: LogError | None = None) -> None:
        held, self._held = self._held, []
        if refusal is None:
            kind = _ERRORS.get(self._context.state, LogWriteFailed)
            refusal = kind(f"{self._context.name}: {self._cause or 'is closed'}")
        for entries, done, _ in held:
            self._context.meter.write_failures += len(entries)
            done(EARLIEST, len(entries), refusal)
        if self._settling:
            self._count_settled(sum([len(entries) for entries, _, _ in held]))

    async def _next_ledger(self) -> None:
        context = self._context
        began_s = perf_counter()
        context.enter(LogState.ROLLING)
        if self._context.writer is not None:
            self._context.writer, self._context.unclosed = None, self._context.writer
        try:
            await self._close_old()
            if self._barren:
                # Failed before its first entry: back off instead of retrying.
                self._barren = False
                self._give_up()
                return
            await self._open_next()
            context.meter.switched(perf_counter() - began_s)
            self._rolled()
        except LogFenced as error:
            context.fence(str(error))
        except (BookkeeperError, MetadataError) as error:
            self._cause = f"no new ledger: {error or type(error).__name__}"
            self._failures.tell(error, self._cause)
            self._give_up()
        except Exception as error:
            # A defect: the stored state is unknown. The next open recovers the log.
            _log.exception("log=%s: the roll-over failed unexpectedly", context.name)
            context.fence(f"the roll-over failed: {error!r}")

    def _give_up(self) -> None:
        """Fail appends for a while; the next one after that retries."""
        self._retry_s = trio.current_time() + self._context.options.create_retry_s
        if self._context.state is LogState.ROLLING:  # else fenced meanwhile
            self._context.enter(LogState.NO_LEDGER)
        self._refuse_held()

    async def _close_old(self) -> None:
        """Close the last ledger and record its end. Raises LogFenced if another broker owns it."""
        writer = self._context.unclosed
        if writer is None:
            return
        context = self._context
        try:
            await writer.close()
        except LedgerFenced as error:
            raise LogFenced(f"{context.name}: {error}") from error
        ledger = self._ledger
        entries = writer.last_add_confirmed + 1
        assert ledger.entries == entries
        ledger.size_bytes = writer.length
        if entries:
            ledger.closed_ms = max(context.options.now_ms(), 1)
            self.index = await index_at(writer, entries - 1, self._start_index, context.options)
        else:
            self.index = self._start_index
            context.chain.remove(ledger.ledger_id)
            context.catalog.deleting[ledger.ledger_id] = None
        self._context.unclosed = None

    async def _open_next(self) -> None:
        context = self._context
        options = context.options
        if options.broker_entry_metadata or INDEX_PROPERTY in context.catalog.properties:
            context.catalog.properties[INDEX_PROPERTY] = str(self.index)
        writer = await open_named(context)
        ledger = LedgerInfo(writer.ledger_id)
        context.check_open()  # a cursor may have found it fenced meanwhile
        context.chain.add(ledger)
        if not self._context.last_position[1] + 1:
            self._context.last_position = ledger.position(-1)
        self._ledger = ledger
        self._refusal = None
        self._start_index = self.index
        self._opened_s = trio.current_time()
        self._context.writer = writer
        context.enter(LogState.OPEN)
        held, self._held = self._held, []
        for entries, done, asked_s in held:
            if context.writer is writer:  # else they are held again
                context.meter.waited(len(entries), perf_counter() - asked_s)
            self.append(entries, done)
