"""Reading one compacted ledger (spec BR-50; Apache's `CompactedTopicImpl`)."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import BookkeeperError, DigestMismatch, NoSuchEntry
from geminga_broker.compaction.raw_entry import read_raw
from geminga_broker.log.api import LogClosed, LogReadFailed
from geminga_broker.log.entry import LogEntry
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_runtime.metadata.api import MetadataError

_log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

PASSWORD = b""
"""Password of compacted ledgers, as in Apache (`COMPACTED_TOPIC_LEDGER_PASSWORD`)."""

PLACES_MAX = 256
"""Cached indexes of entries, for searches and for readers."""


class CompactedLedger:
    """Entries in the order of their positions in the log, which have gaps. Opened at the first
    read. Damaged entries are skipped, and each is logged once.
    """

    def __init__(self, client: BookkeeperClient, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self._client = client
        self._reader: LedgerReader | None = None
        self._opening = trio.Lock()
        self._positions: OrderedDict[int, Position] = OrderedDict()
        self._next: OrderedDict[Position, int] = OrderedDict()
        self._damaged: OrderedDict[int, None] = OrderedDict()
        """Known damaged entries."""
        self._users = 0
        self._closed = False
        self._idle = trio.Event()

    async def read_from(
        self, position: Position, *, entries_max: int, bytes_max: int
    ) -> list[LogEntry]:
        """The first entries at or after a position. Raises LogReadFailed, LogClosed."""
        with self._use():
            reader = await self._open()
            first = await self._index_of(reader, position)
            while first <= reader.last_add_confirmed:
                last = min(reader.last_add_confirmed, first + entries_max - 1)
                entries, first = await self._fetch(reader, first, last, bytes_max)
                if entries:
                    _remember(self._next, after(entries[-1].position), first)
                    return entries
            return []

    async def last(self) -> LogEntry | None:
        """The last entry, None if it is empty. Raises LogReadFailed, LogClosed."""
        with self._use():
            reader = await self._open()
            for last in range(reader.last_add_confirmed, -1, -1):
                entries, _ = await self._fetch(reader, last, last, 1)
                if entries:
                    return entries[0]
            return None

    async def find_by_time(self, timestamp_ms: int) -> Position | None:
        """Position of the first entry of that time or later. Raises LogReadFailed, LogClosed."""
        with self._use():
            reader = await self._open()
            low, high = 0, reader.last_add_confirmed + 1
            while low < high:
                middle = (low + high) // 2
                found = await self._intact(reader, middle, high)
                if found is not None and 0 < found[1].time_ms < timestamp_ms:
                    low = found[0] + 1
                else:
                    high = middle
            found = await self._intact(reader, low, reader.last_add_confirmed + 1)
            return None if found is None else found[1].position

    async def size(self) -> tuple[int, int]:
        """Entries and bytes. Raises LogReadFailed, LogClosed."""
        with self._use():
            reader = await self._open()
            return reader.last_add_confirmed + 1, reader.length

    async def close(self) -> None:
        """Refuse new readers, and return when the last one has ended."""
        self._closed = True
        while self._users:
            await self._idle.wait()
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.aclose()

    @contextmanager
    def _use(self) -> Iterator[None]:
        """Keep it open while the context is. Raises LogClosed."""
        if self._closed:
            raise LogClosed(f"the compacted ledger {self.ledger_id} was replaced")
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._idle.set()
                self._idle = trio.Event()

    async def _open(self) -> LedgerReader:
        async with self._opening:
            if self._reader is None:
                try:
                    self._reader = await self._client.open(self.ledger_id, PASSWORD, recover=True)
                except (BookkeeperError, MetadataError) as error:
                    raise self._failed(error) from error
            return self._reader

    async def _index_of(self, reader: LedgerReader, position: Position) -> int:
        """Index of the first entry at or after the position, or of a damaged one before it."""
        known = self._next.get(position)
        if known is not None:
            return known
        low, high = 0, reader.last_add_confirmed + 1
        while low < high:
            middle = (low + high) // 2
            at = self._positions.get(middle)
            index = middle
            if at is None:
                found = await self._intact(reader, middle, high)
                if found is None:
                    high = middle
                    continue
                index, at = found[0], found[1].position
                _remember(self._positions, index, at)
            if at < position:
                low = index + 1
            else:
                high = middle
        return low

    async def _intact(
        self, reader: LedgerReader, first: int, stop: int
    ) -> tuple[int, LogEntry] | None:
        """The first undamaged entry from `first` to before `stop`, with its index."""
        for index in range(first, stop):
            entries, _ = await self._fetch(reader, index, index, 1)
            if entries:
                return index, entries[0]
        return None

    async def _fetch(
        self, reader: LedgerReader, first: int, last: int, bytes_max: int
    ) -> tuple[list[LogEntry], int]:
        """The undamaged ones of these entries, none only if all are damaged; and the next index."""
        try:
            views = await reader.read(first, last, bytes_max=max(bytes_max, 1))
            return [read_raw(view) for view in views], first + len(views)
        except (DigestMismatch, NoSuchEntry, RemoteProtocolError) as error:
            if first == last:
                self._note_damage(first, error)
                return [], first + 1
        except (BookkeeperError, MetadataError) as error:
            raise self._failed(error) from error
        found: list[LogEntry] = []
        index = first
        while index <= last and bytes_max > 0:
            entries, index = await self._fetch(reader, index, index, 1)
            found += entries
            bytes_max -= sum([entry.size for entry in entries])
        return found, index

    def _note_damage(self, index: int, error: Exception) -> None:
        if index not in self._damaged:
            text = "compacted ledger %d: entry %d is damaged, its messages are left out: %s"
            _log.warning(text, self.ledger_id, index, error)
        _remember(self._damaged, index, None)

    def _failed(self, error: Exception) -> LogReadFailed:
        kind = type(error).__name__
        return LogReadFailed(f"compacted ledger {self.ledger_id}: {kind}: {error}")


def after(position: Position) -> Position:
    """The lowest position after this one."""
    return Position(position.ledger_id, position.entry_id + 1)


def _remember(places: OrderedDict[K, V], key: K, value: V) -> None:
    places[key] = value
    while len(places) > PLACES_MAX:
        places.popitem(last=False)
