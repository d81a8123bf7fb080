"""Steps that decode arrays and maps of all payloads: the first items of all, then the second ones,
and so on (spec SP-03).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from pyspark_pulsar._decode import _buffer as faults
from pyspark_pulsar._decode._buffer import Cursor, Longs
from pyspark_pulsar._decode._steps import Step

ITEMS_TOGETHER = 64
PAYLOADS_FEW = 64
"""Lists of more than ITEMS_TOGETHER items, if fewer payloads than this have them, are left to the
reader of single payloads: steps for so few cost more.
"""


class _Items:
    """Iterates over the items of all payloads."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    def read(self, at: Cursor) -> tuple[pa.Array, list[pa.Array]]:
        """Offsets of each payload's items, and the items, one array for each step."""
        rounds: list[list[pa.Array]] = []
        totals, owners = self._through(
            at, lambda some: rounds.append([each.read(some) for each in self._steps])
        )
        offsets = np.zeros(len(at) + 1, np.int32)
        np.cumsum(totals, out=offsets[1:])
        if len(rounds) < 2:
            return pa.array(offsets), rounds[0] if rounds else []
        order = pa.array(np.argsort(np.concatenate(owners), kind="stable"))
        joined = [pa.concat_arrays(each).take(order) for each in zip(*rounds, strict=True)]
        return pa.array(offsets), joined

    def skip(self, at: Cursor) -> None:
        """Skip the values."""

        def one(some: Cursor) -> None:
            for each in self._steps:
                each.skip(some)

        self._through(at, one)

    def _through(self, at: Cursor, one: Callable[[Cursor], None]) -> tuple[Longs, list[Longs]]:
        """The number of items of each payload, and the payloads with a first, second, ... item."""
        totals = np.zeros(len(at), np.int64)
        left = np.zeros(len(at), np.int64)
        going: Longs = np.arange(len(at))
        owners: list[Longs] = []
        while len(going):
            fresh = going[left[going] == 0]
            if len(fresh):
                left[fresh] = _block(at, fresh)
            at.note((at.pos > at.end) & (left > 0), faults.NOT_WHOLE)
            going = going[(left[going] > 0) & (at.fault[going] == 0)]
            is_long = len(owners) >= ITEMS_TOGETHER and len(going) < PAYLOADS_FEW
            if is_long and at.buffer.leaves_some:
                at.aside[going] = True
                break
            if len(going):
                some = at.some(going)
                one(some)
                at.put(going, some)
                owners.append(going)
                totals[going] += 1
                left[going] -= 1
        return totals, owners


def _block(at: Cursor, fresh: Longs) -> Longs:
    """The number of items of the next block, 0 at the end."""
    some = at.some(fresh)
    counts = some.longs()
    negative = np.flatnonzero(counts < 0)
    if len(negative):
        # The size of the block follows; it isn't needed.
        sized = some.some(negative)
        sized.longs()
        some.put(negative, sized)
        counts[negative] = -counts[negative]
    # An item has at least one byte.
    wrong = (counts < 0) | (counts > some.end - some.pos)
    some.note(wrong, faults.LYING_LENGTH)
    counts[wrong] = 0
    at.put(fresh, some)
    return counts


class ListStep:
    """Arrays."""

    def __init__(self, made: pa.DataType, item: Step) -> None:
        self._type = made
        self._items = _Items([item])
        self.skip = self._items.skip

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        offsets, columns = self._items.read(at)
        items = columns[0] if columns else pa.nulls(0, self._type.value_type)
        return pa.ListArray.from_arrays(offsets, items, type=self._type)


class MapStep:
    """Maps with string keys."""

    def __init__(self, made: pa.DataType, key: Step, value: Step) -> None:
        self._type = made
        self._items = _Items([key, value])
        self.skip = self._items.skip

    def read(self, at: Cursor) -> pa.Array:
        """The values."""
        offsets, columns = self._items.read(at)
        if not columns:
            columns = [pa.nulls(0, self._type.key_type), pa.nulls(0, self._type.item_type)]
        return pa.MapArray.from_arrays(offsets, *columns, type=self._type)
