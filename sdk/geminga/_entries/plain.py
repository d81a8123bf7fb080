"""Neighbouring entries that are plain messages, opened in one loop (spec SDK-20). Pure."""

from __future__ import annotations

from fastcrc import crc32

from geminga._entries.entry import Entry, Source, match_plain
from geminga_protocol.arrivals import MessageRun
from geminga_protocol.payload import FRONT_BYTES, MAGIC_CRC32C, unpack_front

_crc32c = crc32.iscsi


def open_plain(source: Source, run: MessageRun, fresh_from: int) -> list[Entry]:
    """The first entries of the run that have an id of at least `fresh_from`, a right checksum, and
    are messages with nothing but a payload. The bytes are copied once.
    """
    data = run.data
    view = memoryview(data)
    ledger_id, redelivery_count, ack_set = run.ledger_id, run.redelivery_count, run.ack_set
    partition, topic, generation = source.partition, source.topic, source.generation
    unpack, matches, crc32c = unpack_front, match_plain, _crc32c
    entries: list[Entry] = []
    append = entries.append
    for entry_id, begin, end in run.places:
        at = begin + FRONT_BYTES
        if entry_id < fresh_from or at > end:
            break
        magic, checksum, size = unpack(data, begin)
        front, at = at, at + size
        metadata = data[front:at]
        if (
            magic != MAGIC_CRC32C
            or size < 3
            or at > end
            or metadata[0] != 10
            or not matches(metadata, 2 + metadata[1])
            or crc32c(view[begin + 6 : end]) != checksum
        ):
            break
        entry = Entry(
            ledger_id,
            entry_id,
            partition,
            redelivery_count,
            ack_set,
            metadata,
            data[at:end],
            source,
            topic,
        )
        if generation:
            entry.generation = generation
        append(entry)
    return entries
