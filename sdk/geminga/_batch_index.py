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
_SIZE_BYTES_MAX = 5
"""Of `payload_size`; a negative one has more."""


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
            found = _sizes_behind_key(payload, at) if at else None
            metadata_size, size, head_size = found or _sizes_at(payload, at, checks=not at)
            head = payload[at : at + head_size]
        begin = at + 4 + metadata_size
        append(at + 4)
        append(begin)
        at = begin + size
        if at > end:
            raise RemoteProtocolError(f"batch of {count} messages is cut off")
    append(at + 4)
    return bounds


def _sizes_behind_key(payload: bytes, at: int) -> tuple[int, int, int] | None:
    """As `_sizes_at` answers, in one look, for a message whose metadata begin with a short key and
    its payload's size (of two bytes at most); None for any other.
    """
    try:
        metadata_size = _unpack_size(payload, at)[0]
        key_size = payload[at + 5]
        behind = at + 6 + key_size
        if payload[at + 4] != _KEY or key_size > 127 or payload[behind] != _PAYLOAD_SIZE:
            return None
        size = payload[behind + 1]
        end = behind + 2
        if size > 127:
            more = payload[end]
            if more > 127:
                return None
            size = size & 127 | more << 7
            end += 1
    except (IndexError, struct.error):
        return None
    # A key that is longer than the metadata is somebody else's to refuse.
    return (metadata_size, size, end - at) if end <= at + 4 + metadata_size else None


def _sizes_at(payload: bytes, at: int, *, checks: bool) -> tuple[int, int, int]:
    """(bytes of metadata, bytes of payload, bytes from `at` on that say so) of one message. With
    `checks` all of its metadata are read.
    """
    start = at + 4
    if len(payload) < start:
        raise RemoteProtocolError("batch ends too early")
    metadata_size = _unpack_size(payload, at)[0]
    begin = start + metadata_size
    if begin > len(payload):
        raise RemoteProtocolError("metadata of a batched message are cut off")
    size, end = _payload_size_at(payload, start, begin)
    if checks or size < 0:
        size = single_metadata(payload[start:begin]).payload_size
    if size < 0:
        raise RemoteProtocolError("a batched message has a negative size")
    return metadata_size, size, end - at


def _payload_size_at(payload: bytes, at: int, stop: int) -> tuple[int, int]:
    """The `payload_size` in a message's metadata, and where it ends; -1 and `stop` if something
    else stands before it than short properties and a short key.
    """
    while at + 1 < stop:
        tag = payload[at]
        first = payload[at + 1]
        at += 2
        if tag == _PAYLOAD_SIZE:
            size = first & 127
            shift = 7
            while first > 127:
                if at >= stop or shift >= 7 * _SIZE_BYTES_MAX:
                    return -1, stop
                first = payload[at]
                size |= (first & 127) << shift
                shift += 7
                at += 1
            return size, at
        if tag not in (_PROPERTY, _KEY) or first > 127:
            break
        at += first
    return -1, stop


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
