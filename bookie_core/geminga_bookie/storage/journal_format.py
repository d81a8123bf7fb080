"""Bytes of the journal's records (docs/DATA_FILES.md): pages, records, items. Pure.

A record is one group commit. It starts on a page of its own, so that no acknowledged page is ever
written again. It names its file and that file's salt, so that neither an older use of a recycled
file nor a client's payload is taken for a record. The index (the items' heads) stands in front of
the packets under a checksum of its own, so that a damaged record still names its entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import fastcrc

from geminga_protocol.buffers import Buffer

crc32c = fastcrc.crc32.iscsi

PAGE_BYTES = 4096
RECORD_MAGIC = b"GREC"
BODY_BYTES_MAX = 256 * 1024 * 1024
"""No record's index or body is longer; a longer length is a lie."""

JOIN_MEAN_BYTES_MAX = 8192
"""Smaller packets, on average, are joined for one checksum; copying larger ones costs more."""

_RECORD_HEADER = struct.Struct("<4sIIIIIQQQ")
_CHECKED = struct.Struct("<IIIIQQQ")
RECORD_HEADER_BYTES = _RECORD_HEADER.size
ITEM = struct.Struct("<BxHIqq")
"""Head of an item: kind, length of the key, count of entries, ledger id, number."""
ITEM_BYTES = ITEM.size

ENTRIES = 1
MASTER_KEY = 2
FENCE = 3
EXPLICIT_LAC = 4
PREDECESSOR = 5
IN_DOUBT = 6

_WITH_KEY = (MASTER_KEY, EXPLICIT_LAC)
"""Items with bytes of their own behind the head, whose length stands as that of a key."""

_RANGES_SHOWN_MAX = 20


class JournalPosition(NamedTuple):
    """A place between records: the file's number and the offset of its next record."""

    journal_id: int
    offset: int


class JournalItem(NamedTuple):
    """One thing that a record says of a ledger.

    ENTRIES: `number` is the first entry's id, `payload` its packets. MASTER_KEY: the key is the one
    payload. FENCE and IN_DOUBT have neither. EXPLICIT_LAC: `number` is the LAC, the one payload its
    packet (empty in older records). PREDECESSOR: the file (as `ledger_id`) that was written before,
    and its end (as `number`).
    """

    kind: int
    ledger_id: int
    number: int
    payload: Sequence[bytes]


class DamagedRecord(Exception):
    """No whole record stands there."""


def page_round(size_bytes: int) -> int:
    """Up to the next page."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def encode_item(kind: int, ledger_id: int, number: int, payload: Sequence[bytes]) -> bytes:
    """An item's part of the index. The packets of ENTRIES belong into the body."""
    if kind == ENTRIES:
        count = len(payload)
        head = ITEM.pack(kind, 0, count, ledger_id, number)
        return head + struct.pack(f"<{count}I", *map(len, payload))
    if kind in _WITH_KEY:
        return ITEM.pack(kind, len(payload[0]), 0, ledger_id, number) + payload[0]
    return ITEM.pack(kind, 0, 0, ledger_id, number)


def encode_record(
    journal_id: int, salt: int, sequence: int, index: bytes, packets: list[bytes], body_bytes: int
) -> tuple[Sequence[Buffer], int]:
    """Buffers to write, padded to pages, and their size. `body_bytes`: length of all packets."""
    if len(packets) > 1 and body_bytes < JOIN_MEAN_BYTES_MAX * len(packets):
        packets = [b"".join(packets)]
    checksum = 0
    for packet in packets:
        checksum = crc32c(packet, checksum)
    checked = _CHECKED.pack(
        len(index), crc32c(index), body_bytes, checksum, journal_id, salt, sequence
    )
    head = RECORD_MAGIC + crc32c(checked).to_bytes(4, "little") + checked + index
    size = len(head) + body_bytes
    total = page_round(size)
    return [head, *packets, bytes(total - size)], total


def encode_end_mark(journal_id: int, salt: int, sequence: int) -> bytes:
    """A page that says: all records of a smaller sequence number are on disk, no later one was
    begun. The next record overwrites it."""
    buffers, _ = encode_record(journal_id, salt, sequence, b"", [], 0)
    return b"".join(buffers)


class RecordHead(NamedTuple):
    """A record's header, its own checksum verified."""

    index_bytes: int
    index_checksum: int
    body_bytes: int
    body_checksum: int
    journal_id: int
    salt: int
    sequence: int

    @property
    def total_bytes(self) -> int:
        return page_round(RECORD_HEADER_BYTES + self.index_bytes + self.body_bytes)

    @property
    def is_end_mark(self) -> bool:
        return not self.index_bytes


def parse_record_head(data: bytes) -> RecordHead:
    """Raises DamagedRecord."""
    if len(data) < RECORD_HEADER_BYTES or data[:4] != RECORD_MAGIC:
        raise DamagedRecord("no record")
    checked = data[8:RECORD_HEADER_BYTES]
    if crc32c(checked) != int.from_bytes(data[4:8], "little"):
        raise DamagedRecord("the record's header fails its checksum")
    head = RecordHead(*_CHECKED.unpack(checked))
    if max(head.index_bytes, head.body_bytes) > BODY_BYTES_MAX:
        raise DamagedRecord("the record's length is out of range")
    return head


def checked_part(data: bytes, size_bytes: int, checksum: int, name: str) -> bytes:
    """The bytes of a record's index or body. Raises DamagedRecord if they were changed."""
    if len(data) != size_bytes:
        raise DamagedRecord(f"the record's {name} is cut short")
    if crc32c(data) != checksum:
        raise DamagedRecord(f"the record's {name} fails its checksum")
    return data


class IndexItem(NamedTuple):
    """An item without its packets: their lengths instead."""

    kind: int
    ledger_id: int
    number: int
    lengths: Sequence[int]
    key: bytes


def decode_index(index: bytes) -> Iterator[IndexItem]:
    """Items of an index whose checksum was right. Raises DamagedRecord."""
    offset, end = 0, len(index)
    while offset < end:
        if end - offset < ITEM_BYTES:
            raise DamagedRecord("an item is cut short")
        kind, key_bytes, count, ledger_id, number = ITEM.unpack_from(index, offset)
        offset += ITEM_BYTES
        if end - offset < max(4 * count, key_bytes):
            raise DamagedRecord("an item is cut short")
        lengths: Sequence[int] = ()
        if kind == ENTRIES:
            lengths = struct.unpack_from(f"<{count}I", index, offset)
        key = index[offset : offset + key_bytes]
        offset += 4 * count + key_bytes
        yield IndexItem(kind, ledger_id, number, lengths, key)


def decode_items(index: bytes, body: bytes) -> Iterator[JournalItem]:
    """Items with their packets. Raises DamagedRecord if index and body don't fit each other."""
    offset = 0
    for kind, ledger_id, number, lengths, key in decode_index(index):
        payload: list[bytes] = [key] if kind in _WITH_KEY else []
        for length in lengths:
            payload.append(body[offset : offset + length])
            offset += length
        if offset > len(body):
            raise DamagedRecord("an item is cut short")
        yield JournalItem(kind, ledger_id, number, payload)


def describe(items: Sequence[IndexItem]) -> str:
    """The ledgers and entries that a record holds, for a log line of bounded length."""
    ranges: list[list[int]] = []
    others = set()
    for kind, ledger_id, number, lengths, _ in items:
        if kind != ENTRIES:
            if kind != PREDECESSOR:
                others.add(ledger_id)
            continue
        if ranges and ranges[-1][0] == ledger_id and ranges[-1][2] + 1 == number:
            ranges[-1][2] += len(lengths)
        else:
            ranges.append([ledger_id, number, number + len(lengths) - 1])
    told = [f"ledger {ledger}: entries {first} to {last}" for ledger, first, last in ranges]
    told += [f"ledger {ledger}: key, fence or LAC" for ledger in sorted(others)]
    if len(told) > _RANGES_SHOWN_MAX:
        told[_RANGES_SHOWN_MAX:] = [f"{len(told) - _RANGES_SHOWN_MAX} more"]
    return "; ".join(told)
