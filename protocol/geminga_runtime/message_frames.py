"""Frames between processes of one Geminga on one machine: four bytes of length and a pair, in
MessagePack, of a request's number and a struct.

Both sides are of one version: there is no negotiation, and what can't be read ends the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from geminga_protocol.bookkeeper.framing import LENGTH_BYTES, FrameCutter, WireError

Content = TypeVar("Content")

Decoder = msgspec.msgpack.Decoder
"""Made by the reading side, of `tuple[int, Struct | Struct ...]`, whose structs have tags."""

_pack_length = struct.Struct(">I").pack
_encode = msgspec.msgpack.Encoder().encode


def encode(number: int, content: msgspec.Struct) -> bytes:
    """A frame."""
    body = _encode((number, content))
    return _pack_length(len(body)) + body


class Frames(Generic[Content]):
    """Reads the frames of one side of a connection, received in any chunks."""

    def __init__(self, decoder: Decoder[tuple[int, Content]], frame_bytes_max: int) -> None:
        self._decode = decoder.decode
        self._cutter = FrameCutter(frame_bytes_max)

    def feed(self, data: bytes) -> Iterator[tuple[int, Content, int]]:
        """The frames that are whole now: number, content and size in bytes. Raises WireError."""
        buffer, bounds = self._cutter.feed(data)
        view = memoryview(buffer)
        start = bounds[0]
        for stop in bounds[1:]:
            try:
                number, content = self._decode(view[start + LENGTH_BYTES : stop])
            except msgspec.MsgspecError as error:
                raise WireError(f"not a frame: {error}") from None
            yield number, content, stop - start
            start = stop
        if self._cutter.failure is not None:
            raise self._cutter.failure
