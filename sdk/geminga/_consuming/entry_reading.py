"""Reading whole entries (spec SDK-28)."""

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
    """Wait for an entry, and take all available ones; empty after the timeout. Raises other errors
    of `Consumer.receive`.
    """
    entries = await receiving.receive_entries(bytes_max, timeout_s)
    # So that the broker's statistics show the reader's position.
    last: dict[Source, EntryBatch] = {each._entry.source: each for each in entries}
    for source, entry in last.items():
        assert isinstance(source, PartitionConsumer)
        place = MessageId(entry.ledger_id, entry.entry_id, entry.partition)
        source.acknowledger.acknowledge_cumulative(place)
    return entries


def parts_of(messages: list[Message]) -> list[EntryBatch]:
    """Single messages, as parts of their entries."""
    return [
        EntryBatch(entry, [each._index for each in run])
        for entry, run in groupby(messages, lambda each: each._entry)
    ]


def messages_of(received: EntryBatch) -> list[Message]:
    """An entry's single messages."""
    entry = received._entry
    return [Message(entry, n) for n in received.indexes]


def received_ids(receiving: Receiving) -> list[MessageId]:
    """The last received entry of each partition. Any thread may call this."""
    return [MessageId(*part.received_to, part.partition) for part in receiving.parts.each]


def take_incomplete(receiving: Receiving) -> list[MessageId]:
    """Ids of last chunks of messages that couldn't be assembled; each is returned once. Any thread
    may call this.
    """
    found: list[MessageId] = []
    for part in receiving.parts.each:
        incomplete = part.acknowledger.chunks.incomplete
        with suppress(IndexError):
            # Another thread may take some concurrently.
            for _ in range(len(incomplete)):
                found.append(MessageId(*incomplete.popleft(), part.partition))
    return found
