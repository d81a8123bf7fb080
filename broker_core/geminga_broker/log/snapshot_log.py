"""Records beside a cursor: state that its dispatcher restores after a restart, and could also
rebuild by reading the backlog (spec BR-34).

They are in ledgers named by the cursor's node, so they are deleted with the cursor. An unneeded
ledger becomes one of the cursor's leftovers, and a new ledger is unnamed (`client.unnamed`) until
the node names it, so that none leaks.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection

import trio

from geminga_bookie.client import BookkeeperClient
from geminga_bookie.client.append import LedgerWriter, append_durably
from geminga_bookie.client.read import LedgerReader
from geminga_bookie.errors import BookkeeperError, MetadataConflict
from geminga_broker.log.api import LogError, LogReadFailed, LogWriteFailed
from geminga_broker.log.cursor_writer import CursorWriter
from geminga_broker.log.options import LogOptions
from geminga_broker.log.salvage import DAMAGE, open_salvaged
from geminga_runtime.metadata.api import MetadataError

_log = logging.getLogger(__name__)

LEDGER_RECORDS_MAX = 128
"""Records of one ledger, so that old ledgers can be deleted."""

Place = tuple[int, int]
"""Ledger and entry of a record."""


class SnapshotLog:
    """Records of one cursor. Its methods may be called at any time."""

    def __init__(
        self,
        owner: CursorWriter,
        client: BookkeeperClient,
        options: LogOptions,
        names: tuple[str, str],
    ) -> None:
        self._owner = owner
        self._client = client
        self._options = options
        self._names = names
        self._writer: LedgerWriter | None = None
        self._lock = trio.Lock()

    async def load(self) -> AsyncIterator[tuple[Place, memoryview]]:
        """All records in the order of writing. Lost ledgers and damaged records are left out: the
        backlog has everything. Raises LogReadFailed if a retry may succeed.
        """
        for ledger_id in self._owner.side_ledgers:
            try:
                # Not `open`, which would fence our own open ledger.
                reader = self._written(ledger_id) or await self._salvage(ledger_id)
            except DAMAGE as error:
                _log.warning("cursor=%s: ledger %d is left out: %s", self._names, ledger_id, error)
                continue
            except (BookkeeperError, MetadataError) as error:
                raise self._read_failed(ledger_id, error) from error
            for entry_id in range(reader.last_add_confirmed + 1):
                try:
                    [view] = await reader.read(entry_id, entry_id)
                except DAMAGE as error:
                    text = "cursor=%s: record %d of ledger %d is left out: %s"
                    _log.warning(text, self._names, entry_id, ledger_id, error)
                    continue
                except BookkeeperError as error:
                    raise self._read_failed(ledger_id, error) from error
                yield (ledger_id, entry_id), view

    async def append(self, data: bytes) -> Place:
        """Write one record; durable on return. Raises LogWriteFailed, LogFenced."""
        async with self._lock:
            try:
                return await self._append(data)
            except (BookkeeperError, MetadataError) as error:
                self._writer = None
                raise LogWriteFailed(f"{self._names}: {error}") from error

    async def read(self, place: Place) -> memoryview:
        """One record. Raises LogReadFailed."""
        ledger_id, entry_id = place
        try:
            reader = self._written(ledger_id) or await self._client.open(
                ledger_id, self._options.durability.password, recover=False
            )
            [view] = await reader.read(entry_id, entry_id)
        except (BookkeeperError, MetadataError) as error:
            raise self._read_failed(ledger_id, error) from error
        return view

    async def keep(self, places: Collection[Place]) -> None:
        """Delete the ledgers without any of these records, except the open one. Logs a failure; a
        later call retries. Raises LogFenced.
        """
        async with self._lock:
            needed = {ledger_id for ledger_id, _ in places}
            if self._writer is not None and places:
                needed.add(self._writer.ledger_id)
            gone = [n for n in self._owner.side_ledgers if n not in needed]
            if not gone:
                return
            if self._writer is not None and self._writer.ledger_id in gone:
                self._writer = None
            try:
                await self._owner.drop_side_ledgers(gone)
            except LogWriteFailed as error:
                _log.warning("cursor=%s: ledgers %s are not deleted: %s", self._names, gone, error)

    async def _append(self, data: bytes) -> Place:
        writer = self._writer
        if writer is not None and writer.ledger_id not in self._owner.side_ledgers:
            writer = self._writer = None  # the cursor was deleted or closed
        if writer is not None and writer.last_add_pushed + 1 >= LEDGER_RECORDS_MAX:
            self._writer = None
            await writer.close()
            writer = None
        if writer is None:
            options = self._options.durability.ledger_options(*self._names)
            writer = await self._client.create(options, unnamed=True)
            try:
                known = self._owner.side_ledgers
                await self._owner.set_side_ledgers((*known, writer.ledger_id))
                await self._client.unnamed.name(writer.ledger_id)
            except (LogError, MetadataConflict):
                await self._client.unnamed.abandon(writer.ledger_id)  # noqa: ASYNC120
                raise
            self._writer = writer
        return writer.ledger_id, await append_durably(writer, [(data,)])

    def _written(self, ledger_id: int) -> LedgerReader | None:
        """The open ledger, if it has this id."""
        writer = self._writer
        return writer if writer is not None and writer.ledger_id == ledger_id else None

    async def _salvage(self, ledger_id: int) -> LedgerReader:
        password = self._options.durability.password
        text = f"cursor={self._names} reads that part of the backlog again"
        return await open_salvaged(self._client, ledger_id, password, text)

    def _read_failed(self, ledger_id: int, error: Exception) -> LogReadFailed:
        return LogReadFailed(f"{self._names}: ledger {ledger_id}: {error}")
