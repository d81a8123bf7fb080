"""The log of one topic: `ManagedLedger` (spec BR-01 to BR-07)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_broker.log.api import (
    EntryDamaged,
    LedgerStatistics,
    LogFenced,
    LogStatistics,
    LogWriteFailed,
)
from geminga_broker.log.append import LogAppender
from geminga_broker.log.catalog import DELETED_PROPERTY
from geminga_broker.log.context import LogClaim, LogContext
from geminga_broker.log.cursor import LogCursor
from geminga_broker.log.cursors import DirtyCursors, LogCursors
from geminga_broker.log.entry import LogEntry
from geminga_broker.log.options import Persistence, Retention
from geminga_broker.log.reading import LogReads
from geminga_broker.log.state import LogState
from geminga_broker.log.trim import LogTrimmer
from geminga_protocol.ids import Position
from geminga_runtime.metadata.api import MetadataError, MetadataStore

_log = logging.getLogger(__name__)


class TopicLog:
    """A chain of ledgers and its cursors. Created by `ManagedLedgerFactory.open`."""

    def __init__(
        self,
        context: LogContext,
        store: MetadataStore,
        dirty: DirtyCursors,
        index: int,
        paced: Callable[[TopicLog], None],
    ) -> None:
        """`paced` is told when cursors are to be written more often, or less."""
        self.name = context.name
        self.context = context
        """The state shared by its parts, for parts that others add."""
        self.meter = context.meter
        self.claim = LogClaim(context)
        self._paced = paced
        self.closing = False
        """Whether closing has begun: the log must not be used any more."""
        self._reads = LogReads(context)
        self._trimmer = LogTrimmer(context)
        self._cursors = LogCursors(context, store, self._reads, dirty, self._trimmer.schedule)
        self._trimmer.watch(self._cursors)
        self._appender = LogAppender(
            context,
            index=index,
            wants_cache=self._cursors.wants_cache,
            grown=self._cursors.grown,
            rolled=self._trimmer.schedule,
        )
        # See `ManagedLedger` for these.
        self.cursors: Mapping[str, LogCursor] = self._cursors.by_name
        self.properties: Mapping[str, str] = context.catalog.properties
        self.append = self._appender.append
        self.make_ready = self._appender.make_ready
        self.open_reader = self._cursors.open_reader
        self.trim = self._trimmer.trim
        self.next_position = context.chain.next_position
        self.previous_position = context.chain.previous_position
        self.entries_between = context.chain.entries_between

    def __repr__(self) -> str:
        return f"<TopicLog {self.name}, {self.context.state.value}, ends at {self.last_position}>"

    async def set_property(self, key: str, value: str) -> None:
        """See `ManagedLedger.set_property`. Raises LogFenced, LogWriteFailed, LogClosed."""
        await self.change_properties(lambda old: {**old, key: value})

    async def change_properties(
        self, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        """See `ManagedLedger.change_properties`. Raises LogFenced, LogWriteFailed, LogClosed, and
        what `change` raises.
        """
        properties = self.context.catalog.properties
        async with self.context.mutex:
            self.context.check_open()
            before = dict(properties)
            _replace(properties, change(before))
            try:
                await self.context.catalog.save(self.context.chain)
            except MetadataError as error:
                _replace(properties, before)
                raise LogWriteFailed(f"{self.name}: properties can't be kept: {error}") from error
            except LogFenced as error:
                self.context.fence(str(error))
                raise

    async def settled(self) -> None:
        """See `ManagedLedger.settled`."""
        await self._appender.settled()

    @property
    def last_position(self) -> Position:
        """See `ManagedLedger.last_position`."""
        return self.context.last_position

    @property
    def terminated(self) -> bool:
        """See `ManagedLedger.terminated`."""
        return self.context.catalog.terminated is not None

    def on_fenced(self, tell: Callable[[str], None]) -> None:
        """Call `tell` once, with the cause, when another broker is found to own the log; at once if
        that was before.
        """
        if self.context.state is LogState.FENCED:
            tell(self.context.fence_cause)
        else:
            self.context.when_fenced.append(tell)

    def set_persistence(self, chosen: Persistence | None) -> None:
        """Have the next ledgers made by it, and cursors written as often; None: by the options."""
        self.context.persist_by(chosen)
        self._paced(self)

    def set_retention(self, retention: Retention) -> None:
        """Set the retention of consumed ledgers, and trim by it soon."""
        self._trimmer.retention = retention
        self._trimmer.schedule()

    async def start(self) -> None:
        """Claim the log, open a ledger, and load the cursors. Raises LogFenced, BookkeeperError,
        MetadataError.

        The write that names the new ledger is the claim, as in Apache's broker; a terminated log
        gets no ledger, and a write of its own. Cursors come last: what a former owner still made of
        them before the claim is seen.

        Loading trims nothing: messages published before the first subscription are still there for
        one made right after a restart, as in Apache's broker.
        """
        if self.terminated:
            await self.context.catalog.claim()
            self.context.enter(LogState.TERMINATED)
        else:
            await self._appender.start()
        if not self.context.catalog.is_new:
            await self._cursors.load()

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Position,
        properties: Mapping[str, int] | None = None,
        cursor_properties: Mapping[str, str] | None = None,
    ) -> LogCursor:
        """See `ManagedLedger.open_cursor`. Raises LogFenced, LogWriteFailed, LogClosed."""
        async with self.context.mutex:
            self.context.check_open()
            return await self._cursors.open(
                name, initial, properties or {}, cursor_properties or {}
            )

    async def delete_cursor(self, name: str) -> None:
        """See `ManagedLedger.delete_cursor`. Raises CursorNotFound, LogWriteFailed, LogFenced,
        LogClosed.
        """
        cursor = self.cursors.get(name)
        if cursor is not None and cursor.durable:
            async with self.context.mutex:
                self.context.check_open()
                await self._cursors.delete(name)
        else:
            await self._cursors.delete(name)
        # After a reader too: deletions that failed before are tried again.
        self._trimmer.schedule()

    async def read_range(
        self, first: Position, *, entries_max: int, bytes_max: int
    ) -> list[LogEntry]:
        """See `ManagedLedger.read_range`. Raises LogReadFailed."""
        found: list[LogEntry] = []
        while entries_max > len(found) and bytes_max > 0:
            try:
                more = await self._reads.entries(
                    first, entries_max=entries_max - len(found), bytes_max=bytes_max
                )
            except EntryDamaged:
                if found:
                    break
                raise
            if not more:
                break
            found += more
            bytes_max -= sum(entry.size for entry in more)
            first = self.context.chain.next_position(more[-1].position)
        return found

    async def find_by_time(self, timestamp_ms: int) -> Position:
        """See `ManagedLedger.find_by_time`. Raises LogReadFailed."""
        chain = self.context.chain
        low = chain.ordinal(chain.first_position())
        high = chain.ordinal(chain.last_position())
        # Invariant: entries up to `low` are older, those after `high` are not.
        while low < high:
            middle = (low + high + 1) // 2
            found = await self._reads.entries(chain.at_ordinal(middle), entries_max=1, bytes_max=1)
            # An entry without a readable time is not older, as in Apache's search.
            if found and 0 < found[0].time_ms < timestamp_ms:
                low = middle
            else:
                high = middle - 1
        return chain.next_position(chain.at_ordinal(low))

    async def terminate(self) -> Position:
        """See `ManagedLedger.terminate`. Raises LogFenced, LogWriteFailed, LogClosed."""
        context = self.context
        async with context.mutex:
            self.context.check_open()
            if self.terminated and context.state is LogState.TERMINATED:
                return self.last_position
            try:
                await self._appender.finish(LogState.TERMINATED)
                context.catalog.terminated = self.last_position
                await context.catalog.save(self.context.chain)
            except (BookkeeperError, MetadataError) as error:
                context.catalog.terminated = None
                raise LogWriteFailed(f"{self.name} can't be terminated: {error}") from error
            except LogFenced as error:
                context.fence(str(error))
                raise
            context.check_open()  # a cursor may have found it fenced meanwhile
        self._cursors.grown()
        return self.last_position

    async def truncate(self) -> None:
        """See `ManagedLedger.truncate`. Raises LogWriteFailed, LogFenced, LogClosed."""
        await self._appender.roll(force=True)
        await self._trimmer.trim(Retention())
        self.context.check_open()  # if closed meanwhile, perhaps nothing was done

    async def roll(self) -> None:
        """See `ManagedLedger.roll`."""
        await self._appender.roll(force=True)
        self._trimmer.schedule()

    def roll_if_due(self) -> None:
        """For the factory's timer: also roll over idle topics (BR-02), and evict their cache."""
        self._cursors.evict_cache()
        self._appender.roll_if_due()

    def trim_if_due(self) -> None:
        """For the factory's timer: consumed ledgers become too old without an event (BR-04)."""
        left = self.context.catalog.deleting or self._cursors.may_have_leftovers
        if len(self.context.chain) > 1 or left:
            self._trimmer.schedule()

    async def close(self) -> None:
        """See `ManagedLedger.close`. Failures are logged: the next open recovers the log.

        Even if cancelled, it releases memory and handles, in the background if the chain is being
        changed.
        """
        again, self.closing = self.closing, True
        try:
            async with self.context.mutex:
                await self._close()
        finally:
            if not again and self.context.state is not LogState.CLOSED:
                self.context.spawn(self.close)

    async def _close(self) -> None:
        context = self.context
        if context.state is LogState.CLOSED:
            return
        owned = context.state is not LogState.FENCED
        try:
            await self._appender.finish(LogState.CLOSED)
            if owned:
                await self._cursors.persist_to_nodes()
        except (BookkeeperError, MetadataError, LogFenced, LogWriteFailed) as error:
            _log.warning("log=%s is not closed in order: %s", self.name, error)
        finally:
            await self._release()  # noqa: ASYNC102

    async def delete(self) -> None:
        """See `ManagedLedger.delete`. Raises LogWriteFailed, LogFenced: then call it again."""
        context, catalog = self.context, self.context.catalog
        async with context.mutex:
            if context.state is LogState.FENCED:
                context.check_open()
            try:
                with context.eraser.deleting(self.name):
                    if context.state is not LogState.CLOSED:
                        await self._appender.finish(LogState.CLOSED)
                    await catalog.note_deletion()
                    # From here on the next open continues the deletion.
                    catalog.properties[DELETED_PROPERTY] = "true"
                    ledgers = [ledger.ledger_id for ledger in context.chain]
                    catalog.deleting.update(dict.fromkeys(ledgers))
                    await catalog.save([])
                    await catalog.keep_deletion_noted()
                    for name in list(self.cursors):
                        if name in self.cursors:  # a reader's may be deleted meanwhile
                            await self._cursors.delete(name)
                    await context.eraser.erase(self.name, catalog)
            except (BookkeeperError, MetadataError) as error:
                raise LogWriteFailed(f"{self.name} can't be deleted: {error}") from error
            except LogFenced as error:
                context.fence(str(error))
                raise
            finally:
                await self._release()  # noqa: ASYNC102

    @property
    def size_bytes(self) -> int:
        """See `ManagedLedger.size_bytes`."""
        return self.context.chain.size_bytes

    def statistics(self) -> LogStatistics:
        """See `ManagedLedger.statistics`."""
        return LogStatistics(
            self.context.state.value,
            self.context.chain.entries,
            self.context.chain.size_bytes,
            self.last_position,
            tuple(
                LedgerStatistics(
                    ledger.ledger_id, ledger.entries, ledger.size_bytes, ledger.closed_ms
                )
                for ledger in self.context.chain
            ),
            self.context.cache.size_bytes,
            self._appender.ledger_age_s,
        )

    async def _release(self) -> None:
        self._cursors.release()
        with trio.CancelScope(shield=True):
            await self._reads.close()
        self.context.cache.clear()


def _replace(properties: dict[str, str], new: Mapping[str, str]) -> None:
    """Give the same object another content."""
    found = dict(new)
    properties.clear()
    properties.update(found)
