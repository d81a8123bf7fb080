"""Acknowledged messages, grouped by entry."""

from __future__ import annotations

from typing import TypeAlias

from geminga._consuming.partition_consumer import PartitionConsumer
from geminga.message import Message
from geminga_protocol.message_id import MessageId

MessageOrId: TypeAlias = Message[object] | MessageId
Run: TypeAlias = tuple[PartitionConsumer, MessageOrId, list[int]]
"""A message, and the batch indexes to acknowledge in its entry; no indexes with an id."""


def note_runs(runs: list[Run]) -> None:
    """Pass them to their partitions' acknowledgers, in order; called in the loop."""
    for part, message, indexes in runs:
        if isinstance(message, Message):
            part.acknowledger.acknowledge_run(message._entry, indexes)
        else:
            part.acknowledger.acknowledge_id(message)


def id_of(message: MessageOrId) -> MessageId:
    """The message's id, or the id itself."""
    return message.message_id if isinstance(message, Message) else message
