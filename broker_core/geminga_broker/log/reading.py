"""The reading side of a log: the cache first, then the ledgers (spec BR-03)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import BookkeeperError
from geminga_broker.log.api import EntryDamaged, LogReadFailed
from geminga_broker.log.chain import LedgerInfo
from geminga_broker.log.context import LogContext
from geminga_broker.log.entry import LogEntry, total_size
from geminga_broker.log.options import LogOptions
from geminga_broker.log.salvage import DAMAGE
from geminga_protocol.buffers import Buffer
from geminga_protocol.ids import EARLIEST, Position
from geminga_runtime.metadata.api import MetadataError

HANDLES_MAX = 8
"""Closed ledgers of one log that are kept open for reading."""


new_tuple = tuple.__new__
"""Makes a Position in half the time that Position() takes."""


def entries_of(
    ledger_id: int,
    first: int,
    packets: Sequence[bytes],
    head_bytes: int,
    appended: Sequence[tuple[Buffer, int]],
) -> tuple[list[LogEntry], int]:
    """What was appended as it will be read, from its packets, and its bytes."""
    made: list[LogEntry] = []
    size_bytes = 0
    entry_id = first
    for packet, entry in zip(packets, appended, strict=True):
        position = new_tuple(Position, (ledger_id, entry_id))
        view = memoryview(packet)[head_bytes:]
        made.append(LogEntry(position, view, entry[1]))
        size_bytes += len(view)
        entry_id += 1
    return made, size_bytes


class LogReads:
    """Reads entries of one log, of one ledger at a time."""

    def __init__(self, context: LogContext) -> None:
        self._context = context
        self._handles: OrderedDict[int, LedgerReader] = OrderedDict()
        self.cached = context.cache.get
        """Entries first..last of the ledger, or fewer, up to the first that is not cached."""

    async def entries(
        self, position: Position, *, entries_max: int, bytes_max: int
    ) -> list[LogEntry]:
        """Entries of one ledger from the position on, at least one; empty at the end of the log.

        If no ledger has the position, reads from the next one. Raises LogReadFailed.
        """
        chain = self._context.chain
        while True:
            ledger_id, entry_id = chain.at_or_after(position)
            ledger = chain.get(ledger_id)
            if ledger is None or entry_id >= ledger.entries:
                return []
            last = min(ledger.entries, entry_id + entries_max) - 1
            found = self.cached(ledger_id, entry_id, last)
            if found:
                return self.hit(found, bytes_max)
            try:
                return await self._fetch(ledger, entry_id, last, bytes_max)
            except (BookkeeperError, MetadataError) as error:
                failure = error
            if chain.get(ledger_id) is not ledger:
                continue  # trimmed during the read: the next entry is in a later ledger
            damaged = isinstance(failure, DAMAGE)
            self._context.meter.read_failures += 1
            if damaged:
                await self._verify()
            if damaged and last > entry_id:
                # One of the entries is damaged; those before it are readable.
                entries_max = (last - entry_id + 1) // 2
                continue
            kind = EntryDamaged if damaged else LogReadFailed
            raise kind(
                f"{self._context.name}: {ledger_id}:{entry_id}: {type(failure).__name__}: {failure}"
            ) from failure

    def hit(self, found: list[LogEntry], bytes_max: int) -> list[LogEntry]:
        """Of cached entries those that are read: the first ones within the bound, at least one."""
        entries, size_bytes = limited(found, bytes_max)
        self._context.meter.read(len(entries), size_bytes)
        self._context.cache.hits(len(entries), size_bytes)
        return entries

    async def _verify(self) -> None:
        """What is gone may have been trimmed by another broker. Raises LogFenced, LogClosed."""
        try:
            async with self._context.mutex:
                await self._context.verify()
        except MetadataError:
            pass  # the store can't tell now

    async def forget(self, ledger_id: int) -> None:
        """Close the handle of a trimmed ledger."""
        handle = self._handles.pop(ledger_id, None)
        if handle is not None:
            await handle.aclose()

    async def close(self) -> None:
        """Close all handles."""
        for ledger_id in list(self._handles):
            await self.forget(ledger_id)

    async def _fetch(
        self, ledger: LedgerInfo, first: int, last: int, bytes_max: int
    ) -> list[LogEntry]:
        # Only its writer knows the end of a ledger that isn't closed.
        reader: LedgerReader | None = self._context.writer or self._context.unclosed
        if reader is None or reader.ledger_id != ledger.ledger_id:
            reader = await self._handle(ledger)
        views = await reader.read(first, last, bytes_max=max(bytes_max, 1))
        size_bytes = sum(map(len, views))
        meter = self._context.meter
        meter.read(len(views), size_bytes)
        meter.missed_entries += len(views)
        self._context.cache.misses(len(views), size_bytes)
        ledger_id = ledger.ledger_id
        return [
            LogEntry(new_tuple(Position, (ledger_id, entry_id)), view)
            for entry_id, view in enumerate(views, first)
        ]

    async def _handle(self, ledger: LedgerInfo) -> LedgerReader:
        """A reader of the ledger; opened without recovery, so it never disturbs a writer."""
        handles = self._handles
        handle = handles.get(ledger.ledger_id)
        if handle is None:
            handle = await self._context.client.open(
                ledger.ledger_id, self._context.options.durability.password, recover=False
            )
            if ledger.closed_ms:
                handles[ledger.ledger_id] = handle
            while len(handles) > HANDLES_MAX:
                _, oldest = handles.popitem(last=False)
                await oldest.aclose()
        else:
            handles.move_to_end(ledger.ledger_id)
        return handle


def limited(entries: list[LogEntry], bytes_max: int) -> tuple[list[LogEntry], int]:
    """The first entries that together are within the bound, at least one; and their size."""
    total = total_size(entries)
    if total <= bytes_max:
        return entries, total
    size_bytes = 0
    for count, entry in enumerate(entries):
        size_bytes += entry.size
        if size_bytes > bytes_max and count:
            return entries[:count], size_bytes - entry.size
    return entries, size_bytes


async def index_at(reader: LedgerReader, entry_id: int, index: int, options: LogOptions) -> int:
    """The message index of a stored entry; `index` if it has none."""
    if not options.broker_entry_metadata:
        return index
    [view] = await reader.read(entry_id, entry_id)
    stored = LogEntry(EARLIEST, view).broker_metadata
    return stored.index if stored is not None and stored.HasField("index") else index
