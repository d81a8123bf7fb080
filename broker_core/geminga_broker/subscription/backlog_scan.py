"""What a subscription's backlog has, by reading it (spec OP-04; Apache's
`PersistentSubscription.analyzeBacklog`). Nothing is moved or acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import trio

from geminga_broker.log.api import Cursor, Entry, ManagedLedger
from geminga_broker.subscription.entry_filters import (
    EntryFilter,
    FilterContext,
    FilterCounts,
    judge,
)
from geminga_protocol.ids import Position

READ_ENTRIES = 100
READ_BYTES = 1 << 20


@dataclass(slots=True)
class BacklogScan:
    """Counts of entries and messages, by what the filters say of them; `aborted` if there was more
    than the scan may read. Field names are those of Apache's `AnalyzeSubscriptionBacklogResult`.
    """

    entries: int = 0
    messages: int = 0
    filter_rejected_entries: int = 0
    filter_accepted_entries: int = 0
    filter_rescheduled_entries: int = 0
    filter_rejected_messages: int = 0
    filter_accepted_messages: int = 0
    filter_rescheduled_messages: int = 0
    aborted: bool = False
    first: Position | None = None
    last: Position | None = None

    def add(
        self, entries: Sequence[Entry], filters: Sequence[EntryFilter], context: FilterContext
    ) -> None:
        """Count some entries."""
        counts = FilterCounts()
        judged = judge(filters, entries, context, counts)
        self.entries += len(entries)
        self.messages += counts.processed
        self.filter_accepted_entries += len(judged.accepted)
        self.filter_rejected_entries += len(judged.rejected)
        self.filter_rescheduled_entries += len(judged.rescheduled)
        self.filter_accepted_messages += counts.accepted
        self.filter_rejected_messages += counts.rejected
        self.filter_rescheduled_messages += counts.rescheduled
        if entries:
            self.first = self.first or entries[0].position
            self.last = entries[-1].position


async def scan_backlog(
    log: ManagedLedger,
    cursor: Cursor,
    start: Position | None,
    filters: Sequence[EntryFilter],
    context: FilterContext,
    *,
    entries_max: int,
    time_max_s: float,
) -> BacklogScan:
    """Read the unacknowledged entries from `start` on, or from the first one. Other tasks run
    between reads. Raises LogReadFailed.
    """
    scan = BacklogScan()
    ends = trio.current_time() + time_max_s
    position = start or log.next_position(cursor.mark_delete)
    while True:
        room = entries_max - scan.entries
        found = await log.read_range(
            position, entries_max=min(READ_ENTRIES, max(room, 1)), bytes_max=READ_BYTES
        )
        left = [entry for entry in found if not cursor.is_deleted(entry.position)]
        if not found:
            return scan
        if (left and room <= 0) or trio.current_time() > ends:
            scan.aborted = True
            return scan
        scan.add(left, filters, context)
        position = log.next_position(found[-1].position)
        await trio.lowlevel.checkpoint()
