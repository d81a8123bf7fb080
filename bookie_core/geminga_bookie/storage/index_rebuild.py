"""Rebuilding a lost index from the entry logs (spec BK-04, BK-11)."""

from __future__ import annotations

import logging

from geminga_bookie.lac import explicit_lac
from geminga_bookie.storage.entry_log import EntryLogs, check_version, location_of, scan_blocks
from geminga_bookie.storage.entry_log_format import (
    KIND_ENTRIES,
    KIND_LEDGER,
    BlockHead,
    DamagedBlock,
    check_head,
    decode_entries,
)
from geminga_bookie.storage.location_index import LedgerRecord, Location, LocationIndex

logger = logging.getLogger(__name__)

BATCH_BLOCKS_MAX = 4096


def rebuild_index(logs: EntryLogs, index: LocationIndex, *, in_doubt: bool = False) -> int:
    """Write every whole block's location and every ledger's record; returns the number of blocks.

    Records of one ledger are merged, also with the index's remaining ones; monotonic values (fence,
    LACs) keep their maximum. Deleted ledgers reappear, and are collected again. Only the last batch
    marks the index as complete: after a kill before it, the next start repeats everything.
    `in_doubt` puts all ledgers into limbo, as that may have been recorded in the lost index only.
    Raises DataDirError, OSError.
    """
    index.clear_locations()
    records = {record.ledger_id: record for record in index.ledgers()}
    batch: list[Location] = []
    count = 0
    for log_id in logs.ids():
        with logs.reading(log_id) as file:
            check_version(file, logs.path(log_id))
            for offset, head in scan_blocks(file):
                if head.kind == KIND_ENTRIES:
                    if len(batch) >= BATCH_BLOCKS_MAX:
                        index.write(batch)
                        batch = []
                    batch.append(location_of(head, log_id, offset))
                    count += 1
                    if head.ledger_id not in records:
                        records[head.ledger_id] = _unknown(head.ledger_id)
                elif head.kind == KIND_LEDGER:
                    _merge(records, head, file.read(head.total_bytes, offset))
    index.write(batch)
    if in_doubt:
        for ledger_id, record in records.items():
            records[ledger_id] = record._replace(limbo=True, fenced=True)
    index.write(records=records.values(), completes=True)
    logger.warning("%s: index rebuilt, %d blocks, %d ledgers", logs.directory, count, len(records))
    return count


def _unknown(ledger_id: int) -> LedgerRecord:
    return LedgerRecord(ledger_id, b"", False, False, b"")


def _merge(records: dict[int, LedgerRecord], head: BlockHead, data: bytes) -> None:
    try:
        packet = decode_entries(head, check_head(head, data), data)[0]
    except DamagedBlock:
        packet = None
    if packet is None:
        logger.error("ledger %d: a record of its key and fence is damaged", head.ledger_id)
        return
    new = LedgerRecord.decode(head.ledger_id, packet)
    old = records.get(head.ledger_id, _unknown(head.ledger_id))
    records[head.ledger_id] = LedgerRecord(
        head.ledger_id,
        new.master_key or old.master_key,
        new.fenced or old.fenced,
        new.limbo or old.limbo,
        max(new.explicit_packet, old.explicit_packet, key=explicit_lac),
    )
