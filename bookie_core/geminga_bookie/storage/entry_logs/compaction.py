"""Rewriting a log's live blocks into a new one (spec BK-06); a crash at any step loses nothing.

1. live blocks are copied into `N.compacting`, which is synced and sealed;
2. it is renamed to `N.log`; its header names the log it came from;
3. one index batch moves all its blocks;
4. the old log is removed.
After a crash, the next start removes: before 2 the draft; between 2 and 3 the new log, as the index
still points to the old one; after 3 the old one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from geminga_bookie.storage.entry_logs.files import COMPACTING_SUFFIX, EntryLogs, EntryLogWriter
from geminga_bookie.storage.entry_logs.format import KIND_ENTRIES, KIND_LEDGER, for_other_log
from geminga_bookie.storage.entry_logs.reading import (
    LogFile,
    blocks_within,
    check_version,
    end_of_unsealed,
    location_of,
    scan_blocks,
)
from geminga_bookie.storage.location_index import Location, LocationIndex

logger = logging.getLogger(__name__)

Throttle = Callable[[int], None]
"""Called with the number of copied bytes; may sleep, and may raise CompactionStopped."""


class CompactionStopped(Exception):
    """Raised by a throttle: the bookie is stopping."""


class LogDamaged(Exception):
    """The index has unreadable blocks in the log: its removal would lose them."""


def compact_log(logs: EntryLogs, index: LocationIndex, log_id: int, throttle: Throttle) -> int:
    """Move live blocks out of a log, and remove it; returns the moved bytes. Blocks. Raises
    LogDamaged (the log is unchanged), OSError."""
    writer = EntryLogWriter(logs, compacted_from=log_id, suffix=COMPACTING_SUFFIX)
    old: list[Location] = []
    new: list[Location] = []
    unreadable: list[range] = []
    try:
        with logs.reading(log_id) as file:
            for location, data in _live_blocks(file, index, log_id, writer.salt, unreadable):
                old.append(location)
                new.append(
                    writer.append_raw(
                        [data], len(data), location.ledger_id, location.first, location.entries
                    )
                )
                throttle(len(data))
            unreadable += end_of_unsealed(file)
            for location in blocks_within(index, log_id, unreadable):
                raise LogDamaged(f"{logs.path(log_id)} at {location.offset}")
            for ledger_id in _ledgers_in(file):
                record = index.ledger(ledger_id)
                if record is not None:
                    writer.append(KIND_LEDGER, ledger_id, 0, [record.encode()])
        kept = writer.size_bytes
        writer.seal()
    except BaseException:
        writer.abandon()
        logs.disk.remove(writer.path)
        raise
    logs.disk.rename(writer.path, logs.path(writer.log_id))
    logs.disk.sync_directory(logs.directory)
    logs.created(writer.log_id)
    index.write(locations=new, removed=old)
    logs.remove(log_id)
    return kept


def _live_blocks(
    file: LogFile, index: LocationIndex, log_id: int, salt: bytes, unreadable: list[range]
) -> Iterator[tuple[Location, bytes]]:
    """Blocks that the index points to, for a log of that salt: a damaged entry stays a damaged
    entry."""
    for offset, head in scan_blocks(file, unreadable):
        if head.kind == KIND_ENTRIES:
            location = location_of(head, log_id, offset)
            if index.contains(location):
                yield location, for_other_log(head, file.read(head.total_bytes, offset), salt)


def _ledgers_in(file: LogFile) -> list[int]:
    ids = {head.ledger_id for _, head in scan_blocks(file) if head.kind == KIND_LEDGER}
    return sorted(ids)


def finish_compactions(logs: EntryLogs, index: LocationIndex | None) -> None:
    """After a crash, remove drafts, and of a log and its compacted form the one that the index
    doesn't use.

    Without an index (which is to be rebuilt) the old one is kept. Raises DataDirError for logs of
    another version.
    """
    for name in logs.disk.names(logs.directory):
        if name.endswith(COMPACTING_SUFFIX):
            logs.disk.remove(logs.directory / name)
    for log_id in logs.ids():
        with logs.reading(log_id) as file:
            source = check_version(file)
            if not source or source not in logs.ids():
                continue
            moved = index is not None and _is_indexed(file, index, log_id)
        if moved and index is not None:
            # Syncs that batch too: else a loss of power could bring back what names the old log.
            index.write(completes=True)
        useless = source if moved else log_id
        path = logs.path(useless)
        logger.warning("%s: left over from an interrupted compaction, removed", path)
        logs.remove(useless)


def _is_indexed(file: LogFile, index: LocationIndex, log_id: int) -> bool:
    """Whether the index batch of step 3 was written: it is atomic, so one block is enough."""
    for offset, head in scan_blocks(file):
        if head.kind == KIND_ENTRIES and index.contains(location_of(head, log_id, offset)):
            return True
    return False
