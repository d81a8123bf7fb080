"""Sets of a batch's unacknowledged messages: words of a java.util.BitSet (spec PR-08, PIP-54).

A set is a tuple of signed 64-bit words, lowest bits first, without trailing zero words, as
BitSet.toLongArray returns them and `repeated int64 ack_set` holds them. A set bit is an
unacknowledged message, so the empty tuple means that all are acknowledged. On the wire an empty
field is an absent one, which the receiver reads as "none acknowledged".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

AckSet = tuple[int, ...]

WORDS_MAX = 1 << 14
"""Bound of a peer's set: no batch has more than a million messages."""

_WORD = (1 << 64) - 1


def to_bits(words: Iterable[int]) -> int:
    """The set as one unsigned number; bit n is message n."""
    unsigned = [word & _WORD for word in words]
    return int.from_bytes(struct.pack(f"<{len(unsigned)}Q", *unsigned), "little")


def from_bits(bits: int) -> AckSet:
    """The inverse of `to_bits`."""
    count = (bits.bit_length() + 63) // 64
    return struct.unpack(f"<{count}q", bits.to_bytes(8 * count, "little"))


def full(batch_size: int) -> AckSet:
    """All messages of the batch unacknowledged."""
    return from_bits((1 << batch_size) - 1)


def and_(first: Iterable[int], second: Iterable[int]) -> AckSet:
    """Messages that neither has acknowledged: the sum of two acknowledgements of one batch."""
    return from_bits(to_bits(first) & to_bits(second))


def without(words: Iterable[int], index: int) -> AckSet:
    """The same with message `index` acknowledged."""
    return from_bits(to_bits(words) & ~(1 << index))


def cumulative(batch_size: int, index: int) -> AckSet:
    """Messages 0..index acknowledged, the rest of the batch not."""
    return from_bits((1 << batch_size) - 1 & ~((1 << index + 1) - 1))


def is_empty(words: Iterable[int]) -> bool:
    """Whether every message is acknowledged."""
    return not any(words)


def cardinality(words: Iterable[int]) -> int:
    """The number of unacknowledged messages."""
    return sum((word & _WORD).bit_count() for word in words)


def contains(words: Iterable[int], index: int) -> bool:
    """Whether message `index` is not acknowledged yet."""
    return bool(to_bits(words) >> index & 1)


def indexes(words: Iterable[int]) -> Iterator[int]:
    """The unacknowledged messages, ascending."""
    bits = to_bits(words)
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
