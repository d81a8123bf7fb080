"""Trimming of ledgers (spec BR-04; ManagedLedgerImpl.internalTrimLedgers)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import trio

from geminga_bookie.errors import BookkeeperError
from geminga_broker.log.api import LogFenced, LogWriteFailed
from geminga_broker.log.catalog import DELETING_MAX, delete_own
from geminga_broker.log.chain import LedgerChain, LedgerInfo
from geminga_broker.log.context import LogContext
from geminga_broker.log.cursors import LogCursors
from geminga_broker.log.options import Retention
from geminga_broker.log.state import LogState
from geminga_protocol.ids import Position
from geminga_runtime.metadata.api import MetadataError

_log = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_S_MAX = 960.0
"""Wait after failed trims in a row: each of many logs tries less often while deletions fail."""


def ledgers_to_trim(
    chain: LedgerChain, mark_deletes: Iterable[Position], retention: Retention, now_ms: int
) -> list[LedgerInfo]:
    """The oldest ledgers that every cursor passed and retention doesn't keep, never the last one.

    Without a cursor, retention alone decides.
    """
    # Of the lowest mark alone, as the position after is one of a loop for each of many cursors.
    lowest = min(mark_deletes, default=None)
    upto = None if lowest is None else chain.next_position(lowest)[0]
    left_bytes = chain.size_bytes
    gone: list[LedgerInfo] = []
    for ledger in chain.ledgers[:-1]:
        if not ledger.closed_ms or (upto is not None and ledger.ledger_id >= upto):
            break
        too_old = 0 <= retention.time_s < (now_ms - ledger.closed_ms) / 1000
        # The remaining ledgers must have at least the retained size.
        left_bytes -= ledger.size_bytes
        too_much = 0 <= retention.size_bytes <= left_bytes
        if not (too_old or too_much):
            break
        gone.append(ledger)
    return gone


class LogTrimmer:
    """Trims one log in two steps: ledgers leave the chain (recorded), then they are deleted."""

    def __init__(self, context: LogContext) -> None:
        self.retention = context.options.retention
        self._context = context
        self._cursors: LogCursors | None = None
        self._scheduled = False
        self._failures = 0
        self._retry_at = 0.0

    def watch(self, cursors: LogCursors) -> None:
        """Keep entries that these cursors have not passed. Called once, before the first trim."""
        self._cursors = cursors

    def schedule(self) -> None:
        """Trim soon, in the background. A later one retries failures, after a wait that doubles."""
        if trio.current_time() < self._retry_at:
            return
        if not self._scheduled and self._context.state is not LogState.CLOSED:
            self._scheduled = True
            self._context.spawn(self._trim_quietly)

    async def trim(self, retention: Retention | None = None) -> None:
        """See `ManagedLedger.trim`; `retention` overrides. Raises LogWriteFailed, LogFenced."""
        retention = retention or self.retention
        context = self._context
        cursors = self._cursors
        assert cursors is not None
        async with context.mutex:
            if context.state in (LogState.FENCED, LogState.CLOSED):
                return
            deleting = context.catalog.deleting
            now_ms = context.options.now_ms()
            due = ledgers_to_trim(context.chain, cursors.durable_marks(), retention, now_ms)
            gone = due[: max(0, DELETING_MAX - len(deleting))]
            try:
                if gone:
                    await cursors.persist_properties()
                    deleting.update(dict.fromkeys(ledger.ledger_id for ledger in gone))
                    try:
                        await context.catalog.save(context.chain.ledgers[len(gone) :])
                    except BaseException:
                        # The stored chain may still have them: don't delete them.
                        context.catalog.cleared(ledger.ledger_id for ledger in gone)
                        raise
                # No checkpoint here: a cancellation must not lose a ledger to be deleted.
                for ledger in gone:
                    context.chain.remove(ledger.ledger_id)
                for ledger in gone:
                    await cursors.forget(ledger.ledger_id)
                await self._delete_ledgers()
            except (BookkeeperError, MetadataError) as error:
                raise LogWriteFailed(f"{context.name} can't be trimmed: {error}") from error
            except LogFenced as error:
                context.fence(str(error))
                raise
        if len(gone) < len(due) and len(context.catalog.deleting) < DELETING_MAX:
            await self.trim(retention)

    async def _delete_ledgers(self) -> None:
        """Delete what is listed and not named. The next save of the catalog forgets it. Raises
        BookkeeperError, MetadataError, LogFenced.
        """
        context, cursors = self._context, self._cursors
        assert cursors is not None
        # Not what is listed while cursors are looked at: a cursor made meanwhile may name it.
        gone = await cursors.not_named(
            each for each in context.catalog.deleting if context.chain.get(each) is None
        )
        if not context.catalog.is_recorded(gone):
            # The stored chain may have one of them.
            await context.catalog.save(context.chain)
        for ledger_id in gone:
            context.check_open()  # the log may be found fenced meanwhile
            await delete_own(context.client, context.name, ledger_id)
            context.catalog.cleared((ledger_id,))

    async def _trim_quietly(self) -> None:
        self._scheduled = False
        try:
            await self.trim()
            if self._cursors is not None:
                await self._cursors.delete_leftovers()
            self._failures = 0
        except (LogWriteFailed, LogFenced) as error:
            wait_s = min(RETRY_S * 2.0 ** min(self._failures, 20), RETRY_S_MAX)
            self._failures += 1
            self._retry_at = trio.current_time() + wait_s
            _log.warning("log=%s: %s", self._context.name, error)
