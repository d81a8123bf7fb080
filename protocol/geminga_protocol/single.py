"""SEND frames of messages with nothing but a payload, hand-written: the same bytes as `encode.send`
and `payload.build` (spec PR-02, PR-03).
"""

from __future__ import annotations

import struct

from fastcrc import crc32

from geminga_protocol.encode import steady_varint, varint
from geminga_protocol.payload import MAGIC_CRC32C

_pack_size = struct.Struct(">I").pack
_pack_lengths = struct.Struct(">II").pack
_pack_marked = struct.Struct(">HI").pack
_crc32c = crc32.iscsi
_ONE = [bytes((n,)) for n in range(128)]


class SendHeader:
    """Builds the fronts of one producer's frames; constant parts are encoded once.

    `producer_name` and `schema_version` may have 127 bytes; use protobuf for longer ones.
    """

    __slots__ = ("_name", "_producer", "_tail", "_time", "_time_ms")

    def __init__(self, producer_id: int, producer_name: bytes, schema_version: bytes = b"") -> None:
        self._producer = b"\x08" + varint(producer_id) + b"\x10"
        self._name = b"\x0a" + _ONE[len(producer_name)] + producer_name + b"\x10"
        self._tail = b""
        if schema_version:
            self._tail = b"\x82\x01" + _ONE[len(schema_version)] + schema_version
        self._time_ms = -1
        self._time = b""

    def build(self, sequence_id: int, publish_time_ms: int, payload: bytes) -> bytes:
        """A SEND frame without the payload: command, checksum and metadata."""
        if publish_time_ms != self._time_ms:
            self._time_ms = publish_time_ms
            self._time = b"\x18" + varint(publish_time_ms) + b"\x48"
        number = varint(sequence_id)
        size = len(payload)
        metadata = self._name + number + self._time + steady_varint(size) + self._tail
        sized = _pack_size(len(metadata)) + metadata
        command = self._producer + number
        command_size = len(command) + 4
        return b"".join(
            (
                _pack_lengths(command_size + 10 + len(sized) + size, command_size),
                b"\x08\x06\x32",
                _ONE[command_size - 4],
                command,
                _pack_marked(MAGIC_CRC32C, _crc32c(payload, _crc32c(sized))),
                sized,
            )
        )
