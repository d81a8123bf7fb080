"""One ledger directory: write caches, entry logs, indexes, read cache (spec BK-03 to BK-05).

Behaviour follows `SingleDirectoryDbLedgerStorage`. Methods named `cached`, `put`, `swap`, `flushed`
and `forget` are for the loop and do no I/O; the others block and are for threads.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from geminga_bookie.errors import DigestMismatch, NoSuchEntry, StorageFailed
from geminga_bookie.metrics.storage import DirectoryMetrics
from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.disk import Disk
from geminga_bookie.storage.entry_logs.files import EntryLogs, EntryLogWriter
from geminga_bookie.storage.entry_logs.format import (
    BLOCK_BYTES_MAX,
    BLOCK_ENTRIES_MAX,
    KIND_ENTRIES,
    KIND_LEDGER,
    DamagedBlock,
)
from geminga_bookie.storage.entry_logs.reading import LogFile, parse_block
from geminga_bookie.storage.location_index import IndexFailed, LedgerRecord, Location, LocationIndex
from geminga_bookie.storage.read_cache import CachedBlock, ReadCache
from geminga_bookie.storage.write_cache import CachedRun, WriteCache

logger = logging.getLogger(__name__)

SPARE_BYTES = 1024 * 1024
"""Space that must remain free beside a flush's writes."""

LOOKUPS_MAX = 3
"""Bound of repeated lookups after compaction moved the block."""


class Sealed(NamedTuple):
    """The content of a flush: a sealed half and the changed ledger records."""

    cache: WriteCache
    records: list[LedgerRecord]


class LedgerDirectory:
    """Storage of the ledgers of one directory."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        index: LocationIndex,
        options: BookieOptions,
        number: int = 0,
    ) -> None:
        self.number = number
        """The directory's number in the bookie."""
        self.logs = EntryLogs(disk, directory)
        self.index = index
        self.undecided: set[int] = set()
        """Not compacted before the next start: perhaps the index names the worse of two."""
        self.lacks_something = False
        """Whether the index isn't rebuilt, though it should be: nothing is compacted."""
        self.metrics = DirectoryMetrics()
        self.ahead_entries_max = options.read_ahead_entries
        self.active = WriteCache()
        self.sealed: Sealed | None = None
        directories = max(1, len(options.ledger_dirs))
        self.half_bytes = max(1, options.write_cache_bytes // directories // 2)
        self.read_cache = ReadCache(options.read_cache_bytes // directories)
        self._log_bytes_max = options.entry_log_bytes_max
        self._spare_bytes = SPARE_BYTES if options.disk.ballast_bytes else 0
        self._writer: EntryLogWriter | None = None
        self._failed: EntryLogWriter | None = None
        """Could neither be written nor removed."""

    def cached(
        self, ledger_id: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> list[bytes] | None:
        """Packets from the write caches, else from the read cache; None if they must be read."""
        found = self.active.get(ledger_id, entry_id, entries_max, bytes_max)
        if found is None and self.sealed is not None:
            found = self.sealed.cache.get(ledger_id, entry_id, entries_max, bytes_max)
        if found is None:
            found = self.read_cache.get(ledger_id, entry_id, entries_max, bytes_max)
        return found

    def counted(
        self, ledger_id: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> list[bytes] | None:
        """As `cached`, for a client's read: hits and misses are counted."""
        found = self.active.get(ledger_id, entry_id, entries_max, bytes_max)
        if found is None and self.sealed is not None:
            found = self.sealed.cache.get(ledger_id, entry_id, entries_max, bytes_max)
        if found is not None:
            self.metrics.found_in_write_cache(len(found))
            return found
        found = self.read_cache.get(ledger_id, entry_id, entries_max, bytes_max)
        if found is not None:
            self.metrics.found_in_read_cache(len(found))
        else:
            self.metrics.missed()
        return found

    @property
    def is_full(self) -> bool:
        """Whether the active half must be sealed before it takes more."""
        active = self.active
        return active.size_bytes + active.record_bytes >= self.half_bytes

    def last_cached(self, ledger_id: int) -> int:
        """The highest entry id in the write caches; -1 if there is none."""
        last = self.active.last_entry(ledger_id)
        return last if self.sealed is None else max(last, self.sealed.cache.last_entry(ledger_id))

    def swap(self, records: list[LedgerRecord]) -> Sealed:
        """Seal the active half for a flush, with the records. Only if none is sealed."""
        assert self.sealed is None, "the other half is still being flushed"
        self.sealed = Sealed(self.active, records)
        self.active = WriteCache()
        return self.sealed

    def flushed(self) -> None:
        """The sealed half is flushed."""
        self.sealed = None

    def forget(self, ledger_id: int) -> None:
        """Drop a deleted ledger from the caches, and from the sealed half. Not during a flush."""
        self.active.drop(ledger_id)
        if self.sealed is not None:
            self.sealed.cache.drop(ledger_id)
            records = self.sealed.records
            records[:] = [record for record in records if record.ledger_id != ledger_id]
        self.read_cache.drop(ledger_id)

    def flush(self, sealed: Sealed) -> None:
        """Write and sync entry logs, then the index (BK-03). The caller moves the mark. Raises
        OSError.

        A retry after a failure writes everything again, into a new log.
        """
        if not sealed.cache and not sealed.records:
            return
        metrics, began_s = self.metrics, time.perf_counter()
        failed = True
        try:
            self._check_room(sealed)
            locations = self._logged(sealed)
            logged_s = time.perf_counter()
            metrics.log_flushes.add(logged_s - began_s)
            self.index.write(locations, sealed.records)
            failed = False
            metrics.index_flushes.add(time.perf_counter() - logged_s)
            metrics.flush_bytes.add(sealed.cache.size_bytes)
        finally:
            metrics.flushes.add(time.perf_counter() - began_s, failed=failed)

    def _logged(self, sealed: Sealed) -> list[Location]:
        try:
            return self._write_logs(sealed)
        except OSError:
            if self._writer is not None:
                self._failed, self._writer = self._writer, None
                self._give_up()
            raise

    def _give_up(self) -> None:
        """Raises OSError: then it is tried again before another log is begun, or each attempt would
        leave one behind."""
        if self._failed is not None:
            self._failed.give_up()
            self._failed = None

    def _check_room(self, sealed: Sealed) -> None:
        """Fail early on a nearly full disk: a fence or metadata need the remaining space."""
        free_bytes = self.logs.disk.usage(self.logs.directory).free_bytes
        if free_bytes < sealed.cache.size_bytes + self._spare_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.logs.directory))

    def _write_logs(self, sealed: Sealed) -> list[Location]:
        self._give_up()
        if self._writer is not None and self._writer.size_bytes >= self._log_bytes_max:
            writer, self._writer = self._writer, None
            writer.seal()
        if self._writer is None:
            self._writer = EntryLogWriter(self.logs)
        writer = self._writer
        for record in sealed.records:
            writer.append(KIND_LEDGER, record.ledger_id, 0, [record.encode()])
        locations = []
        for ledger_id, run in sealed.cache.sorted_runs():
            for first, packets in split_run(run):
                locations.append(writer.append(KIND_ENTRIES, ledger_id, first, packets))
        writer.sync()
        self.logs.disk.sync_directory(self.logs.directory)
        return locations

    def load(
        self, ledger_id: int, entry_id: int, ahead_bytes: int, ahead_entries: int
    ) -> list[CachedBlock]:
        """Read the entry and following ones, up to the bounds (read-ahead).

        Blocks are split at damaged entries. Raises NoSuchEntry, DigestMismatch if the requested
        entry is damaged, StorageFailed.
        """
        failure = ""
        unread: OSError | None = None
        for _ in range(LOOKUPS_MAX):
            is_known = False
            began_s = time.perf_counter()
            try:
                for start in self.index.find(ledger_id, entry_id):
                    if not is_known:
                        self.metrics.looked_up(time.perf_counter() - began_s, failed=False)
                    is_known = True
                    try:
                        return self._load_from(start, entry_id, ahead_bytes, ahead_entries)
                    except DamagedBlock as damage:
                        path = self.logs.path(start.log_id)
                        failure = f"entry {ledger_id}:{entry_id} in {path}: {damage}"
                    except FileNotFoundError as gone:
                        failure = f"entry {ledger_id}:{entry_id}: {gone}"
                    except OSError as error:  # another log may have it, too
                        unread = unread or error
                if unread is not None:
                    raise unread
            except OSError as error:
                raise StorageFailed(f"entry {ledger_id}:{entry_id}: {error}") from error
            if not is_known:
                self.metrics.looked_up(time.perf_counter() - began_s, failed=True)
                raise NoSuchEntry(f"entry {ledger_id}:{entry_id}")
        logger.error("%s", failure)
        raise DigestMismatch(failure)

    def _load_from(
        self, start: Location, entry_id: int, ahead_bytes: int, ahead_entries: int
    ) -> list[CachedBlock]:
        blocks: list[CachedBlock] = []
        for group in self._adjacent(start, ahead_bytes, ahead_entries):
            try:
                with self.logs.reading(group[0].log_id) as file:
                    for location, packets in zip(group, _read_group(file, group), strict=False):
                        blocks += _whole_parts(location.first, packets)
            except (DamagedBlock, OSError):
                # Fail now only for the requested entry; errors of later ones are raised on request.
                if not _holds(blocks, entry_id):
                    raise
                return blocks
        if not _holds(blocks, entry_id):
            raise DamagedBlock("it fails its checksum")
        return blocks

    def _adjacent(
        self, start: Location, bytes_max: int, entries_max: int
    ) -> Iterator[list[Location]]:
        """Blocks from `start` on, up to the bounds, in groups for one read each."""
        group = [start]
        size, entries = start.size_bytes, start.entries
        if size < bytes_max and entries < entries_max:
            for later in self._following(start):
                last = group[-1]
                if later.first != last.first + last.entries:
                    break
                if size + later.size_bytes > bytes_max or entries + later.entries > entries_max:
                    break
                size += later.size_bytes
                entries += later.entries
                if later.log_id == last.log_id and later.offset == last.offset + last.size_bytes:
                    group.append(later)
                else:
                    yield group
                    group = [later]
        yield group

    def _following(self, start: Location) -> Iterator[Location]:
        """As far as the index can be read: who asks for a later entry is told."""
        with contextlib.suppress(IndexFailed):
            yield from self.index.following(start)

    def close(self) -> None:
        """Seal the log and close all files. Everything must be flushed before."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.seal()
            except OSError as error:  # only the ledger map is missing: a scan replaces it
                logger.warning("%s: not sealed: %s", writer.path, error)
        self.logs.close()
        self.index.close()


def split_run(run: CachedRun) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Split a run into blocks."""
    packets = run.packets
    ends = list(accumulate(map(len, packets)))
    start = size = 0
    while True:
        most = min(start + BLOCK_ENTRIES_MAX, len(packets))
        end = max(start + 1, bisect_right(ends, size + BLOCK_BYTES_MAX, start, most))
        yield run.first + start, packets[start:end]
        if end >= len(packets):
            return
        start, size = end, ends[end - 1]


def _read_group(file: LogFile, group: list[Location]) -> Iterator[list[bytes | None]]:
    """Packets of each block; of the first one alone if the disk gives no more. Raises DamagedBlock,
    OSError.
    """
    base = group[0].offset
    try:
        data = file.read(sum(location.size_bytes for location in group), base)
    except OSError:
        if len(group) == 1:
            raise
        group = group[:1]
        data = file.read(group[0].size_bytes, base)
    for location in group:
        yield parse_block(data, location.offset - base, location, file.salt)


def _whole_parts(first: int, packets: list[bytes | None]) -> Iterator[CachedBlock]:
    """Runs of undamaged entries of a block."""
    run: list[bytes] = []
    for index, packet in enumerate(packets):
        if packet is not None:
            run.append(packet)
        elif run:
            yield CachedBlock(first + index - len(run), run, sum(map(len, run)))
            run = []
    if run:
        yield CachedBlock(first + len(packets) - len(run), run, sum(map(len, run)))


def _holds(blocks: list[CachedBlock], entry_id: int) -> bool:
    return any(block.first <= entry_id < block.first + len(block.packets) for block in blocks)
