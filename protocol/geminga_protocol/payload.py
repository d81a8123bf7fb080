"""Headers and payload of SEND and MESSAGE frames and ledger entries (spec PR-02, PR-03, PR-07).

    [0x0e02 | size u32 | BrokerEntryMetadata]  [0x0e01 | CRC32C u32]  metadataSize u32 | metadata |
    payload

Both brackets are optional. The checksum covers everything after it. Functions take the view of any
contiguous buffer and return views of it; all raise RemoteProtocolError for wrong lengths and
invalid metadata.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple, cast

from fastcrc import crc32
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError

from geminga_protocol.buffers import Buffer
from geminga_protocol.encode import steady_varint, varint
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.messages import missing_fields, parser
from geminga_protocol.pb.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata

MAGIC_CRC32C = 0x0E01
MAGIC_BROKER_ENTRY_METADATA = 0x0E02

_crc32c = crc32.iscsi
_parse_metadata = parser(MessageMetadata)
_parse_broker_entry = parser(BrokerEntryMetadata)
_SIZE = struct.Struct(">I")
_MARKED = struct.Struct(">HI")
_FRONT = struct.Struct(">HII")
_unpack_size = _SIZE.unpack_from
_unpack_marked = _MARKED.unpack_from
unpack_front = _FRONT.unpack_from
"""Magic, checksum, and size of the metadata, of an entry that begins with the magic."""
FRONT_BYTES = _FRONT.size


class MarkerType(IntEnum):
    """`MessageMetadata.marker_type` (Apache's MarkerType): of messages between
    brokers, hidden from consumers (spec PR-17).
    """

    UNKNOWN_MARKER = 0
    REPLICATED_SUBSCRIPTION_SNAPSHOT_REQUEST = 10
    REPLICATED_SUBSCRIPTION_SNAPSHOT_RESPONSE = 11
    REPLICATED_SUBSCRIPTION_SNAPSHOT = 12
    REPLICATED_SUBSCRIPTION_UPDATE = 13
    TXN_COMMITTING = 20
    TXN_COMMIT = 21
    TXN_ABORT = 22


SMALL_BYTES_MAX = 128
"""Smaller metadata are parsed whole for a head, too: that takes less time."""

_UNREAD = frozenset(("properties", "replicate_to"))
_ENCRYPTION_KEYS = "encryption_keys"
_NO_KEY = b"\x0a\x00\x12\x00"
"""EncryptionKeys with an empty name and value."""

_Field = descriptor_pb2.FieldDescriptorProto


class Parts(NamedTuple):
    """Views of the parts; `checksum` is not verified."""

    broker_entry_metadata: memoryview | None
    checksum: int | None
    metadata: memoryview
    payload: memoryview


def split(headers_and_payload: memoryview) -> Parts:
    """Cut into parts."""
    broker_part, start = _skip_broker_entry_metadata(headers_and_payload)
    checksum, start = _skip_checksum(headers_and_payload, start)
    metadata_end = _metadata_end(headers_and_payload, start)
    return Parts(
        None if broker_part == 0 else headers_and_payload[6:broker_part],
        checksum,
        headers_and_payload[start + 4 : metadata_end],
        headers_and_payload[metadata_end:],
    )


def verify_checksum(headers_and_payload: memoryview) -> bool:
    """Whether the CRC32C is right, or absent. For headers and payload of a SEND frame."""
    if len(headers_and_payload) < 6:
        return True
    magic, checksum = _unpack_marked(headers_and_payload)
    if magic != MAGIC_CRC32C:
        return True
    return bool(_crc32c(headers_and_payload[6:]) == checksum)


def strip_broker_entry_metadata(entry: memoryview) -> memoryview:
    """The entry without its broker entry metadata, for consumers that don't support them."""
    if len(entry) < 6:
        return entry
    magic, size = _unpack_marked(entry)
    if magic != MAGIC_BROKER_ENTRY_METADATA:
        return entry
    if size > len(entry) - 6:
        raise RemoteProtocolError(f"broker entry metadata of {size} bytes don't fit in the entry")
    return entry[6 + size :]


def peek_broker_entry_metadata(entry: memoryview) -> BrokerEntryMetadata | None:
    """The entry's broker entry metadata, None if it has none."""
    end, _ = _skip_broker_entry_metadata(entry)
    if end == 0:
        return None
    try:
        return _parse_broker_entry(entry[6:end])
    except DecodeError as error:
        raise RemoteProtocolError(f"broker entry metadata can't be decoded: {error}") from error


def encoded_metadata(headers_and_payload: memoryview) -> memoryview:
    """The message metadata of a frame or of an entry, as they are encoded."""
    _, start = _skip_broker_entry_metadata(headers_and_payload)
    _, start = _skip_checksum(headers_and_payload, start)
    return headers_and_payload[start + 4 : _metadata_end(headers_and_payload, start)]


def parse_metadata(headers_and_payload: memoryview) -> MessageMetadata:
    """The message metadata of a frame or of an entry."""
    return decode_metadata(encoded_metadata(headers_and_payload))


def decode_metadata(metadata: Buffer) -> MessageMetadata:
    """Parse message metadata alone. As in Apache, a missing required field is an error, but text
    that isn't UTF-8 is not; such a field holds bytes: see `messages.text`.
    """
    try:
        parsed = _parse_metadata(metadata)
    except DecodeError as error:
        raise RemoteProtocolError(f"message metadata can't be decoded: {error}") from error
    if not parsed.IsInitialized():
        raise RemoteProtocolError(f"message metadata lacks {missing_fields(parsed)}")
    return parsed


def _make_head() -> type[MessageMetadata]:
    """MessageMetadata without the fields that only clients read. There may be 5 MiB of them: read,
    they take a tenth of a second and ten times their size; unread, milliseconds and nothing.

    Texts and enums are as on the wire, and of a list of messages the last one is there.
    """
    whole = descriptor_pb2.DescriptorProto()
    MessageMetadata.DESCRIPTOR.CopyToProto(whole)
    file = descriptor_pb2.FileDescriptorProto(name="head.proto", package="head", syntax="proto2")
    made = file.message_type.add(name="MessageMetadata")
    for field in whole.field:
        if field.name in _UNREAD:
            continue
        kept = made.field.add(name=field.name, number=field.number, label=_Field.LABEL_OPTIONAL)
        kept.type = field.type
        if field.type in (_Field.TYPE_STRING, _Field.TYPE_MESSAGE):
            kept.type = _Field.TYPE_BYTES
        elif field.type == _Field.TYPE_ENUM:
            kept.type = _Field.TYPE_INT32
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName("head.MessageMetadata"))
    return cast(type[MessageMetadata], found)


_parse_head = parser(_make_head())


def parse_head(headers_and_payload: memoryview) -> MessageMetadata:
    """As `decode_head`, of a frame or of an entry."""
    return decode_head(encoded_metadata(headers_and_payload))


def decode_head(metadata: Buffer) -> MessageMetadata:
    """Parse message metadata alone, as `decode_metadata`; above `SMALL_BYTES_MAX` without
    properties and clusters, and of encryption keys only an empty one, if there is any: what is left
    out is not checked either.
    """
    if len(metadata) <= SMALL_BYTES_MAX:
        return decode_metadata(metadata)
    try:
        found = _parse_head(metadata)
    except DecodeError as error:
        raise RemoteProtocolError(f"message metadata can't be decoded: {error}") from error
    found.DiscardUnknownFields()
    if found.HasField(_ENCRYPTION_KEYS):
        setattr(found, _ENCRYPTION_KEYS, _NO_KEY)
    # Without what was unread, and in the type that everybody knows.
    return decode_metadata(found.SerializeToString())


def build(metadata: MessageMetadata, payload: Buffer, checksum: bool = True) -> bytes:
    """Headers and payload for a SEND frame. Raises LocalProtocolError if metadata lacks required
    fields.
    """
    return b"".join((headers(metadata, payload, checksum), payload))


def headers(metadata: MessageMetadata, payload: Buffer, checksum: bool = True) -> bytes:
    """What goes before the payload in a SEND frame. Raises as `build`."""
    try:
        encoded = metadata.SerializeToString()
    except EncodeError as error:
        raise LocalProtocolError(f"message metadata is incomplete: {error}") from error
    size = _SIZE.pack(len(encoded))
    if not checksum:
        return size + encoded
    value = _crc32c(payload, _crc32c(size + encoded))
    return _FRONT.pack(MAGIC_CRC32C, value, len(encoded)) + encoded


def broker_entry_prefix(timestamp_ms: int, index: int) -> bytes:
    """Broker entry metadata in front of an entry (PIP-70): append time and message index.

    The index is that of the entry's last message, contiguous in a topic
    (AppendIndexMetadataInterceptor).
    """
    body = b"\x08" + steady_varint(timestamp_ms) + b"\x10" + varint(index)
    return _MARKED.pack(MAGIC_BROKER_ENTRY_METADATA, len(body)) + body


def _skip_broker_entry_metadata(data: memoryview) -> tuple[int, int]:
    """(end of the broker entry metadata, 0 without them; start of the rest)."""
    if len(data) < 6:
        return 0, 0
    magic, size = _unpack_marked(data)
    if magic != MAGIC_BROKER_ENTRY_METADATA:
        return 0, 0
    if size > len(data) - 6:
        raise RemoteProtocolError(f"broker entry metadata of {size} bytes don't fit in the entry")
    return 6 + size, 6 + size


def _skip_checksum(data: memoryview, start: int) -> tuple[int | None, int]:
    if len(data) - start < 6:
        return None, start
    magic, checksum = _unpack_marked(data, start)
    if magic != MAGIC_CRC32C:
        return None, start
    return checksum, start + 6


def _metadata_end(data: memoryview, start: int) -> int:
    left = len(data) - start
    if left < 4:
        raise RemoteProtocolError("headers end before the size of the message metadata")
    (size,) = _unpack_size(data, start)
    if size > left - 4:
        raise RemoteProtocolError(f"message metadata of {size} bytes don't fit in {left - 4}")
    return int(start + 4 + size)
