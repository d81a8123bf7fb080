"""SEND frames of messages with nothing but a payload, hand-written: the same bytes as `encode.send`
and `payload.build` (spec PR-02, PR-03).
"""

from __future__ import annotations

import struct

from fastcrc import crc32

from geminga_protocol.encode import LAST_BYTES, steady_varint, varint
from geminga_protocol.payload import MAGIC_CRC32C

_pack_size = struct.Struct(">I").pack
_pack_lengths = struct.Struct(">II").pack
_pack_marked = struct.Struct(">HI").pack
_crc32c = crc32.iscsi


class SendHeader:
    """Builds the fronts of one producer's frames; constant parts are encoded once.

    `producer_name` and `schema_version` may have 127 bytes; use protobuf for longer ones.
    """

    __slots__ = (
        "_behind",
        "_front",
        "_name",
        "_producer",
        "_size",
        "_sized_name",
        "_tail",
        "_time_ms",
        "_width",
    )

    def __init__(self, producer_id: int, producer_name: bytes, schema_version: bytes = b"") -> None:
        self._producer = b"\x08" + varint(producer_id) + b"\x10"
        self._name = b"\x0a" + LAST_BYTES[len(producer_name)] + producer_name + b"\x10"
        self._tail = b""
        if schema_version:
            self._tail = b"\x82\x01" + LAST_BYTES[len(schema_version)] + schema_version
        # What these have in common is ready for messages of one time, size and length of the
        # sequence id.
        self._time_ms = self._size = self._width = -1
        self._front = self._sized_name = self._behind = b""

    def build(self, sequence_id: int, publish_time_ms: int, payload: bytes) -> bytes:
        """A SEND frame without the payload: command, checksum and metadata."""
        number = varint(sequence_id)
        if (
            publish_time_ms != self._time_ms
            or len(payload) != self._size
            or len(number) != self._width
        ):
            self._prepare(len(number), publish_time_ms, len(payload))
        sized = self._sized_name + number + self._behind
        checksum = _crc32c(payload, _crc32c(sized))
        return self._front + number + _pack_marked(MAGIC_CRC32C, checksum) + sized

    def _prepare(self, width: int, time_ms: int, size: int) -> None:
        self._width = width
        self._time_ms = time_ms
        self._size = size
        self._behind = b"".join(
            (b"\x18", steady_varint(time_ms), b"\x48", steady_varint(size), self._tail)
        )
        metadata_size = len(self._name) + width + len(self._behind)
        self._sized_name = _pack_size(metadata_size) + self._name
        body_size = len(self._producer) + width
        command_size = body_size + 4
        total = command_size + 14 + metadata_size + size
        front = _pack_lengths(total, command_size) + b"\x08\x06\x32" + LAST_BYTES[body_size]
        self._front = front + self._producer
