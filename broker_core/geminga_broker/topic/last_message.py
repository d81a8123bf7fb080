"""The last message of a topic (spec BR-33, BR-50; Apache's `ServerCnx.handleGetLastMessageId`)."""

from __future__ import annotations

from geminga_broker.compaction.batches import last_index
from geminga_broker.compaction.topic_compaction import TopicCompaction
from geminga_broker.log.api import ManagedLedger
from geminga_broker.topic.api import LastMessage
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import EntryId, Position


async def last_message(
    log: ManagedLedger, compaction: TopicCompaction, partition: int, *, read_compacted: bool
) -> LastMessage:
    """The last message that can be consumed; entry id -1 for an empty topic. Who reads compacted
    gets that of the compacted ledger if there is none behind it. Raises LogReadFailed.
    """
    horizon = compaction.horizon if read_compacted else None
    position = log.last_position
    while position.entry_id >= 0 and (horizon is None or position > horizon):
        found = await log.read_range(position, entries_max=1, bytes_max=1)
        if not found:
            break
        try:
            metadata = found[0].metadata
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
    return LastMessage(Position(position.ledger_id, EntryId(-1)), -1, partition, None)
