"""The index's store: ordered keys, atomic batches; RocksDB in production.

An interface below `LocationIndex`, so that a simulated disk can lose unsynced batches
(docs/decisions/0021).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from geminga_runtime.ballast import disk_free_bytes

WRITE_BUFFER_BYTES = 2 * 1024 * 1024
BLOCK_CACHE_BYTES = 4 * 1024 * 1024
OPEN_FILES_MAX = 128


class Batch:
    """Changes that are written atomically, in this order."""

    def __init__(self) -> None:
        self.changes: list[tuple[bytes, bytes | None, bytes | None]] = []
        """(key, value, None): put; (key, None, None): delete; (first, None, end): delete from
        `first` to before `end`."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        self.changes.append((key, value, None))

    def delete(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        self.changes.append((key, None, None))

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Remove the keys from `first` on and before `end`."""
        self.changes.append((first, None, end))


class Cursor(Protocol):
    """A position in the order of keys, over a snapshot from its creation."""

    def seek(self, key: bytes) -> None:
        """Move to that key or the next one."""

    def seek_for_prev(self, key: bytes) -> None:
        """Move to that key or the one before."""

    def next(self) -> None:
        """Move to the next key."""

    def prev(self) -> None:
        """Move to the previous key."""

    def valid(self) -> bool:
        """Whether it is at a key: neither at an end nor at damage (see `status`)."""

    def status(self) -> None:
        """Raises if the cursor met damage."""

    def key(self) -> bytes:
        """The current key."""

    def value(self) -> bytes:
        """The current value."""


class KeyValueStore(Protocol):
    """An open store. Methods raise any Exception: RocksDB's have no specific type."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""

    def cursor(self) -> Cursor:
        """A new cursor, not at a key yet."""

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Write atomically; with `sync` it is on disk on return, and so are earlier batches. After
        a failure nothing can be written until it is reopened."""

    def close(self) -> None:
        """Idempotent."""


class KeyValueStores(Protocol):
    """Opens stores."""

    def open(self, directory: Path, *, read_only: bool = False) -> KeyValueStore:
        """Open a store, created if missing. Raises any Exception; its text has "Corruption" if the
        files are damaged."""

    def free_bytes(self, directory: Path) -> int:
        """Free space on its file system. Raises OSError."""


class RocksStore:
    """One RocksDB."""

    def __init__(self, directory: Path, access: AccessType) -> None:
        self._db = Rdict(str(directory), _options(), access_type=access)
        self.get = self._db.get
        self.cursor = self._db.iter

    def write(self, batch: Batch, *, sync: bool) -> None:
        """See `KeyValueStore.write`."""
        native = WriteBatch(raw_mode=True)
        for key, value, end in batch.changes:
            if value is not None:
                native.put(key, value)
            elif end is not None:
                native.delete_range(key, end)
            else:
                native.delete(key)
        options = WriteOptions()
        options.sync = sync
        self._db.write(native, options)

    def close(self) -> None:
        """See `KeyValueStore.close`."""
        try:
            self._db.close()
        except DbClosedError:
            return


class RocksStores:
    """RocksDBs on the operating system's files."""

    def open(self, directory: Path, *, read_only: bool = False) -> KeyValueStore:
        """See `KeyValueStores.open`."""
        access = AccessType.read_only() if read_only else AccessType.read_write()
        return RocksStore(directory, access)

    def free_bytes(self, directory: Path) -> int:
        """See `KeyValueStores.free_bytes`."""
        return disk_free_bytes(directory)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    # By default it is opened without what stands at damage in its log and behind: all of that was
    # synced, and no journal has it any more. An end that is cut off was never promised.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_max_open_files(OPEN_FILES_MAX)
    options.set_keep_log_file_num(2)
    options.set_max_background_jobs(1)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(BLOCK_CACHE_BYTES))
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(table)
    return options
