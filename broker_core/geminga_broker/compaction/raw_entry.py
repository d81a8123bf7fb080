"""Entries of a compacted ledger, in the form of Apache's `RawMessageImpl` (pure; spec BR-50).

size of the id u32 | MessageIdData | size of the rest u32 | the entry as in the log
"""

from __future__ import annotations

import struct

from google.protobuf.message import DecodeError

from geminga_broker.log.entry import LogEntry
from geminga_protocol.buffers import Buffer
from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.ids import Position
from geminga_protocol.messages import parser
from geminga_protocol.pb.pulsar_api_pb2 import MessageIdData

_SIZE = struct.Struct(">I")
_parse_id = parser(MessageIdData)


def raw_parts(position: Position, partition: int, data: Buffer) -> tuple[Buffer, Buffer]:
    """The bytes to write for an entry of the log; `partition` is -1 for none."""
    # As in a broker's message ids, index -1 means the whole entry.
    about = MessageIdData(
        ledgerId=position.ledger_id,
        entryId=position.entry_id,
        partition=partition,
        batch_index=-1,
    ).SerializeToString()
    size = memoryview(data).nbytes
    return b"".join((_SIZE.pack(len(about)), about, _SIZE.pack(size))), data


def read_raw(view: memoryview) -> LogEntry:
    """The entry with its position in the log. Raises RemoteProtocolError if it is damaged."""
    end = 4
    if len(view) < end:
        raise RemoteProtocolError("an entry of a compacted ledger is cut off")
    (size,) = _SIZE.unpack_from(view)
    end += size
    if len(view) < end + 4:
        raise RemoteProtocolError("an entry of a compacted ledger is cut off")
    try:
        about = _parse_id(view[4:end])
    except DecodeError as error:
        raise RemoteProtocolError(f"an id in a compacted ledger is damaged: {error}") from error
    (rest,) = _SIZE.unpack_from(view, end)
    data = view[end + 4 : end + 4 + rest]
    if not about.IsInitialized() or len(data) != rest:
        raise RemoteProtocolError("an entry of a compacted ledger is cut off")
    return LogEntry(Position(about.ledgerId, about.entryId), data)
