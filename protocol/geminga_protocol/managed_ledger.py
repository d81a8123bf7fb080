"""A managed ledger's records in the metadata store, in Apache's bytes (spec BR-01; MetaStoreImpl).

Plain, or compressed after a header:

    0x4778 u16 | metadataSize u32 | ManagedLedgerInfoMetadata | compressed protobuf

As in Apache, an invalid value that begins with the magic is read as plain protobuf.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message

from geminga_protocol import compression
from geminga_protocol.errors import LocalProtocolError, RemoteProtocolError
from geminga_protocol.messages import has_bad_text, missing_fields, parser
from geminga_protocol.pb.managed_ledger_pb2 import (
    CompressionType,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    ManagedLedgerInfoMetadata,
    PositionInfo,
)

MAGIC = 0x4778

INFO_BYTES_MAX = 64 * 1024 * 1024
"""Bound of a decompressed value; a log of a million ledgers is below it."""

_HEADER = struct.Struct(">HI")
M = TypeVar("M", bound=Message)


def encode_ledger_info(
    info: ManagedLedgerInfo, compression_type: CompressionType = CompressionType.NONE
) -> bytes:
    """Value at /managed-ledgers/{name}. Raises LocalProtocolError if a field is missing."""
    return _compressed(encode_position_info(info), compression_type)


def decode_ledger_info(data: bytes) -> ManagedLedgerInfo:
    """The inverse. Raises RemoteProtocolError."""
    return _decoded(data, ManagedLedgerInfo)


def encode_cursor_info(
    info: ManagedCursorInfo, compression_type: CompressionType = CompressionType.NONE
) -> bytes:
    """Value at /managed-ledgers/{name}/{cursor}. Raises LocalProtocolError."""
    return _compressed(encode_position_info(info), compression_type)


def decode_cursor_info(data: bytes) -> ManagedCursorInfo:
    """The inverse. Raises RemoteProtocolError."""
    return _decoded(data, ManagedCursorInfo)


def encode_position_info(info: PositionInfo | ManagedLedgerInfo | ManagedCursorInfo) -> bytes:
    """An entry of a cursor's ledger (or any of these, plain). Raises LocalProtocolError."""
    try:
        return info.SerializeToString()
    except EncodeError as error:
        raise LocalProtocolError(f"metadata are incomplete: {error}") from error


def decode_position_info(data: bytes | memoryview) -> PositionInfo:
    """The inverse. Raises RemoteProtocolError."""
    return _parsed(data, PositionInfo)


def _compressed(plain: bytes, compression_type: CompressionType) -> bytes:
    if compression_type == CompressionType.NONE:
        return plain
    about = ManagedLedgerInfoMetadata(
        compressionType=compression_type, uncompressedSize=len(plain)
    ).SerializeToString()
    packed = compression.compress(int(compression_type), plain)
    return b"".join((_HEADER.pack(MAGIC, len(about)), about, packed))


def _decoded(data: bytes, kind: type[M]) -> M:
    if len(data) >= _HEADER.size:
        magic, size = _HEADER.unpack_from(data)
        if magic == MAGIC and size <= len(data) - _HEADER.size:
            try:
                return _parsed(_unpacked(memoryview(data), _HEADER.size + size), kind)
            except RemoteProtocolError:
                # Plain protobuf may begin with the magic's bytes.
                return _parsed(data, kind)
    return _parsed(data, kind)


def _unpacked(view: memoryview, start: int) -> memoryview:
    about = _parsed(view[_HEADER.size : start], ManagedLedgerInfoMetadata)
    return compression.decompress(
        int(about.compressionType), view[start:], about.uncompressedSize, INFO_BYTES_MAX
    )


def _parsed(data: bytes | memoryview, kind: type[M]) -> M:
    try:
        info = parser(kind)(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"{kind.__name__} can't be decoded: {error}") from error
    if not info.IsInitialized():
        raise RemoteProtocolError(f"{kind.__name__} lacks {missing_fields(info)}")
    if has_bad_text(info):
        raise RemoteProtocolError(f"{kind.__name__} has text that is not UTF-8")
    return info
