"""Checking entry logs for damage (spec BK-12): every entry is read, what is damaged is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from geminga_bookie.storage.entry_logs.files import EntryLogs
from geminga_bookie.storage.entry_logs.format import KIND_ENTRIES, DamagedBlock
from geminga_bookie.storage.entry_logs.reading import (
    blocks_within,
    end_of_unsealed,
    location_of,
    packets_at,
    parse_block,
    scan_blocks,
)
from geminga_bookie.storage.location_index import Location, LocationIndex

logger = logging.getLogger(__name__)


class DamagedEntry(NamedTuple):
    """An entry with damaged bytes."""

    ledger_id: int
    entry_id: int
    log_id: int


def scrub_log(
    logs: EntryLogs,
    index: LocationIndex,
    log_id: int,
    throttle: Callable[[int], None] = lambda _size_bytes: None,
) -> Iterator[DamagedEntry]:
    """Damaged entries of a log, as they are found. Blocks. Raises OSError.

    A block that isn't in the index is no loss: its flush was repeated after a crash, or another log
    has it now. Nor is one with an intact copy in another log: a rebuilt index also has the blocks
    of such flushes. A block of the index that can't be found is lost with all its entries.
    """
    unreadable: list[range] = []
    with logs.reading(log_id) as file:
        for offset, head in scan_blocks(file, unreadable):
            if head.kind != KIND_ENTRIES:
                continue
            damaged = [
                head.first_entry_id + number
                for number, packet in enumerate(packets_at(file, offset, head))
                if packet is None
            ]
            location = location_of(head, log_id, offset)
            if damaged and index.contains(location):
                yield from _damaged(logs, index, location, damaged)
            throttle(head.total_bytes)
        unreadable += end_of_unsealed(file)
    for location in blocks_within(index, log_id, unreadable):
        lost = range(location.first, location.first + location.entries)
        yield from _damaged(logs, index, location, lost)


def _damaged(
    logs: EntryLogs, index: LocationIndex, location: Location, entries: Sequence[int]
) -> list[DamagedEntry]:
    """Those of a block's damaged entries of which there is no other copy."""
    found = [
        DamagedEntry(location.ledger_id, entry_id, location.log_id)
        for entry_id in entries
        if not _has_other_copy(logs, index, location, entry_id)
    ]
    if found:
        ids = str(found[0].entry_id)
        if len(found) > 1:
            ids += f" to {found[-1].entry_id} ({len(found)} entries)"
        logger.error(
            "entry %d:%s in %s is damaged", location.ledger_id, ids, logs.path(location.log_id)
        )
    return found


def _has_other_copy(
    logs: EntryLogs, index: LocationIndex, damaged: Location, entry_id: int
) -> bool:
    """Whether another block has an intact copy of the entry."""
    for other in index.find(damaged.ledger_id, entry_id):
        if other == damaged:
            continue
        try:
            with logs.reading(other.log_id) as file:
                data = file.read(other.size_bytes, other.offset)
                salt = file.salt
            if parse_block(data, 0, other, salt)[entry_id - other.first] is not None:
                return True
        except (DamagedBlock, OSError):
            continue
    return False
