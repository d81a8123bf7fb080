"""What dispatch must know of an entry's metadata, looked at as little as possible.

Most entries are neither markers nor delayed. Those two fields have tags of two bytes, so an entry
whose metadata lacks both byte pairs needs no parse; a pair that occurs by chance only costs one.
"""

from __future__ import annotations

import struct

from geminga_broker.log.api import Entry
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.keys import NONE_KEY, key_slot, sticky_key
from geminga_protocol.payload import decode_metadata, split
from geminga_protocol.pb.pulsar_api_pb2 import MessageMetadata

_FRONT = struct.Struct(">HII")
_unpack_front = _FRONT.unpack_from
_MAGIC = 0x0E01
_DELIVER_AT_TAG = b"\x98\x01"
_MARKER_TAG = b"\xa0\x01"


def special(data: memoryview) -> MessageMetadata | None:
    """Metadata of an entry that may be a marker or delayed, None for all others.

    An entry that can't be parsed counts as plain: clients judge it, as with Apache.
    """
    if len(data) <= 10:
        return None
    magic, _, size = _unpack_front(data)
    try:
        encoded = bytes(data[10 : 10 + size]) if magic == _MAGIC else bytes(split(data).metadata)
        if _MARKER_TAG in encoded or _DELIVER_AT_TAG in encoded:
            return decode_metadata(encoded)
    except RemoteProtocolError:
        pass
    return None


def slot_of(entry: Entry, first: int) -> int:
    """Key_Shared's hash of an entry; `first` as in `key_slot`."""
    try:
        return key_slot(sticky_key(entry.metadata), first)
    except RemoteProtocolError:
        return key_slot(NONE_KEY, first)
