"""Opening an index, and rebuilding a lost one, or one with damage, from the entry logs (spec BK-04,
BK-11).
"""

from __future__ import annotations

import errno
import logging
import os
import traceback
from collections.abc import Callable, Sequence
from enum import Enum, auto
from pathlib import Path

from geminga_bookie.errors import DataDirError
from geminga_bookie.lac import explicit_lac
from geminga_bookie.storage.disk import Disk, read_file, replace_file
from geminga_bookie.storage.entry_logs.files import EntryLogs
from geminga_bookie.storage.entry_logs.format import (
    KIND_ENTRIES,
    KIND_LEDGER,
    BlockHead,
    DamagedBlock,
)
from geminga_bookie.storage.entry_logs.reading import (
    LogFile,
    check_version,
    is_sealed,
    is_unknown,
    location_of,
    may_hide_blocks,
    packets_at,
    scan_blocks,
)
from geminga_bookie.storage.key_value import KeyValueStores
from geminga_bookie.storage.location_index import (
    DAMAGE,
    IndexDamaged,
    LedgerRecord,
    Location,
    LocationIndex,
    unsound_mark,
)

logger = logging.getLogger(__name__)

BATCH_BLOCKS_MAX = 4096
DAMAGES_PER_LOG_MAX = 100
ORDER = b"rebuild\n"
"""In the mark of an index that lacks something, and isn't known to be damaged."""


class Marked(Enum):
    """What a start does with an index, by the mark beside it."""

    NOT = auto()
    DAMAGED = auto()
    """It goes on with it, though it is damaged."""
    LACKING = auto()
    """It goes on with it, though it lacks something."""
    ORDERED = auto()
    """It rebuilds it."""


def open_index(disk: Disk, stores: KeyValueStores, path: Path) -> LocationIndex:
    """Open an index, or make one. Raises IndexDamaged, DataDirError, OSError."""
    names = disk.names(path)
    if "CURRENT" not in names and any(name.endswith((".sst", ".log")) for name in names):
        # RocksDB refuses it, but leaves a new list: next time it has the log's content only.
        raise IndexDamaged(f"{path} has no CURRENT", path)
    try:
        index = LocationIndex(path, stores=stores)
    except Exception as error:  # rocksdict raises bare Exceptions
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, f"{path} can't be opened: {error}") from error
        is_part_missing = bool(names) and os.strerror(errno.ENOENT) in str(error)
        if DAMAGE not in str(error) and not is_part_missing:
            raise DataDirError(f"{path} can't be opened: {error}") from error
        raise IndexDamaged(str(error), path) from error
    try:
        if not index.version_is_ours():
            raise DataDirError(f"{path} is of another version")
    except BaseException:
        index.close()
        raise
    return index


def begin_rebuild(logs: EntryLogs, index: LocationIndex) -> None:
    """From now on the index is not complete. Unless a log can't be read: then it stays as it is, as
    without it nothing could be read of the other logs either. Raises DataDirError, OSError.
    """
    if index.is_complete():
        check_logs(logs)
        index.require_rebuild()


def check_logs(logs: EntryLogs) -> None:
    """Whether a rebuild can read all that it needs. Raises DataDirError, OSError."""
    for log_id in logs.ids():
        with logs.reading(log_id) as file:
            check_version(file)
            for offset, head in scan_blocks(file):
                if head.kind == KIND_LEDGER:
                    file.read(head.total_bytes, offset)
            is_sealed(file)  # which a rebuild asks too
            if is_unknown(file):
                logs.check_note()


def can_rebuild(disk: Disk, directory: Path, index_path: Path) -> bool:
    """Whether all logs can be read; an error is logged. If not, an index that should be made anew
    had better stay: without it nothing could be read of the other logs either.
    """
    logs = EntryLogs(disk, directory)
    try:
        check_logs(logs)
    except (DataDirError, OSError) as error:
        logger.error(
            "%s is damaged or lacks something, but an entry log can't be read, so it isn't "
            "rebuilt: %s; as long as it can be used the bookie goes on with it, and compacts "
            "nothing. Bring the log back, or give it up (docs/OPERATIONS.md, An entry log that was "
            "set aside), and start the bookie again",
            index_path,
            error,
        )
        return False
    finally:
        logs.close()
    return True


def is_marked(disk: Disk, path: Path) -> bool:
    """Whether an index is known to be damaged, or to lack something. Raises OSError."""
    return unsound_mark(path).name in disk.names(path.parent)


def order_rebuild(disk: Disk, path: Path) -> None:
    """Have a start that can read all logs rebuild an index, which is in use until then. It is
    rebuilt where it is: what no log has of a ledger stays. Durable. Raises OSError.
    """
    replace_file(disk, unsound_mark(path), ORDER)


def heed_mark(disk: Disk, directory: Path, path: Path) -> Marked:
    """Also puts a damaged index aside if all logs of `directory` can be read. Raises OSError: what
    a mark says that can't be read isn't guessed, for an index that only lacks something has what
    no log has.
    """
    if not is_marked(disk, path):
        return Marked.NOT
    lacks_only = read_file(disk, unsound_mark(path)) == ORDER
    if not can_rebuild(disk, directory, path):
        return Marked.LACKING if lacks_only else Marked.DAMAGED
    if lacks_only:
        return Marked.ORDERED
    put_aside(disk, path, "the bookie met damage in it while it ran")
    return Marked.NOT


def remove_mark(disk: Disk, path: Path) -> None:
    """The index is rebuilt. Durable. Raises OSError."""
    if is_marked(disk, path):
        disk.remove(unsound_mark(path))
        disk.sync_directory(path.parent)


def give_way(disk: Disk, directory: Path, damage: IndexDamaged) -> bool:
    """What a start does with an index whose damage it met: put it aside if all logs of `directory`
    can be read, otherwise mark it. It is let go already. Returns whether it is put aside. Raises
    OSError.
    """
    if can_rebuild(disk, directory, damage.directory):
        put_aside(disk, damage.directory, damage)
        return True
    replace_file(disk, unsound_mark(damage.directory), b"")
    return False


def let_go(error: OSError) -> None:
    """RocksDB stays locked as long as there is a cursor: who met the error, as damage, has one."""
    for each in (error, error.__cause__):
        traceback.clear_frames(each.__traceback__ if each else None)


def put_aside(disk: Disk, path: Path, why: object) -> None:
    """Let a damaged index be rebuilt: rename it, durably. The mark goes last: a start after a kill
    before that puts a young index aside. Raises OSError.
    """
    names = disk.names(path.parent)
    aside = path.with_name(f"{path.name}.damaged")
    while aside.name in names:
        aside = aside.with_name(aside.name + "_")
    if path.name in names:
        disk.rename(path, aside)
        disk.sync_directory(path.parent)
        logger.error("%s is damaged (%s): put aside as %s, rebuilding", path, why, aside.name)
    disk.remove(unsound_mark(path))
    disk.sync_directory(path.parent)


def rebuild_index(
    logs: EntryLogs,
    index: LocationIndex,
    on_damage: Callable[[Sequence[str]], None],
    *,
    in_doubt: bool = False,
) -> int:
    """Write every whole block's location and every ledger's record into an index that isn't
    complete (see `begin_rebuild`); returns the number of blocks.

    Records of one ledger are merged, also with the index's remaining ones; monotonic values (fence,
    LACs) keep their maximum. Deleted ledgers reappear, and are collected again. Only the last batch
    marks the index as complete: after a kill before it, the next start repeats everything.
    `in_doubt` puts all ledgers into limbo, as that may have been recorded in the lost index only.
    `on_damage` is told before that batch what of the logs can't be read: nobody knows whose entries
    stood there. Of logs without a header nothing is known any more; they are set aside. Records
    behind damage in a log of version 1 may be a client's, and count as damaged. Raises
    DataDirError, OSError.
    """
    index.clear_locations()
    records = {record.ledger_id: record for record in index.ledgers()}
    batch: list[Location] = []
    damages: list[str] = []
    unknown: list[int] = []
    count = 0
    for log_id in logs.ids():
        unreadable: list[range] = []
        with logs.reading(log_id) as file:
            check_version(file)
            for offset, head in scan_blocks(file, unreadable):
                if head.kind == KIND_ENTRIES:
                    if len(batch) >= BATCH_BLOCKS_MAX:
                        index.write(batch)
                        batch = []
                    batch.append(location_of(head, log_id, offset))
                    count += 1
                    if head.ledger_id not in records:
                        records[head.ledger_id] = _unknown(head.ledger_id)
                elif head.kind == KIND_LEDGER and (
                    may_hide_blocks(file, unreadable) or not _merge(records, file, offset, head)
                ):
                    damages.append(f"{file.path}: the record of ledger {head.ledger_id} is damaged")
            damages += _damages(file, unreadable)
            if is_unknown(file):
                unknown.append(log_id)
    index.write(batch)
    if unknown:
        logs.check_note()
    if damages:
        on_damage(damages)
    for log_id in unknown:
        logger.error("nothing in %s can be found any more", logs.set_aside(log_id))
    if in_doubt:
        for ledger_id, record in records.items():
            records[ledger_id] = record._replace(limbo=True, fenced=True)
    index.write(records=records.values(), completes=True)
    logger.warning("%s: index rebuilt, %d blocks, %d ledgers", logs.directory, count, len(records))
    return count


def _damages(file: LogFile, unreadable: Sequence[range]) -> list[str]:
    """What a log's unreadable parts are, for people. The end of one that isn't sealed is no damage:
    what a crash cut short was never promised."""
    end = -1 if is_unknown(file) or is_sealed(file) else file.size()
    return [
        f"{file.path} can't be read at {places.start} to {places.stop}"
        for places in unreadable[:DAMAGES_PER_LOG_MAX]
        if places.stop != end
    ]


def _unknown(ledger_id: int) -> LedgerRecord:
    return LedgerRecord(ledger_id, b"", False, False, b"")


def _merge(records: dict[int, LedgerRecord], file: LogFile, offset: int, head: BlockHead) -> bool:
    """Returns False if the record is damaged."""
    try:
        packet = packets_at(file, offset, head)[0]
    except DamagedBlock:
        packet = None
    if packet is None:
        return False
    new = LedgerRecord.decode(head.ledger_id, packet)
    old = records.get(head.ledger_id, _unknown(head.ledger_id))
    records[head.ledger_id] = LedgerRecord(
        head.ledger_id,
        new.master_key or old.master_key,
        new.fenced or old.fenced,
        new.limbo or old.limbo,
        max(new.explicit_packet, old.explicit_packet, key=explicit_lac),
    )
    return True
