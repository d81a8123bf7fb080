"""Reading entries whole (spec SDK-28)."""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby

from geminga._consuming.partition_consumer import PartitionConsumer
from geminga._consuming.receiving import Receiving
from geminga._entries.entry import Source
from geminga.entry_batch import EntryBatch
from geminga.message import Message
from geminga_protocol.message_id import MessageId


async def read_batches(
    receiving: Receiving, bytes_max: float, timeout_s: float | None
) -> list[EntryBatch]:
    """The entries that are there once any is; none if none came in time. Raises what
    `Consumer.receive` does otherwise.
    """
    entries = await receiving.receive_entries(bytes_max, timeout_s)
    # So that the broker's figures tell how far the reader is.
    last: dict[Source, EntryBatch] = {each._entry.source: each for each in entries}
    for source, entry in last.items():
        assert isinstance(source, PartitionConsumer)
        place = MessageId(entry.ledger_id, entry.entry_id, entry.partition)
        source.acknowledger.acknowledge_cumulative(place)
    return entries


def parts_of(messages: list[Message]) -> list[EntryBatch]:
    """Messages that were taken one by one, as parts of their entries."""
    return [
        EntryBatch(entry, [each._index for each in run])
        for entry, run in groupby(messages, lambda each: each._entry)
    ]


def messages_of(received: EntryBatch) -> list[Message]:
    """An entry's messages one by one."""
    entry = received._entry
    return [Message(entry, n) for n in received.indexes]


def received_ids(receiving: Receiving) -> list[MessageId]:
    """The entry that came last of each partition. Any thread may ask."""
    return [MessageId(*part.received_to, part.partition) for part in receiving.parts.each]


def take_incomplete(receiving: Receiving) -> list[MessageId]:
    """Last chunks of messages that couldn't be put together; they are told once. Any thread may
    ask.
    """
    found: list[MessageId] = []
    for part in receiving.parts.each:
        incomplete = part.acknowledger.chunks.incomplete
        with suppress(IndexError):
            # Another thread may take some at the same time.
            for _ in range(len(incomplete)):
                found.append(MessageId(*incomplete.popleft(), part.partition))
    return found
