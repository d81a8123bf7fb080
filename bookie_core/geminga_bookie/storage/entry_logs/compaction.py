"""Rewriting a log's live blocks into a new one (spec BK-06); a crash at any step loses nothing.

1. live blocks are copied into `N.compacting`, which is synced and sealed;
2. it is renamed to `N.log`; its header names the log it came from;
3. one index batch moves all its blocks;
4. the old log is removed.
After a crash, the next start removes: before 2 the draft; between 2 and 3 the new log, as the index
still points to the old one; after 3 the old one. What may be no rest of a compaction stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from geminga_bookie.storage.entry_logs.files import COMPACTING_SUFFIX, EntryLogs, EntryLogWriter
from geminga_bookie.storage.entry_logs.format import (
    KIND_ENTRIES,
    KIND_LEDGER,
    BlockHead,
    DamagedBlock,
    for_other_log,
)
from geminga_bookie.storage.entry_logs.reading import (
    LogFile,
    blocks_within,
    check_version,
    end_of_unsealed,
    is_sealed,
    location_of,
    map_at,
    map_in,
    packets_at,
    parse_block,
    scan_blocks,
)
from geminga_bookie.storage.location_index import Location, LocationIndex

logger = logging.getLogger(__name__)

Throttle = Callable[[int], None]
"""Called with the number of copied bytes; may sleep, and may raise CompactionStopped."""


class CompactionStopped(Exception):
    """Raised by a throttle: the bookie is stopping."""


class LogDamaged(Exception):
    """The log has unreadable places: its removal could lose what the index has there, or a ledger's
    record."""


class CompactionUnfinished(Exception):
    """The copy is there, but the index may name its source, or that can't be removed: both stay
    until the next start.
    """

    def __init__(self, error: OSError, copy_id: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.copy_id = copy_id


def compact_log(logs: EntryLogs, index: LocationIndex, log_id: int, throttle: Throttle) -> int:
    """Move live blocks out of a log, and remove it; returns the moved bytes. Blocks. Raises
    LogDamaged (the log is unchanged), CompactionUnfinished, OSError."""
    # Whether a write that failed took effect is known once the index is opened again, which the
    # next write does: before that it may not name what it has.
    index.write()
    unreadable: list[range] = []
    with logs.reading(log_id) as file:
        record_ids = _checked(file, index, log_id, unreadable)
    writer = EntryLogWriter(logs, compacted_from=log_id, suffix=COMPACTING_SUFFIX)
    old: list[Location] = []
    new: list[Location] = []
    now_unreadable: list[range] = []
    try:
        with logs.reading(log_id) as file:
            for location, data in _live_blocks(file, index, log_id, writer.salt, now_unreadable):
                old.append(location)
                new.append(
                    writer.append_raw(
                        [data], len(data), location.ledger_id, location.first, location.entries
                    )
                )
                throttle(len(data))
        if now_unreadable != unreadable:
            raise LogDamaged(f"{logs.path(log_id)}, while it was copied")
        for ledger_id in record_ids:
            record = index.ledger(ledger_id)
            if record is not None:
                writer.append(KIND_LEDGER, ledger_id, 0, [record.encode()])
        kept = writer.size_bytes
        writer.seal()
    except BaseException:
        writer.abandon()
        logs.disk.remove(writer.path)
        raise
    try:
        logs.disk.rename(writer.path, logs.path(writer.log_id))
        logs.disk.sync_directory(logs.directory)
        logs.created(writer.log_id)
        index.write(locations=new, removed=old)
        logs.remove(log_id)
    except OSError as error:
        raise CompactionUnfinished(error, writer.log_id) from error
    return kept


def _checked(
    file: LogFile, index: LocationIndex, log_id: int, unreadable: list[range]
) -> list[int]:
    """Ledgers whose record may be in a log, which is known before much is copied in vain. Raises
    LogDamaged, OSError.
    """
    record_ids = _ledgers_in(file, unreadable)
    if unreadable:
        record_ids = _all_ledgers_in(file, unreadable)
    for location in blocks_within(index, log_id, unreadable + end_of_unsealed(file)):
        raise LogDamaged(f"{file.path} at {location.offset}")
    return record_ids


def _live_blocks(
    file: LogFile, index: LocationIndex, log_id: int, salt: bytes, unreadable: list[range]
) -> Iterator[tuple[Location, bytes]]:
    """Blocks that the index points to, for a log of that salt: a damaged entry stays a damaged
    entry."""
    for offset, head in scan_blocks(file, unreadable):
        if _is_of_entries(head):
            location = location_of(head, log_id, offset)
            if index.contains(location):
                yield location, for_other_log(head, file.read(head.total_bytes, offset), salt)


def _ledgers_in(file: LogFile, unreadable: list[range] | None = None) -> list[int]:
    heads = (head for _, head in scan_blocks(file, unreadable))
    return sorted({head.ledger_id for head in heads if _is_record(head)})


def _all_ledgers_in(file: LogFile, unreadable: list[range]) -> list[int]:
    """All whose record may be in a log with unreadable places. Raises LogDamaged if that isn't
    known, OSError.
    """
    known = map_in(file)
    if known is not None:
        return sorted(known)
    map_begins = map_at(file)
    is_whole = file.header is not None and unreadable[0].stop >= file.size()
    if not is_whole or (map_begins is not None and unreadable[0].start < map_begins):
        raise LogDamaged(f"{file.path} at {unreadable[0].start}, and it has no ledger map")
    return _ledgers_in(file)  # only its end was cut off, of which nothing was promised


def finish_compactions(logs: EntryLogs, index: LocationIndex | None) -> set[int]:
    """After a crash, remove drafts, and of a log and its compacted form the one that the index
    doesn't use, if the other is what it was made of.

    Without an index (which is to be rebuilt) the old one is kept. Returns logs that can't be told
    apart now, as the disk or the index fails: they are not to be compacted, which drops what the
    index doesn't name. Raises DataDirError for logs of another version, OSError.
    """
    for name in logs.disk.names(logs.directory):
        if name.endswith(COMPACTING_SUFFIX):
            logs.disk.remove(logs.directory / name)
    ids = {*logs.ids()}
    with_source = [log_id for log_id in sorted(ids) if _source_of(logs, log_id) != 0]
    undecided: set[int] = set()
    # Which headers count is certain only now, with the last log of version 1 known.
    for log_id in with_source:
        source = _source_of(logs, log_id)
        if source is None:  # any log before it may be the one
            undecided.update(each for each in ids if each <= log_id)
            continue
        if not source or not {source, log_id} <= ids:
            continue
        try:
            useless = _useless(logs, index, log_id, source)
        except OSError as error:
            logger.error("%s and its source are kept: %s", logs.path(log_id), error)
            undecided |= {source, log_id}
            continue
        if useless is None:
            logger.warning(
                "%s was compacted from %s, which is another log now, or is needed too: both stay",
                logs.path(log_id),
                logs.path(source),
            )
            continue
        logger.warning("%s: left over from an interrupted compaction, removed", logs.path(useless))
        try:
            logs.remove(useless)
        except OSError as error:  # the index has what is to be read
            logger.error("%s can't be removed: %s", logs.path(useless), error)
        ids.discard(useless)
    return undecided


def _source_of(logs: EntryLogs, log_id: int) -> int | None:
    """The number of the log that it was compacted from, an earlier one; 0 if none is known, None if
    that can't be read now. Raises DataDirError.
    """
    try:
        with logs.reading(log_id) as file:
            header = check_version(file)
    except OSError as error:
        logger.error("the header of an entry log can't be read: %s", error)
        return None
    if header is not None and header.version == 1:
        logs.found_unsalted(log_id)
    if header is None or header.log_id != log_id or header.compacted_from >= log_id:
        return 0
    return header.compacted_from


def _useless(logs: EntryLogs, index: LocationIndex | None, log_id: int, source: int) -> int | None:
    """Which of a log and its source can go, if any. Raises OSError."""
    is_named = index is not None and _is_indexed(logs, index, log_id)
    if index is not None and not is_named and _names_better(logs, index, source, log_id):
        return None
    if not _has_blocks_of(logs, log_id, source):
        return None
    if index is None:
        return log_id if _replaces_all(logs, log_id, source) else None
    if not is_named:
        return log_id
    if _is_indexed(logs, index, source) or _names_better(logs, index, log_id, source):
        return None
    with logs.reading(log_id) as file:
        if not _has_whole_records(file):
            return None
    # Syncs the batch that moved the blocks: else a loss of power could bring back what names the
    # old log.
    index.write(completes=True)
    return source


def _names_better(logs: EntryLogs, index: LocationIndex, used: int, other: int) -> bool:
    """Whether something in a log that the index names is worse than in the other one. Such blocks
    it names in both from then on, in one batch: half of them would look like all. What a disk
    doesn't give now may be worse, or better. Raises OSError.
    """
    with logs.reading(used) as named, logs.reading(other) as unnamed:
        worse = {
            location[:2] + location[4:]: damaged
            for location in index.in_log(used)
            if (damaged := _damaged_entries(named, location, unread=location.entries))
        }
        better = []
        for offset, head in scan_blocks(unnamed) if worse else ():
            location = location_of(head, other, offset)
            lost = worse.get(location[:2] + location[4:]) if _is_of_entries(head) else None
            if lost and lost - _damaged_entries(unnamed, location, unread=0):
                better.append(location)
        if better:
            logger.error("%s is damaged: %s has what it lost", named.path, unnamed.path)
            index.write(better)
        return bool(better)


def _damaged_entries(file: LogFile, location: Location, *, unread: int) -> set[int]:
    """Their numbers in the block; so many of one that the disk doesn't give now."""
    try:
        data = file.read(location.size_bytes, location.offset)
        packets = parse_block(data, 0, location, file.salt)
    except DamagedBlock:
        return set(range(location.entries))
    except OSError:
        return set(range(unread))
    return {number for number, packet in enumerate(packets) if packet is None}


def _has_whole_records(file: LogFile) -> bool:
    """Whether what a sealed log has beside entries can be read, for when the index is lost."""
    unreadable: list[range] = []
    found = {head.ledger_id for _, head in scan_blocks(file, unreadable) if _is_record(head)}
    return not unreadable and is_sealed(file) and found == {*_whole_records_in(file)}


def _is_of_entries(head: BlockHead) -> bool:
    return head.kind == KIND_ENTRIES


def _is_record(head: BlockHead) -> bool:
    return head.kind == KIND_LEDGER


def _is_indexed(logs: EntryLogs, index: LocationIndex, log_id: int) -> bool:
    """Whether the index names a block of the log. The batch of step 3 is atomic: it moved all or
    none. Raises OSError.
    """
    unreadable: list[range] = []
    with logs.reading(log_id) as file:
        for offset, head in scan_blocks(file, unreadable):
            if _is_of_entries(head) and index.contains(location_of(head, log_id, offset)):
                return True
        unreadable += end_of_unsealed(file)
    return any(True for _ in blocks_within(index, log_id, unreadable))


def _has_blocks_of(logs: EntryLogs, log_id: int, source: int) -> bool:
    """Whether all blocks of a log are in its source too, in the same order. Raises OSError."""
    with logs.reading(source) as whole, logs.reading(log_id) as part:
        blocks = _entry_blocks(whole)
        return all(head in blocks for head in _entry_blocks(part)) and whole.header is not None


def _replaces_all(logs: EntryLogs, log_id: int, source: int) -> bool:
    """Whether the source is undamaged, and has a record of each ledger of which the log has one: an
    index that is made anew needs the log no more. Raises OSError.
    """
    with logs.reading(source) as whole, logs.reading(log_id) as part:
        return _is_undamaged(whole) and {*_ledgers_in(part)} <= {*_whole_records_in(whole)}


def _is_undamaged(file: LogFile) -> bool:
    unreadable: list[range] = []
    try:
        return (
            not any(None in packets_at(file, *found) for found in scan_blocks(file, unreadable))
            and not unreadable
        )
    except DamagedBlock:
        return False


def _entry_blocks(file: LogFile) -> Iterator[BlockHead]:
    return (head for _, head in scan_blocks(file) if _is_of_entries(head))


def _whole_records_in(file: LogFile) -> Iterator[int]:
    for offset, head in scan_blocks(file):
        if _is_record(head):
            with suppress(DamagedBlock):
                if packets_at(file, offset, head)[0] is not None:
                    yield head.ledger_id
