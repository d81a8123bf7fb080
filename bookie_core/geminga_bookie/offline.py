"""A stopped bookie's directories, read without changing a byte (spec BK-11).

The index is opened read-only and the journal is replayed into memory, so that what no checkpoint
has reached is seen too. Beside a running bookie it shows a moment of the past.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from geminga_bookie.errors import BookkeeperError, DataDirError, NoSuchEntry
from geminga_bookie.options import BookieOptions
from geminga_bookie.port import ids_fit
from geminga_bookie.storage.data_dirs import COOKIE_NAME, index_directory
from geminga_bookie.storage.disk import Disk, OsDisk
from geminga_bookie.storage.journal_format import ENTRIES, JournalItem
from geminga_bookie.storage.journal_replay import replay
from geminga_bookie.storage.ledger_directory import LedgerDirectory
from geminga_bookie.storage.location_index import LocationIndex
from geminga_bookie.storage.write_cache import WriteCache


class OfflineBookie:
    """Entries of a stopped bookie. Everything blocks. Raises DataDirError where there is no
    bookie, or its index must be rebuilt first."""

    def __init__(self, options: BookieOptions, disk: Disk | None = None) -> None:
        self._disk = disk or OsDisk()
        self._stores: list[LedgerDirectory] = []
        self._journaled = WriteCache()
        for directory in (*options.ledger_dirs, *options.journal_dirs):
            if COOKIE_NAME not in self._disk.names(directory):
                raise DataDirError(f"{directory} holds no bookie")
        for number, directory in enumerate(options.ledger_dirs):
            path = index_directory(options, number)
            store = LedgerDirectory(self._disk, directory, self._index(path), options)
            self._stores.append(store)
            if store.logs.ids() and not store.index.is_complete():
                self.close()
                raise DataDirError(f"{path} is not rebuilt yet: start the bookie once")
        for directory in options.journal_dirs:
            replay(self._disk, directory, self._take)

    def _index(self, path: Path) -> LocationIndex:
        try:
            return LocationIndex(path, read_only=True)
        except Exception as error:  # rocksdict raises bare Exceptions
            raise DataDirError(f"{path} can't be read: {error}") from error

    def _take(self, item: JournalItem) -> None:
        if item.kind == ENTRIES and ids_fit(item.ledger_id, item.number, len(item.payload)):
            self._journaled.put(item.ledger_id, item.number, item.payload, 0)

    def ledgers(self) -> list[int]:
        """Ids of the ledgers that it holds anything of."""
        held = {record.ledger_id for store in self._stores for record in store.index.ledgers()}
        return sorted(held.union(self._journaled))

    def entry_ids(self, ledger_id: int) -> list[int]:
        """Ids of the entries held, ascending."""
        ids = set(self._journaled.entry_ids(ledger_id))
        for location in self._store(ledger_id).index.locations(ledger_id):
            ids.update(range(location.first, location.first + location.entries))
        return sorted(ids)

    def entries(
        self, ledger_id: int, first: int, last: int
    ) -> Iterator[tuple[int, bytes | BookkeeperError]]:
        """Packets of the entries held between the two (inclusive), or why one can't be read."""
        for entry_id in self.entry_ids(ledger_id):
            if first <= entry_id <= last:
                try:
                    yield entry_id, self._read(ledger_id, entry_id)
                except BookkeeperError as error:
                    yield entry_id, error

    def _store(self, ledger_id: int) -> LedgerDirectory:
        """Where the ledger is; the directory of its id if it is nowhere."""
        home = ledger_id % len(self._stores)
        for store in (*self._stores[home:], *self._stores[:home]):
            if store.index.ledger(ledger_id) is not None:
                return store
        return self._stores[home]

    def _read(self, ledger_id: int, entry_id: int) -> bytes:
        found = self._journaled.get(ledger_id, entry_id, 1, 1)
        if found is not None:
            return found[0]
        for block in self._store(ledger_id).load(ledger_id, entry_id, 0, 0):
            if block.first <= entry_id < block.first + len(block.packets):
                return block.packets[entry_id - block.first]
        raise NoSuchEntry(f"entry {ledger_id}:{entry_id}")

    def close(self) -> None:
        """Close the files."""
        for store in self._stores:
            store.close()
