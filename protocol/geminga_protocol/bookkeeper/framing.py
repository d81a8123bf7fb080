"""Frames of BookKeeper's wire protocol: four bytes of length, then that many (spec BK-08; Apache's
LengthFieldBasedFrameDecoder).
"""

from __future__ import annotations

import struct

FRAME_BYTES_MAX_DEFAULT = 5 * 1024 * 1024
"""Bytes of a frame with its length (Apache's nettyMaxFrameSizeBytes). A bookie closes connections
over which a longer one comes.
"""

LENGTH_BYTES = 4
_SMALL_CHUNK_BYTES_MAX = 4096
_length_at = struct.Struct(">I").unpack_from


class WireError(ValueError):
    """The peer's bytes break the protocol: nothing after them can be trusted."""


class FrameCutter:
    """Splits a stream, received in any chunks, into frames.

    Holds the received bytes of one unfinished frame; an announced size allocates nothing.
    """

    __slots__ = ("_chunks", "_held", "_needed", "failure", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX_DEFAULT) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.failure: WireError | None = None
        """Set when a length is above the bound: `feed` then returns the frames before it, and none
        later.
        """
        self._chunks: list[bytes | bytearray] = []
        self._held = 0
        self._needed = LENGTH_BYTES

    @property
    def buffered(self) -> int:
        """Held bytes of the unfinished frame."""
        return self._held

    @property
    def missing(self) -> int:
        """Bytes until the unfinished frame is whole, as far as its length is known."""
        return self._needed - self._held

    def feed(self, data: bytes) -> tuple[bytes, list[int]]:
        """A buffer and the bounds of the frames that are complete now: frame n is from bound n to
        bound n + 1, its length included.
        """
        if self.failure is not None:
            return b"", [0]
        if self._held:
            if self._held + len(data) < self._needed:
                self._hold(data)
                return b"", [0]
            data = b"".join((*self._chunks, data))
            self._chunks.clear()
            self._held = 0
        end = len(data)
        bounds = [0]
        start = 0
        while end - start >= LENGTH_BYTES:
            stop = start + LENGTH_BYTES + int(_length_at(data, start)[0])
            if stop - start > self.frame_bytes_max:
                self.failure = WireError(
                    f"frame of {stop - start} bytes is above the limit of "
                    f"{self.frame_bytes_max} bytes"
                )
                return data, bounds
            if stop > end:
                break
            bounds.append(stop)
            start = stop
        if start < end:
            self._needed = LENGTH_BYTES
            if end - start >= LENGTH_BYTES:
                self._needed += int(_length_at(data, start)[0])
            self._hold(data[start:] if start else data)
        return data, bounds

    def _hold(self, data: bytes) -> None:
        self._held += len(data)
        # Join small chunks: a slow peer must not make us hold an object for every few bytes.
        if len(data) > _SMALL_CHUNK_BYTES_MAX:
            self._chunks.append(data)
        elif self._chunks and isinstance(self._chunks[-1], bytearray):
            self._chunks[-1] += data
        else:
            self._chunks.append(bytearray(data))
