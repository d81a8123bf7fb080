"""Compaction by threshold (spec BR-50; Apache's `PersistentTopic.checkCompaction`)."""

from __future__ import annotations

import trio

from geminga_broker.compaction.topic_compaction import CURSOR
from geminga_broker.policies.quota import backlog_bytes
from geminga_broker.topic.persistent import PersistentTopic


async def compact_if_due(topic: PersistentTopic) -> None:
    """Begin a run once more than the threshold is not compacted."""
    await trio.lowlevel.checkpoint()
    threshold = topic.policies.compaction.threshold_bytes
    if threshold > 0 and not topic.compaction.running and not_compacted_bytes(topic) > threshold:
        topic.compaction.trigger()


def not_compacted_bytes(topic: PersistentTopic) -> int:
    """About how much was published since the last compaction."""
    found = topic.log.statistics()
    known = topic.log.cursors.get(CURSOR)
    if known is not None:
        return backlog_bytes(found.ledgers, known.mark_delete)
    marks = [cursor.mark_delete for cursor in topic.log.cursors.values() if cursor.durable]
    return backlog_bytes(found.ledgers, min(marks)) if marks else found.size_bytes
