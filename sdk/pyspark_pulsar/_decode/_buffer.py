"""Many payloads in one buffer, decoded in parallel: a step reads one number or string of every
payload at once, with numpy, rather than all of one payload (spec SP-03).

For any bytes, no step reads outside the buffer. Errors of a payload are recorded, and reading
continues regardless: at the end only payloads read exactly to their last byte are valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]
PADDING = bytes(32)
"""After the last payload, so that the longest number fits wherever one starts."""
_SEVENTH = np.uint64(0x8080808080808080)
_LOW_SEVEN = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES = np.uint64(0x0101010101010101)
_ONE = np.uint64(1)

NOT_WHOLE = 1
TOO_LARGE = 2
LYING_LENGTH = 3
NO_TEXT = 4
NO_BRANCH = 5
NO_SYMBOL = 6
OUT_OF_RANGE = 7
NO_ROOM = 8
TOO_DEEP = 9
REASONS = (
    "",
    "the payload is longer or shorter than its record",
    "a number is too large for its type",
    "a length exceeds the payload",
    "a string is not UTF-8",
    "the branch of a union is out of range",
    "the symbol of an enum is out of range",
    "a date, time or decimal is out of range",
    "the column can't hold this branch of the union",
    "records are nested too deeply",
)
"""By fault."""


class Buffer:
    """The concatenated payloads."""

    __slots__ = ("_views", "bytes", "data", "last", "leaves_some", "words")

    def __init__(self, payloads: Sequence[bytes], *, leaves_some: bool) -> None:
        """`leaves_some`: whether payloads may be left to a reader of single payloads."""
        self.leaves_some = leaves_some
        self.data = b"".join((*payloads, PADDING))
        self.bytes: NDArray[np.uint8] = np.frombuffer(self.data, np.uint8)
        self.last = len(self.data) - len(PADDING)
        self._views: dict[str, NDArray[np.generic]] = {}
        self.words = self.view("<u8")

    def view(self, kind: str) -> NDArray[np.generic]:
        """The value of a type that starts at each byte."""
        found = self._views.get(kind)
        if found is None:
            size = np.dtype(kind).itemsize
            count = len(self.data) - size + 1
            found = np.ndarray((count,), kind, self.data, strides=(1,))
            self._views[kind] = found
        return found

    def texts(self, start: Longs, stop: Longs) -> pa.Array:
        """The bytes of the spans, as an Arrow array. Spans are in order and don't overlap."""
        count = len(start)
        if not count:
            return pa.array([], pa.binary())
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2] = start
        offsets[1::2] = stop
        # Every second value is the gap between two spans.
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        return spans.take(pa.array(np.arange(0, 2 * count, 2)))


class Cursor:
    """The read positions of some payloads, in the order of the buffer."""

    __slots__ = ("aside", "buffer", "end", "fault", "pos")

    def __init__(
        self,
        buffer: Buffer,
        pos: Longs,
        end: Longs,
        fault: NDArray[np.uint8],
        aside: Flags,
    ) -> None:
        self.buffer = buffer
        self.pos = pos
        self.end = end
        self.fault = fault
        self.aside = aside

    @classmethod
    def over(cls, payloads: Sequence[bytes], *, leaves_some: bool = True) -> Cursor:
        """A cursor at the start of each payload."""
        edges = np.fromiter(accumulate(map(len, payloads), initial=0), np.int64, len(payloads) + 1)
        count = len(payloads)
        faults = np.zeros(count, np.uint8)
        buffer = Buffer(payloads, leaves_some=leaves_some)
        return cls(buffer, edges[:-1].copy(), edges[1:], faults, np.zeros(count, bool))

    def __len__(self) -> int:
        return len(self.pos)

    def some(self, index: Longs) -> Cursor:
        """A cursor for some of the payloads."""
        return Cursor(
            self.buffer, self.pos[index], self.end[index], self.fault[index], self.aside[index]
        )

    def put(self, index: Longs, some: Cursor) -> None:
        """Copy the positions of `some` back."""
        self.pos[index] = some.pos
        self.fault[index] = some.fault
        self.aside[index] = some.aside

    def note(self, where: Flags, fault: int) -> None:
        """Record a fault of some payloads; the first one of each is reported."""
        if where.any():
            self.fault[where & (self.fault == 0)] = fault

    def finish(self) -> None:
        """Record a fault of payloads that weren't read to the end."""
        self.note(self.pos != self.end, NOT_WHOLE)

    def longs(self) -> Longs:
        """A number of each payload, in Avro's encoding of int and long."""
        at = np.minimum(self.pos, self.buffer.last)
        first = self.buffer.bytes[at]
        if not len(first) or first.max() < 0x80:
            self.pos += 1
            return (first >> 1).astype(np.int64) ^ -(first & 1).astype(np.int64)
        return self._wide(at)

    def _wide(self, at: Longs) -> Longs:
        words: NDArray[np.uint64] = self.buffer.words[at]  # type: ignore[assignment]
        stops = ~words & _SEVENTH
        low = stops & (~stops + _ONE)
        mask = (low - _ONE) | low
        size = (((mask & _ONES) * _ONES) >> np.uint64(56)).astype(np.int64)
        words &= mask & _LOW_SEVEN
        # Join the seven bits of each byte: into pairs, fours, all.
        words = (words & np.uint64(0x007F007F007F007F)) | (
            (words & np.uint64(0x7F007F007F007F00)) >> _ONE
        )
        words = (words & np.uint64(0x00003FFF00003FFF)) | (
            (words & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)
        )
        words = (words & np.uint64(0x000000000FFFFFFF)) | (
            (words & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)
        )
        longer = np.flatnonzero(stops == 0)
        if len(longer):
            ninth = self.buffer.bytes[at[longer] + 8].astype(np.uint64)
            tenth = self.buffer.bytes[at[longer] + 9].astype(np.uint64)
            has_tenth = ninth >= 0x80
            tenth[~has_tenth] = 0
            words[longer] |= ((ninth & np.uint64(0x7F)) << np.uint64(56)) | (tenth << np.uint64(63))
            size[longer] = 9 + has_tenth
            wrong = np.zeros(len(at), bool)
            wrong[longer] = tenth > 1
            self.note(wrong, TOO_LARGE)
        self.pos += size
        signed: Longs = (words >> _ONE).view(np.int64) ^ -((words & _ONE).view(np.int64))
        return signed

    def ints(self) -> Longs:
        """As `longs`, with 32 bits."""
        found = self.longs()
        self.note((found < -(1 << 31)) | (found >= 1 << 31), TOO_LARGE)
        return found

    def fixed(self, kind: str) -> NDArray[np.generic]:
        """A number of fixed size of each payload, by the name of its numpy type."""
        at = np.minimum(self.pos, self.buffer.last)
        found = self.buffer.view(kind)[at]
        self.pos += found.dtype.itemsize
        return found

    def spans(self, size: int | None = None) -> tuple[Longs, Longs]:
        """Start and end of the bytes of each payload: with a length prefix, or of a fixed size."""
        length = self.longs() if size is None else np.full(len(self), size)
        start = np.minimum(self.pos, self.end)
        wrong = (length < 0) | (length > self.end - self.pos)
        if wrong.any():
            self.note(wrong, LYING_LENGTH)
            length[wrong] = 0
        stop = start + length
        self.pos = stop.copy()
        return start, stop
