"""The last message of a persistent topic, and the state of its log (spec BR-33, BR-50, OP-04;
Apache's `ServerCnx.handleGetLastMessageId`, `/internalStats`).
"""

from __future__ import annotations

from collections.abc import Mapping

from geminga_broker.compaction.batches import last_index
from geminga_broker.compaction.topic_compaction import TopicCompaction
from geminga_broker.log.api import ManagedLedger
from geminga_broker.subscription.subscription import Subscription
from geminga_broker.topic.api import LastMessage
from geminga_broker.topic.stats import CursorStats, InternalStats, LedgerInfo, iso_time
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_runtime.clock import wall_clock_ms


async def last_message(
    log: ManagedLedger, compaction: TopicCompaction, partition: int, *, read_compacted: bool
) -> LastMessage:
    """The last message that can be consumed; entry id -1 for an empty topic. With `read_compacted`,
    the compacted ledger's if there is none after it. Raises LogReadFailed.
    """
    horizon = compaction.horizon if read_compacted else None
    position = log.last_position
    while position.entry_id >= 0 and (horizon is None or position > horizon):
        found = await log.read_range(position, entries_max=1, bytes_max=1)
        if not found:
            break
        try:
            metadata = found[0].head
        except RemoteProtocolError:
            return LastMessage(position, -1, partition, None)
        if not metadata.HasField("marker_type"):
            batch = metadata.HasField("num_messages_in_batch")
            last = metadata.num_messages_in_batch - 1 if batch else -1
            return LastMessage(position, last, partition, None)
        position = log.previous_position(position)
    if horizon is not None:
        entry = await compaction.last_entry()
        if entry is not None:
            return LastMessage(entry.position, last_index(entry), partition, None)
    return LastMessage(Position(position.ledger_id, -1), -1, partition, None)


_STATES = {
    "open": "LedgerOpened",
    "rolling": "CreatingLedger",
    "no ledger": "ClosedLedger",
    "terminated": "Terminated",
    "fenced": "Fenced",
    "closed": "Closed",
}


def internal_stats(
    log: ManagedLedger, entries_added: int, subscriptions: Mapping[str, Subscription]
) -> InternalStats:
    """Apache's `PersistentTopicInternalStats` of a loaded topic."""
    found = log.statistics()
    ledgers = [
        LedgerInfo(ledger_id=ledger.ledger_id, entries=ledger.entries, size=ledger.size_bytes)
        for ledger in found.ledgers
    ]
    current = ledgers[-1] if ledgers else LedgerInfo()
    return InternalStats(
        entries_added_counter=entries_added,
        number_of_entries=found.entries,
        total_size=found.size_bytes,
        current_ledger_entries=current.entries,
        current_ledger_size=current.size,
        last_ledger_created_timestamp=iso_time(wall_clock_ms() - int(found.opened_s_ago * 1000)),
        waiting_cursors_count=sum(1 for each in subscriptions.values() if _waits(each)),
        last_confirmed_entry=str(found.last_position),
        state=_STATES.get(found.state, found.state),
        ledgers=ledgers,
        cursors={name: _cursor_stats(log, each) for name, each in subscriptions.items()},
    )


def _waits(subscription: Subscription) -> bool:
    """Whether its consumers have read everything."""
    return bool(subscription.consumers) and not subscription.cursor.available()


def _cursor_stats(log: ManagedLedger, subscription: Subscription) -> CursorStats:
    cursor = subscription.cursor
    found = cursor.statistics()
    since = log.entries_between(found.mark_delete, log.last_position)
    ledger_id, entry_id = found.written or Position(-1, -1)
    return CursorStats(
        mark_delete_position=str(found.mark_delete),
        read_position=str(found.read_position),
        waiting_read_op=_waits(subscription),
        active=bool(subscription.consumers),
        number_of_entries_since_first_not_acked_message=max(0, since),
        total_non_contiguous_deleted_messages_range=found.holes,
        cursor_ledger=ledger_id,
        cursor_ledger_last_entry=entry_id,
        properties=dict(cursor.properties),
    )
