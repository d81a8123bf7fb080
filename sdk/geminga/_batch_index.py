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
_PAYLOAD_SIZE_FIRST = 0x18
"""Tag of `payload_size`, the first field of a message without properties and key."""


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
            metadata_size, size, head_size = _sizes_at(payload, at)
            head = payload[at : at + head_size]
        begin = at + 4 + metadata_size
        append(at + 4)
        append(begin)
        at = begin + size
        if at > end:
            raise RemoteProtocolError(f"batch of {count} messages is cut off")
    append(at + 4)
    return bounds


def _sizes_at(payload: bytes, at: int) -> tuple[int, int, int]:
    """(bytes of metadata, bytes of payload, bytes from `at` on that say so) of one message."""
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
    said = begin - at
    if payload[start] == _PAYLOAD_SIZE_FIRST and metadata_size > 1:
        said = 6
        while payload[at + said - 1] > 127 and said < 4 + metadata_size:
            said += 1
    return metadata_size, size, said


def single_metadata(data: bytes) -> SingleMessageMetadata:
    """The metadata of one message of a batch. Raises RemoteProtocolError."""
    try:
        single = SingleMessageMetadata.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"batched metadata can't be decoded: {error}") from error
    if not single.HasField("payload_size"):
        raise RemoteProtocolError("batched metadata lack payload_size")
    return single
