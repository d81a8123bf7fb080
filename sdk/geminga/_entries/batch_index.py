"""Finds the messages of a batch without parsing their metadata (spec SDK-20). Pure.

`geminga_protocol.batch.split_batch` parses every message's metadata; a consumer mostly needs
payloads only, so here just the sizes are read, and the metadata on request.
"""

from __future__ import annotations

import struct

from google.protobuf.message import DecodeError

from geminga_protocol.errors import RemoteProtocolError
from geminga_protocol.pb.pulsar_api_pb2 import SingleMessageMetadata

_unpack_size = struct.Struct(">I").unpack_from
_PROPERTY, _KEY, _PAYLOAD_SIZE = 0x0A, 0x12, 0x18
"""Tags of the fields that begin nearly every message's metadata, in that order."""
_COMPACTED_OUT = b"\x20\x01"
"""The field that marks a message as removed by compaction."""


def index_batch(count: int, payload: bytes) -> list[int]:
    """Offsets in an uncompressed batch: for each message the start of its metadata and of its
    payload, and finally the start of a next message's metadata.

    Raises RemoteProtocolError for inconsistent sizes.
    """
    bounds: list[int] = []
    append = bounds.append
    end = len(payload)
    at = 0
    # Messages of one batch are mostly similar: the same head bytes give the same two sizes.
    head = b"?"
    head_size = 1
    metadata_size = size = 0
    # A wrong count costs no memory: the loop ends with the bytes.
    for _ in range(count):
        if payload[at : at + head_size] != head:
            # The first one's metadata are fully checked; the others are mostly similar.
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
    """(bytes of metadata, bytes of payload, bytes of the head with both sizes) of a message at `at`
    whose payload size follows only short properties and a short key; None for others.
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
    # If the head exceeds the metadata, `_sizes_at` reports the error.
    return (metadata_size, size, end - at) if end <= at + 4 + metadata_size else None


def _sizes_at(payload: bytes, at: int) -> tuple[int, int, int]:
    """As `_sizes_in_one_look` for any message, by reading all of its metadata."""
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
    """The metadata of messages found by `index_batch`. Raises RemoteProtocolError."""
    try:
        return list(map(SingleMessageMetadata.FromString, encoded))
    except DecodeError as error:
        raise RemoteProtocolError(f"batched metadata can't be decoded: {error}") from error


def compacted_out(bounds: list[int], payload: bytes) -> list[int]:
    """Indexes of the messages that compaction removed from a batch; only their places remain."""
    return [
        n
        for n in range(len(bounds) // 2)
        if _COMPACTED_OUT in (encoded := payload[bounds[2 * n] : bounds[2 * n + 1]])
        and single_metadata(encoded).compacted_out
    ]
