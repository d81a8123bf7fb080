"""Sticky keys of entries, with as little parsing as possible."""

from __future__ import annotations

import re

from geminga_broker.log.api import Entry
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.keys import NONE_KEY, key_slot, sticky_key
from geminga_protocol.payload import FRONT_BYTES, MAGIC_CRC32C, unpack_front

_PRODUCER_TAG = 0x0A
_PROPERTY_TAG = 0x22
_KEY_TAG = 0x32
_LENGTH_MAX = 127
"""Lengths that take one byte."""
_METADATA_BYTES_MAX = 4096
"""Protobuf passes over many properties faster."""
# Sequence id and publish time, right after the producer's name.
_NUMBERS = re.compile(rb"\x10[\x80-\xff]*[\x00-\x7f]\x18[\x80-\xff]*[\x00-\x7f]").match
# Encoded key, ordering key, delivery time, marker, chunk.
_RARE = re.compile(rb"[\x88\x92\x98\xa0\xe8]\x01").search


def plain_key(data: memoryview) -> bytes | None:
    """The sticky key of an entry with the usual metadata fields in the usual order, found without
    parsing. None for all other entries, which must be parsed, among them (possible) markers,
    delayed entries and chunks.
    """
    if len(data) <= FRONT_BYTES:
        return None
    magic, _, size = unpack_front(data)
    if magic != MAGIC_CRC32C or size > _METADATA_BYTES_MAX:
        return None
    encoded = bytes(data[FRONT_BYTES : FRONT_BYTES + size])
    if 1 in encoded and _RARE(encoded):
        return None
    try:
        if encoded[0] != _PRODUCER_TAG or encoded[1] > _LENGTH_MAX:
            return None
        found = _NUMBERS(encoded, 2 + encoded[1])
        if found is None:
            return None
        at = found.end()
        while encoded[at] == _PROPERTY_TAG and encoded[at + 1] <= _LENGTH_MAX:
            at += 2 + encoded[at + 1]
        length = encoded[at + 1]
        end = at + 2 + length
        if encoded[at] != _KEY_TAG or length > _LENGTH_MAX or end > size:
            return None
    except IndexError:
        return None
    key = encoded[at + 2 : end]
    return key if key.isascii() else None


def slot_of(entry: Entry, first: int) -> int:
    """Key_Shared's hash of an entry; `first` as in `key_slot`."""
    try:
        return key_slot(sticky_key(entry.head), first)
    except RemoteProtocolError:
        return key_slot(NONE_KEY, first)
