"""Which ledgers may go, and their going (spec BR-04; Apache's
ManagedLedgerImpl.internalTrimLedgers).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from geminga_bookie.errors import BookkeeperError
from geminga_broker.log.api import LogFenced, LogWriteFailed
from geminga_broker.log.chain import LedgerChain, Span
from geminga_broker.log.options import Retention
from geminga_broker.log.parts import LogParts
from geminga_broker.log.state import LogState
from geminga_protocol.ids import Position
from geminga_runtime.metadata.api import MetadataError

_log = logging.getLogger(__name__)


def ledgers_to_trim(
    chain: LedgerChain, mark_deletes: Iterable[Position], retention: Retention, now_ms: int
) -> list[Span]:
    """Spans from the front that every cursor passed and that retention lets go. Never the last one.

    Without a cursor nobody waits for anything, and retention alone decides.
    """
    upto = min((chain.next_position(mark)[0] for mark in mark_deletes), default=None)
    left_bytes = chain.size_bytes
    gone: list[Span] = []
    for span in chain.spans[:-1]:
        if not span.closed_ms or (upto is not None and span.ledger_id >= upto):
            break
        too_old = 0 <= retention.time_s < (now_ms - span.closed_ms) / 1000
        # What stays must still be as much as retention asks for.
        left_bytes -= span.size_bytes
        too_much = 0 <= retention.size_bytes <= left_bytes
        if not (too_old or too_much):
            break
        gone.append(span)
    return gone


class CursorsToTrim(Protocol):
    """What trimming needs of a log's cursors."""

    def durable_marks(self) -> list[Position]:
        """Up to where each durable cursor lets the chain go."""

    async def persist_properties(self) -> None:
        """Make what cursors keep beside their mark-delete durable. Raises LogWriteFailed,
        LogFenced.
        """

    async def forget(self, ledger_id: int) -> None:
        """The ledger left the chain."""


class LogTrimmer:
    """Trims one log, in two steps: out of the chain (with a note of it), then deleted."""

    def __init__(self, parts: LogParts) -> None:
        self.retention = parts.options.retention
        self._parts = parts
        self._cursors: CursorsToTrim | None = None
        self._scheduled = False

    def watch(self, cursors: CursorsToTrim) -> None:
        """These cursors hold what they have not passed. Called once, before anything is trimmed."""
        self._cursors = cursors

    def schedule(self) -> None:
        """Trim soon, in the background. Failures are tried again at the next occasion."""
        if not self._scheduled and self._parts.state is not LogState.CLOSED:
            self._scheduled = True
            self._parts.spawn(self._trim_quietly)

    async def trim(self, retention: Retention | None = None) -> None:
        """See `ManagedLedger.trim`; by another retention than the log's, if one is given. Raises
        LogWriteFailed, LogFenced.
        """
        retention = retention or self.retention
        parts = self._parts
        deleting = parts.catalog.deleting
        cursors = self._cursors
        assert cursors is not None
        async with parts.mutex:
            if parts.state in (LogState.FENCED, LogState.CLOSED):
                return
            now_ms = parts.options.now_ms()
            gone = ledgers_to_trim(parts.chain, cursors.durable_marks(), retention, now_ms)
            try:
                if gone:
                    await cursors.persist_properties()
                    deleting.update(dict.fromkeys(span.ledger_id for span in gone))
                    try:
                        await parts.catalog.save(parts.chain.spans[len(gone) :])
                    except BaseException:
                        # They may still be in the chain that the store knows, so they stay.
                        parts.catalog.cleared(span.ledger_id for span in gone)
                        raise
                # All at once: what is cut off here may leave none that is to be deleted.
                for span in gone:
                    parts.chain.remove(span.ledger_id)
                for span in gone:
                    await cursors.forget(span.ledger_id)
                await self.delete_ledgers()
            except (BookkeeperError, MetadataError) as error:
                raise LogWriteFailed(f"{parts.name} can't be trimmed: {error}") from error

    async def delete_ledgers(self) -> None:
        """Delete ledgers that are in no chain any more. The next save of the catalog forgets them.

        Raises BookkeeperError, MetadataError.
        """
        deleting = list(self._parts.catalog.deleting)
        for ledger_id in deleting:
            await self._parts.client.delete(ledger_id)
        self._parts.catalog.cleared(deleting)

    async def _trim_quietly(self) -> None:
        self._scheduled = False
        try:
            await self.trim()
        except (LogWriteFailed, LogFenced) as error:
            _log.warning("log=%s: %s", self._parts.name, error)
