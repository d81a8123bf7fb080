"""The scrubber (spec BK-12): checks entries of a log before a client needs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from geminga_bookie.storage.entry_log import EntryLogs, scan_blocks
from geminga_bookie.storage.entry_log_format import KIND_ENTRIES, check_head, decode_entries

logger = logging.getLogger(__name__)


class DamagedEntry(NamedTuple):
    """An entry whose bytes are not what was written."""

    ledger_id: int
    entry_id: int
    log_id: int


def scrub_log(
    logs: EntryLogs, log_id: int, throttle: Callable[[int], None] = lambda _size_bytes: None
) -> Iterator[DamagedEntry]:
    """Damaged entries of a log, as they are found. Blocks. Raises OSError."""
    with logs.reading(log_id) as file:
        for offset, head in scan_blocks(file):
            if head.kind != KIND_ENTRIES:
                continue
            data = file.read(head.total_bytes, offset)
            for index, packet in enumerate(decode_entries(head, check_head(head, data), data)):
                if packet is None:
                    found = DamagedEntry(head.ledger_id, head.first_entry_id + index, log_id)
                    logger.error(
                        "entry %d:%d in entry log %d is damaged",
                        found.ledger_id,
                        found.entry_id,
                        log_id,
                    )
                    yield found
            throttle(head.total_bytes)
