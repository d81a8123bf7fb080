"""Builds the bytes of many rows at once: rows of cells, some of them masked, and byte strings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Cells = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Whole = npt.NDArray[np.int64]


class Parts:
    """The parts of the rows of a batch, from left to right."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._cells: list[Cells] = []
        self._masks: list[Mask] = []
        self._done: list[pa.Array] = []

    def cells(self, cells: Cells, mask: Mask) -> None:
        """Append to each row the bytes of `cells` that the mask selects."""
        self._cells.append(cells)
        self._masks.append(mask)

    def texts(self, texts: pa.Array) -> None:
        """Append a large_binary array without nulls."""
        self._flush()
        self._done.append(texts)

    def _flush(self) -> None:
        """Join adjacent cells into one array."""
        if not self._cells:
            return
        cells, mask = np.hstack(self._cells), np.hstack(self._masks)
        self._cells, self._masks = [], []
        ends = np.zeros(self.rows + 1, np.int64)
        np.cumsum(mask.sum(axis=1), out=ends[1:])
        self._done.append(binary(ends, cells[mask]))

    def joined(self) -> pa.Array:
        """Each row's bytes, as large_binary."""
        self._flush()
        if not self._done:
            return binary(np.zeros(self.rows + 1, np.int64), np.zeros(0, np.uint8))
        if len(self._done) == 1:
            return self._done[0]
        separator = pa.scalar(b"", pa.large_binary())
        return pc.binary_join_element_wise(*self._done, separator)


def binary(offsets: Whole, data: Cells | pa.Buffer) -> pa.Array:
    """A large_binary array of these bytes, split at these offsets."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def parts_of(texts: pa.Array) -> tuple[Whole, pa.Buffer]:
    """Offsets and bytes of a large_binary array without nulls."""
    _, offsets, data = texts.buffers()
    begin = texts.offset
    found = np.frombuffer(offsets, np.int64)[begin : begin + len(texts) + 1]
    return found, pa.py_buffer(b"") if data is None else data


def all_of(rows: int) -> Mask:
    """A mask that selects everything."""
    return np.ones(rows, np.bool_)


def zigzag(values: Whole, present: Mask) -> tuple[Cells, Mask]:
    """Integers in Avro's encoding: 7 bits a byte, lowest first, the sign in the lowest bit."""
    bits = ((values << 1) ^ (values >> 63)).view(np.uint64)
    bits = np.where(present, bits, np.uint64(0))
    largest = int(bits.max()) if len(bits) else 0
    width = max(1, (largest.bit_length() + 6) // 7)
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    left = bits[:, None] >> shifts
    mask = left != 0
    mask[:, 0] = True
    cells = (left & np.uint64(0x7F)).astype(np.uint8)
    cells[:, :-1] |= mask[:, 1:].astype(np.uint8) << 7
    return cells, mask & present[:, None]


def fixed(values: npt.NDArray[np.generic]) -> Cells:
    """The bytes of numbers of one size, in the order of the array's type."""
    raw = np.ascontiguousarray(values)
    return raw.view(np.uint8).reshape(len(raw), raw.dtype.itemsize)
