"""Chooses partitions of messages: the same at each attempt, since sequence ids are counted for each
partition (spec SP-06). Keys go to the same partitions as from other clients (JavaStringHash and
Murmur3_32Hash of the Java client).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pyspark_pulsar._options._write_options import Hashing, Routing
from pyspark_pulsar.errors import SchemaMismatch

Whole = npt.NDArray[np.int64]
_WORD = 0xFFFFFFFF
_LARGEST_INT = 0x7FFFFFFF


class Router:
    """Chooses the partitions of one topic's messages, for one task."""

    def __init__(
        self, partitions: int, routing: Routing, hashing: Hashing, run: int, start: int
    ) -> None:
        """Messages without key change the partition after each `run` of them, starting with
        partition `start`, so that tasks begin with different ones.
        """
        self._partitions = partitions
        self._is_single = routing is Routing.SINGLEPARTITION
        self._hash = java_hashes if hashing is Hashing.JAVASTRINGHASH else murmur_hashes
        self._run = run
        self._start = start
        self._turns = 0

    def choose(
        self, count: int, keys: Sequence[str | bytes | None] | None, told: Whole | None
    ) -> Whole:
        """The partitions of the next messages; `told` has those given by a column, -1 where it
        gives none. Raises SchemaMismatch.
        """
        chosen = np.full(count, -1, np.int64) if told is None else told
        if chosen.max(initial=-1) >= self._partitions:
            raise SchemaMismatch(
                "column __partition",
                f"has {int(chosen.max())}, but the topic has {self._partitions} partitions: drop "
                "the column, or give -1 where it doesn't matter",
            )
        if keys is not None:
            rows = np.array([key is not None for key in keys], np.bool_) & (chosen < 0)
            at = np.flatnonzero(rows)
            if len(at):
                texts = [_text(keys[row]) for row in at.tolist()]
                chosen = chosen.copy()
                chosen[at] = self._hash(texts) % self._partitions
        rest = np.flatnonzero(chosen < 0)
        if len(rest):
            chosen = chosen.copy()
            chosen[rest] = self._by_turn(len(rest))
        return chosen

    def _by_turn(self, count: int) -> Whole:
        if self._is_single:
            return np.full(count, self._start % self._partitions, np.int64)
        turns = np.arange(self._turns, self._turns + count, dtype=np.int64)
        self._turns += count
        found: Whole = (self._start + turns // self._run) % self._partitions
        return found


def _text(key: str | bytes | None) -> str:
    """Binary keys are sent, and hashed, as Base64."""
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    return key or ""


def java_hashes(texts: Sequence[str]) -> Whole:
    """String.hashCode of each text without the sign, all at once; it is defined on UTF-16."""
    encoded = [text.encode("utf-16-le", "surrogatepass") for text in texts]
    units = np.frombuffer(b"".join(encoded), np.dtype("<u2")).astype(np.uint32)
    lengths = np.array([len(each) // 2 for each in encoded], np.int64)
    ends = np.cumsum(lengths)
    # Each unit is multiplied by 31 to the power of the number of units after it.
    behind = np.repeat(ends, lengths) - np.arange(len(units)) - 1
    powers = np.ones(int(lengths.max(initial=0)) + 1, np.uint32)
    powers[1:] = 31
    powers = np.multiply.accumulate(powers, dtype=np.uint32)
    sums = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units * powers[behind], dtype=np.uint32, out=sums[1:])
    found: Whole = (sums[ends] - sums[ends - lengths]).astype(np.int64) & _LARGEST_INT
    return found


def murmur_hashes(texts: Sequence[str]) -> Whole:
    """Murmur3 of 32 bits of each text's UTF-8, without its sign."""
    return np.array([_murmur3(text.encode()) & _LARGEST_INT for text in texts], np.int64)


def _murmur3(data: bytes) -> int:
    found = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        found ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        found = ((found << 13 | found >> 19) * 5 + 0xE6546B64) & _WORD
    found ^= _mixed(int.from_bytes(data[whole:], "little"))
    found ^= len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & _WORD
    found = (found ^ found >> 13) * 0xC2B2AE35 & _WORD
    return found ^ found >> 16


def _mixed(word: int) -> int:
    word = word * 0xCC9E2D51 & _WORD
    return (word << 15 | word >> 17) * 0x1B873593 & _WORD
