"""Finding the messages of a batch without reading their metadata (spec SDK-20). Pure.

`geminga_protocol.batch.split_batch` parses every message's metadata; a consumer mostly wants
payloads only, so here just the sizes are read, and the metadata when somebody asks.
"""

from __future__ import annotations

import struct

from google.protobuf.message import DecodeError

from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import SingleMessageMetadata

_unpack_size = struct.Struct(">I").unpack_from
_PROPERTY, _KEY, _PAYLOAD_SIZE = 0x0A, 0x12, 0x18
"""Tags of the fields with which nearly every message's metadata begin, in that order."""
_COMPACTED_OUT = b"\x20\x01"
"""The field that says so."""


def index_batch(count: int, payload: bytes) -> list[int]:
    """Where the messages are in an uncompressed batch: start of metadata and start of payload, for
    each message in turn, and at the end the place of a next message's metadata.

    Raises RemoteProtocolError if sizes don't add up.
    """
    bounds: list[int] = []
    append = bounds.append
    end = len(payload)
    at = 0
    # Messages of one batch mostly look alike: then the same bytes give the same two sizes.
    head = b"?"
    head_size = 1
    metadata_size = size = 0
    # No more is noted than is there: a lying count ends at the end of the bytes.
    for _ in range(count):
        if payload[at : at + head_size] != head:
            # Of the first one all is read: where it makes sense, so do the others.
            found = _sizes_in_one_look(payload, at) if at else None
            metadata_size, size, head_size = found or _sizes_at(payload, at)
            head = payload[at : at + head_size]
        begin = at + 4 + metadata_size
        append(at + 4)
        append(begin)
        at = begin + size
        if at > end:
            raise RemoteProtocolError(f"batch of {count} messages is cut off")
    append(at + 4)
    return bounds


def _sizes_in_one_look(payload: bytes, at: int) -> tuple[int, int, int] | None:
    """(bytes of metadata, bytes of payload, bytes from `at` on that say so) of one message whose
    payload's size stands behind nothing but short properties and a short key; None for any other.
    """
    try:
        metadata_size = _unpack_size(payload, at)[0]
        field = at + 4
        tag = payload[field]
        while tag != _PAYLOAD_SIZE:
            field_size = payload[field + 1]
            if field_size > 127 or (tag != _KEY and tag != _PROPERTY):
                return None
            field += 2 + field_size
            tag = payload[field]
        size = payload[field + 1]
        end = field + 2
        if size > 127:
            more = payload[end]
            if more > 127:
                return None
            size = size & 127 | more << 7
            end += 1
    except (IndexError, struct.error):
        return None
    # Where these are beyond the metadata, or the payload, somebody else says what is wrong.
    return (metadata_size, size, end - at) if end <= at + 4 + metadata_size else None


def _sizes_at(payload: bytes, at: int) -> tuple[int, int, int]:
    """The same of any message, by reading all of its metadata."""
    start = at + 4
    if len(payload) < start:
        raise RemoteProtocolError("batch ends too early")
    metadata_size = _unpack_size(payload, at)[0]
    begin = start + metadata_size
    if begin > len(payload):
        raise RemoteProtocolError("metadata of a batched message are cut off")
    size = single_metadata(payload[start:begin]).payload_size
    if size < 0:
        raise RemoteProtocolError("a batched message has a negative size")
    return metadata_size, size, begin - at


def single_metadata(data: bytes) -> SingleMessageMetadata:
    """The metadata of one message of a batch. Raises RemoteProtocolError."""
    try:
        single = SingleMessageMetadata.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"batched metadata can't be decoded: {error}") from error
    if not single.HasField("payload_size"):
        raise RemoteProtocolError("batched metadata lack payload_size")
    return single


def all_metadata(encoded: list[bytes]) -> list[SingleMessageMetadata]:
    """Those of messages whose sizes `index_batch` has read. Raises RemoteProtocolError."""
    try:
        return list(map(SingleMessageMetadata.FromString, encoded))
    except DecodeError as error:
        raise RemoteProtocolError(f"batched metadata can't be decoded: {error}") from error


def compacted_out(bounds: list[int], payload: bytes) -> list[int]:
    """Indexes of the messages that compaction took out of a batch: only their places are left."""
    return [
        n
        for n in range(len(bounds) // 2)
        if _COMPACTED_OUT in (encoded := payload[bounds[2 * n] : bounds[2 * n + 1]])
        and single_metadata(encoded).compacted_out
    ]
