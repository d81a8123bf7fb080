"""The reading side of a log: the cache first, then the ledgers (spec BR-03)."""

from __future__ import annotations

from collections import OrderedDict

from geminga_bookie.client.api import LedgerReader
from geminga_bookie.errors import BookkeeperError
from geminga_broker.log.api import EntryDamaged, LogReadFailed
from geminga_broker.log.chain import Span
from geminga_broker.log.entry import LogEntry
from geminga_broker.log.parts import LogParts
from geminga_broker.log.salvage import DAMAGE
from geminga_protocol.ids import Position
from geminga_runtime.metadata.api import MetadataError

HANDLES_MAX = 8
"""Closed ledgers of one log that are kept open for reading."""


new_tuple = tuple.__new__
"""Makes a Position in half the time that Position() takes."""


class LogReads:
    """Reads entries of one log, of one ledger at a time."""

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts
        self._handles: OrderedDict[int, LedgerReader] = OrderedDict()

    def cached(self, ledger_id: int, first: int, last: int) -> list[LogEntry]:
        """Entries first..last of the ledger, as many as the cache has from the first on."""
        return self._parts.cache.get(ledger_id, first, last)

    async def entries(
        self, position: Position, *, entries_max: int, bytes_max: int
    ) -> list[LogEntry]:
        """Entries of one ledger from the position on; empty at the end of the log, else at least
        one.

        Goes on to the next ledger if the position is in none. Raises LogReadFailed.
        """
        chain = self._parts.chain
        while True:
            ledger_id, entry_id = chain.at_or_after(position)
            span = chain.get(ledger_id)
            if span is None or entry_id >= span.entries:
                return []
            last = min(span.entries, entry_id + entries_max) - 1
            found = self.cached(ledger_id, entry_id, last)
            if found:
                return limited(found, bytes_max)
            try:
                return await self._fetch(span, entry_id, last, bytes_max)
            except (BookkeeperError, MetadataError) as error:
                if chain.get(ledger_id) is span:
                    damaged = isinstance(error, DAMAGE)
                    if damaged and last > entry_id:
                        # One of them is; those before it are as good as ever.
                        entries_max = (last - entry_id + 1) // 2
                        continue
                    kind = EntryDamaged if damaged else LogReadFailed
                    raise kind(
                        f"{self._parts.name}: {ledger_id}:{entry_id}: "
                        f"{type(error).__name__}: {error}"
                    ) from error
                # Trimmed while it was read: what comes next is in a later ledger.

    async def forget(self, ledger_id: int) -> None:
        """The ledger left the chain."""
        handle = self._handles.pop(ledger_id, None)
        if handle is not None:
            await handle.aclose()

    async def close(self) -> None:
        """Give all handles back."""
        for ledger_id in list(self._handles):
            await self.forget(ledger_id)

    async def _fetch(self, span: Span, first: int, last: int, bytes_max: int) -> list[LogEntry]:
        # A ledger that is open, or not closed yet, is known best to its writer.
        reader: LedgerReader | None = self._parts.writer or self._parts.unclosed
        if reader is None or reader.ledger_id != span.ledger_id:
            reader = await self._handle(span)
        views = await reader.read(first, last, bytes_max=max(bytes_max, 1))
        ledger_id = span.ledger_id
        return [
            LogEntry(new_tuple(Position, (ledger_id, entry_id)), view)
            for entry_id, view in enumerate(views, first)
        ]

    async def _handle(self, span: Span) -> LedgerReader:
        """A reader of the ledger; opened without recovery, so it never disturbs a writer."""
        handles = self._handles
        handle = handles.get(span.ledger_id)
        if handle is None:
            handle = await self._parts.client.open(
                span.ledger_id, self._parts.options.durability.password, recover=False
            )
            if span.closed_ms:
                handles[span.ledger_id] = handle
            while len(handles) > HANDLES_MAX:
                _, oldest = handles.popitem(last=False)
                await oldest.aclose()
        else:
            handles.move_to_end(span.ledger_id)
        return handle


def limited(entries: list[LogEntry], bytes_max: int) -> list[LogEntry]:
    """The first entries that are within the bound together; at least one."""
    left = bytes_max
    for count, entry in enumerate(entries):
        left -= entry.size
        if left < 0:
            return entries[: max(count, 1)]
    return entries
