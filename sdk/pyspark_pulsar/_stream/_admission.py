"""Chooses how much of each topic goes into a micro-batch (spec SP-05). Pure.

Limits are shared evenly by the topics with messages; a topic's unused share goes to the others.
Messages are counted exactly, also within batches; bytes by whole entries. At least one entry, or
message, is always taken, of another topic each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark_pulsar._positions import Position


@dataclass(frozen=True, slots=True)
class Head:
    """Messages of one entry, for a limit: the entry's position, the messages' batch indexes, and
    the bytes of their payloads.
    """

    entry: Position
    indexes: Sequence[int]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of one micro-batch; infinite if unlimited."""

    messages: float = math.inf
    size_bytes: float = math.inf

    @property
    def is_none(self) -> bool:
        """Whether there is no limit."""
        return self.messages == self.size_bytes == math.inf


class _Queue:
    """The entries of one topic, and how far they are taken."""

    def __init__(self, heads: Iterator[Head], end: Position) -> None:
        self._heads = heads
        self._end = end
        self._head = next(heads, None)
        self._at = 0
        self.taken_to: Position | None = None
        """The last position taken, None if none."""
        if self._head is None:
            # No readable messages: the range is done.
            self.taken_to = end

    @property
    def is_over(self) -> bool:
        return self._head is None

    def take(self, messages: float, size_bytes: float, *, at_least_one: bool) -> tuple[int, float]:
        """Take up to that much; returns how much was taken."""
        all_messages, all_bytes = 0, 0.0
        while self._head is not None and messages >= 1:
            left = len(self._head.indexes) - self._at
            count = int(min(left, messages))
            share = self._head.size_bytes * count / len(self._head.indexes)
            if share > size_bytes and not at_least_one:
                break
            at_least_one = False
            self._pass(self._head, count)
            messages -= count
            size_bytes -= share
            all_messages += count
            all_bytes += share
        return all_messages, all_bytes

    def _pass(self, head: Head, count: int) -> None:
        self._at += count
        if self._at < len(head.indexes):
            ledger_id, entry_id, _ = head.entry
            self.taken_to = Position(ledger_id, entry_id, head.indexes[self._at - 1])
            return
        self.taken_to = head.entry
        self._head = next(self._heads, None)
        self._at = 0
        if self._head is None:
            # Nothing between the last message and the end can be read.
            self.taken_to = self._end


@dataclass(frozen=True, slots=True)
class Admitted:
    """The end of each topic in a micro-batch (topics without messages taken are left out), and the
    number of messages.
    """

    ends: Mapping[str, Position]
    messages: int


def admit(
    topics: Mapping[str, tuple[Iterator[Head], Position]], limit: Limit, *, turn: int
) -> Admitted:
    """Choose what to take of each topic's entries, given with their end position. `turn` counts
    micro-batches: another topic is first each time.
    """
    queues = {name: _Queue(heads, end) for name, (heads, end) in topics.items()}
    order = list(queues)
    if order:
        first = turn % len(order)
        order = order[first:] + order[:first]
    left_messages, left_bytes = limit.messages, limit.size_bytes
    total = 0
    active = [name for name in order if not queues[name].is_over]
    while active and left_messages >= 1:
        share_messages = max(1.0, left_messages / len(active))
        share_bytes = left_bytes / len(active)
        round_total = 0
        for name in active:
            messages, size_bytes = queues[name].take(
                min(share_messages, left_messages), share_bytes, at_least_one=False
            )
            left_messages -= messages
            left_bytes -= size_bytes
            round_total += messages
        total += round_total
        if not round_total:
            total += _rest(active, queues, left_messages, left_bytes, is_first=not total)
            break
        active = [name for name in active if not queues[name].is_over]
    ends = {name: queues[name].taken_to for name in queues}
    return Admitted({name: end for name, end in ends.items() if end is not None}, total)


def _rest(
    active: list[str],
    queues: Mapping[str, _Queue],
    messages: float,
    size_bytes: float,
    *,
    is_first: bool,
) -> int:
    """No entry fits into its topic's share: take whole entries while they fit the rest of the
    limits.
    """
    total = 0
    for name in active:
        taken, taken_bytes = queues[name].take(messages, size_bytes, at_least_one=is_first)
        is_first = is_first and not taken
        messages -= taken
        size_bytes -= taken_bytes
        total += taken
    return total
