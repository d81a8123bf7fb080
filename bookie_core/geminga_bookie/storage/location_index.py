"""The indexes (spec BK-04): where blocks of entries are, and what is known of each ledger; in one
RocksDB (or what stands in its place, see `key_value`).

Keys are big-endian so that they sort by ledger and entry. A location is part of the key: writing
the same entries again
(replay, recovery) never hides others, the youngest copy is merely found first.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from geminga_bookie.lac import NO_LAC, explicit_lac
from geminga_bookie.storage.entry_logs.format import BLOCK_ENTRIES_MAX
from geminga_bookie.storage.key_value import (
    WRITE_BUFFER_BYTES,
    Batch,
    Cursor,
    KeyValueStore,
    KeyValueStores,
    RocksStores,
)

logger = logging.getLogger(__name__)

_KEY = struct.Struct(">cQQIQ")
_LEDGER_KEY = struct.Struct(">cQ")
_VALUE = struct.Struct("<II")
_LEDGER_VALUE = struct.Struct("<BBxxIqq")
"""Fenced, limbo, length of the key, unused (the LAC, once), explicit LAC."""
_VERSION_KEY = b"v"
_VERSION = b"1"
_MAX_U32 = (1 << 32) - 1
_MAX_U64 = (1 << 64) - 1

DAMAGE = "Corruption: "
"""What RocksDB calls it."""
REOPEN_BYTES = 2 * WRITE_BUFFER_BYTES
"""Room that is needed to open it again."""
REOPEN_S = 1.0
"""How long that waits for readers."""


class IndexFailed(OSError):
    """The index can't be read or written; the text names its directory and the cause."""


class IndexDamaged(IndexFailed):
    """What was read isn't what was written: only a new index has it."""

    def __init__(self, text: str, directory: Path = Path()) -> None:
        super().__init__(text)
        self.directory = directory


def unsound_mark(directory: Path) -> Path:
    """The file that has the next start put the index of that directory aside, or rebuild it if that
    is all that it says. A mark within would not do: a damaged index may take no writes, and a
    rebuild in place leaves tables that it needn't read.
    """
    return directory.with_name(f"{directory.name}.unsound")


class Location(NamedTuple):
    """Where a block of consecutive entries is."""

    ledger_id: int
    first: int
    log_id: int
    offset: int
    size_bytes: int
    entries: int


class LedgerRecord(NamedTuple):
    """What is kept of a ledger beside its entries."""

    ledger_id: int
    master_key: bytes
    fenced: bool
    limbo: bool
    explicit_packet: bytes
    """Of the explicit LAC; empty if there is none."""

    def encode(self) -> bytes:
        """As stored in the index, and in entry logs for when the index is lost."""
        lac = explicit_lac(self.explicit_packet)
        head = _LEDGER_VALUE.pack(self.fenced, self.limbo, len(self.master_key), NO_LAC, lac)
        return head + self.master_key + self.explicit_packet

    @classmethod
    def decode(cls, ledger_id: int, data: bytes) -> LedgerRecord:
        """The inverse of `encode`."""
        fenced, limbo, key_bytes, _, _ = _LEDGER_VALUE.unpack_from(data)
        end = _LEDGER_VALUE.size + key_bytes
        key = data[_LEDGER_VALUE.size : end]
        return cls(ledger_id, key, bool(fenced), bool(limbo), data[end:])


def _key(location: Location) -> bytes:
    return _KEY.pack(b"e", location.ledger_id, location.first, location.log_id, location.offset)


class LocationIndex:
    """Open index. Its methods block for a disk read at most, `write` and `close` for a sync; all
    are thread-safe, and raise IndexFailed."""

    def __init__(
        self, directory: Path, *, read_only: bool = False, stores: KeyValueStores | None = None
    ) -> None:
        self._stores = stores or RocksStores()
        self._read_only = read_only
        self.directory = directory
        self._db = self._open()
        self._writing = threading.Lock()
        self._change = threading.Condition()
        self._readers = 0
        self._is_broken = False
        """Whether a write failed: RocksDB takes no other until it is opened again."""
        self.is_damaged = False
        """Whether damage was met."""

    def is_complete(self) -> bool:
        """Whether it has everything that the entry logs hold. A new one hasn't, nor has one whose
        rebuild was interrupted: the caller rebuilds it."""
        return self._get(_VERSION_KEY) is not None

    def version_is_ours(self) -> bool:
        """Whether this code can read it."""
        return self._get(_VERSION_KEY) in (None, _VERSION)

    def require_rebuild(self) -> None:
        """From now on, durably, it is not complete."""
        batch = Batch()
        batch.delete(_VERSION_KEY)
        self._write(batch)

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # rocksdict raises bare Exceptions
            text = f"index {self.directory}: {error}"
            if os.strerror(errno.ENOSPC) in text:
                raise IndexFailed(errno.ENOSPC, text) from error
            if DAMAGE in text:
                self.is_damaged = True
                raise IndexDamaged(text, self.directory) from error
            raise IndexFailed(text) from error

    def _open(self) -> KeyValueStore:
        return self._stores.open(self.directory, read_only=self._read_only)

    @contextmanager
    def _reading(self) -> Iterator[KeyValueStore]:
        """The database; it is not closed meanwhile."""
        with self._change:
            self._readers += 1
        try:
            yield self._db
        finally:
            with self._change:
                self._readers -= 1
                self._change.notify_all()

    def _write(self, batch: Batch) -> None:
        with self._mapped_errors(), self._writing:
            if self._is_broken:
                self._reopen()
            try:
                self._db.write(batch, sync=True)
            except Exception:
                self._is_broken = True
                raise

    def _reopen(self) -> None:
        """After a failed write: what was written before is all there. Not before there is room, as
        it can be read until then."""
        if self._stores.free_bytes(self.directory) < REOPEN_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with self._change:
            if not self._change.wait_for(lambda: not self._readers, REOPEN_S):
                raise TimeoutError("it can't be reopened while it is read")
            self.close()
            deadline_s = time.monotonic() + REOPEN_S
            while self._is_broken:
                try:
                    self._db = self._open()
                    self._is_broken = False
                except Exception:  # a reader's cursor that is going keeps it locked
                    if time.monotonic() >= deadline_s:
                        raise
                    time.sleep(REOPEN_S / 100)
        logger.warning("index %s: reopened after a failed write", self.directory)

    def _get(self, key: bytes) -> bytes | None:
        with self._mapped_errors(), self._reading() as db:
            return db.get(key)

    def _cursor(self, db: KeyValueStore) -> Cursor:
        with self._mapped_errors():
            return db.cursor()

    def _at(self, cursor: Cursor) -> bool:
        """Whether the cursor stands on something.

        One that met damage looks as if it were at the end: never "no such entry" (BK-12).
        """
        if cursor.valid():
            return True
        with self._mapped_errors():
            cursor.status()
        return False

    def write(
        self,
        locations: Iterable[Location] = (),
        records: Iterable[LedgerRecord] = (),
        removed: Iterable[Location] = (),
        *,
        completes: bool = False,
    ) -> None:
        """Put and remove, all or nothing, durably. `completes`: with this the index has
        everything; only the last batch of a rebuild may say so."""
        batch = Batch()
        if completes:
            batch.put(_VERSION_KEY, _VERSION)
        for location in locations:
            batch.put(_key(location), _VALUE.pack(location.size_bytes, location.entries))
        for record in records:
            batch.put(_LEDGER_KEY.pack(b"l", record.ledger_id), record.encode())
        for location in removed:
            batch.delete(_key(location))
        self._write(batch)

    def delete_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Forget ledgers and where their entries are."""
        batch = Batch()
        for ledger_id in ledger_ids:
            batch.delete(_LEDGER_KEY.pack(b"l", ledger_id))
            batch.delete_range(
                _KEY.pack(b"e", ledger_id, 0, 0, 0),
                _KEY.pack(b"e", ledger_id, _MAX_U64, _MAX_U32, _MAX_U64),
            )
        self._write(batch)

    def contains(self, location: Location) -> bool:
        """Whether that very block is the index's."""
        return self._get(_key(location)) is not None

    def find(self, ledger_id: int, entry_id: int) -> Iterator[Location]:
        """Blocks that hold the entry, the one to read first in front: nearly always the only one.

        Others are looked for when they are asked for. As many blocks as one has entries may begin
        before that one, and steps backwards cost more, the older the index is.
        """
        with self._reading() as db:
            cursor = self._cursor(db)
            cursor.seek_for_prev(_KEY.pack(b"e", ledger_id, entry_id, _MAX_U32, _MAX_U64))
            while (location := self._location(cursor, ledger_id)) is not None:
                if location.first <= entry_id - BLOCK_ENTRIES_MAX:
                    break
                if location.first + location.entries > entry_id:
                    yield location
                cursor.prev()

    def following(self, location: Location) -> Iterator[Location]:
        """Blocks of the ledger behind this one, in order of entries."""
        with self._reading() as db:
            cursor = self._cursor(db)
            cursor.seek(_KEY.pack(b"e", location.ledger_id, location.first + 1, 0, 0))
            while (later := self._location(cursor, location.ledger_id)) is not None:
                yield later
                cursor.next()

    def locations(self, ledger_id: int) -> Iterator[Location]:
        """All blocks of a ledger."""
        return self.following(Location(ledger_id, -1, 0, 0, 0, 0))

    def in_log(self, log_id: int) -> Iterator[Location]:
        """All blocks in an entry log. Reads every location of the index."""
        with self._reading() as db:
            cursor = self._cursor(db)
            cursor.seek(_KEY.pack(b"e", 0, 0, 0, 0))
            while self._at(cursor) and (key := cursor.key())[:1] == b"e":
                _, ledger_id, first, found_log, offset = _KEY.unpack(key)
                if found_log == log_id:
                    yield Location(ledger_id, first, log_id, offset, *_VALUE.unpack(cursor.value()))
                cursor.next()

    def clear_locations(self) -> None:
        """Forget where entries are; records of ledgers stay."""
        batch = Batch()
        batch.delete_range(_KEY.pack(b"e", 0, 0, 0, 0), _KEY.pack(b"f", 0, 0, 0, 0))
        self._write(batch)

    def last_entry(self, ledger_id: int) -> int:
        """The highest entry id of a ledger, -1 for an empty one."""
        found = -1
        with self._reading() as db:
            cursor = self._cursor(db)
            cursor.seek_for_prev(_KEY.pack(b"e", ledger_id, _MAX_U64, _MAX_U32, _MAX_U64))
            while (location := self._location(cursor, ledger_id)) is not None:
                if location.first + BLOCK_ENTRIES_MAX - 1 <= found:
                    break  # blocks that begin before it end before `found`
                found = max(found, location.first + location.entries - 1)
                cursor.prev()
        return found

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        """What is known of a ledger."""
        data = self._get(_LEDGER_KEY.pack(b"l", ledger_id))
        return None if data is None else LedgerRecord.decode(ledger_id, data)

    def last_ledger(self) -> int:
        """The highest id of a ledger; -1 if there is none."""
        with self._reading() as db:
            cursor = self._cursor(db)
            cursor.seek_for_prev(_LEDGER_KEY.pack(b"l", _MAX_U64))
            if not self._at(cursor) or (key := cursor.key())[:1] != b"l":
                return -1
            found: int = _LEDGER_KEY.unpack(key)[1]
            return found

    def ledgers(self) -> Iterator[LedgerRecord]:
        """All ledgers, by id."""
        with self._reading() as db:
            cursor = self._cursor(db)
            cursor.seek(_LEDGER_KEY.pack(b"l", 0))
            while self._at(cursor) and (key := cursor.key())[:1] == b"l":
                yield LedgerRecord.decode(_LEDGER_KEY.unpack(key)[1], cursor.value())
                cursor.next()

    def _location(self, cursor: Cursor, ledger_id: int) -> Location | None:
        if not self._at(cursor):
            return None
        key = cursor.key()
        if len(key) != _KEY.size:
            return None
        tag, found_ledger, first, log_id, offset = _KEY.unpack(key)
        if tag != b"e" or found_ledger != ledger_id:
            return None
        size_bytes, count = _VALUE.unpack(cursor.value())
        return Location(ledger_id, first, log_id, offset, size_bytes, count)

    def close(self) -> None:
        """Close the files. Idempotent. No iterator may be open."""
        try:
            self._db.close()
        except Exception as error:  # it says again that a write failed
            logger.warning("index %s: %s", self.directory, error)
