"""The chain of ledgers of one log, and arithmetic on its positions (pure; spec BR-01, BR-02).

Ledgers are added and removed at the ends only. Every readable entry has an *ordinal*: its number in
the order of writing since the chain was loaded. Trimming old ledgers doesn't change ordinals, so a
distance is a subtraction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from geminga_protocol.ids import EARLIEST, Position


class LedgerInfo:
    """One ledger of the chain. `entries` are durable; `closed_ms` is 0 while it is open."""

    __slots__ = ("base", "closed_ms", "entries", "ledger_id", "size_bytes")

    def __init__(
        self, ledger_id: int, entries: int = 0, size_bytes: int = 0, closed_ms: int = 0
    ) -> None:
        self.ledger_id = ledger_id
        self.entries = entries
        self.size_bytes = size_bytes
        self.closed_ms = closed_ms
        self.base = 0

    def __repr__(self) -> str:
        return f"<LedgerInfo {self.ledger_id}: {self.entries} entries, {self.size_bytes} bytes>"

    def position(self, entry_id: int) -> Position:
        """The position of that entry of this ledger."""
        return Position(self.ledger_id, entry_id)


class LedgerChain:
    """Ledgers in ascending order of ids; only the last may still grow."""

    __slots__ = ("_by_id", "_ids", "get", "ledgers")

    def __init__(self) -> None:
        self.ledgers: list[LedgerInfo] = []
        self._ids: list[int] = []
        self._by_id: dict[int, LedgerInfo] = {}
        self.get = self._by_id.get
        """The ledger with this id, or None."""

    def __iter__(self) -> Iterator[LedgerInfo]:
        return iter(self.ledgers)

    def __len__(self) -> int:
        return len(self.ledgers)

    @property
    def entries(self) -> int:
        """Durable entries in all ledgers."""
        return self._end() - self.ledgers[0].base if self.ledgers else 0

    @property
    def size_bytes(self) -> int:
        """Bytes of entries in all ledgers."""
        return sum([ledger.size_bytes for ledger in self.ledgers])

    def add(self, ledger: LedgerInfo) -> None:
        """Add a ledger at the end. Its id must be the highest: ids ascend in order of creation."""
        assert not self._ids or ledger.ledger_id > self._ids[-1], "ledger ids must ascend"
        ledger.base = self._end()
        self.ledgers.append(ledger)
        self._ids.append(ledger.ledger_id)
        self._by_id[ledger.ledger_id] = ledger

    def extend(self, ledger: LedgerInfo, entries: int, closed_ms: int) -> None:
        """Set the recovered end of a ledger that was left open; it is closed now."""
        ledger.entries = entries
        ledger.closed_ms = max(closed_ms, 1)
        for before, after in pairwise(self.ledgers):
            after.base = before.base + before.entries

    def remove(self, ledger_id: int) -> None:
        """Remove the first ledger, or an empty one."""
        ledger = self._by_id[ledger_id]
        assert ledger.entries == 0 or ledger is self.ledgers[0], "only the ends of a chain come off"
        del self._by_id[ledger_id]
        index = self._ids.index(ledger_id)
        del self._ids[index], self.ledgers[index]

    def first_position(self) -> Position:
        """The position before the first existing entry."""
        if not self.ledgers:
            return EARLIEST
        return self.ledgers[0].position(-1)

    def last_position(self) -> Position:
        """The last durable entry; if there is none, before the first entry of the last ledger."""
        for ledger in reversed(self.ledgers):
            if ledger.entries:
                return ledger.position(ledger.entries - 1)
        return self.ledgers[-1].position(-1) if self.ledgers else EARLIEST

    def next_position(self, position: Position) -> Position:
        """The position of the following entry, or of the next one to be written."""
        ledger_id, entry_id = position
        ledger = self._by_id.get(ledger_id)
        if ledger is not None and entry_id + 1 < ledger.entries:
            return Position(ledger_id, entry_id + 1)
        for index in range(bisect_right(self._ids, ledger_id), len(self.ledgers)):
            if self.ledgers[index].entries:
                return self.ledgers[index].position(0)
        if not self.ledgers:
            return Position(ledger_id, entry_id + 1)
        return self.ledgers[-1].position(self.ledgers[-1].entries)

    def holds(self, position: Position) -> bool:
        """Whether a durable entry has this position."""
        ledger = self._by_id.get(position[0])
        return ledger is not None and 0 <= position[1] < ledger.entries

    def at_or_after(self, position: Position) -> Position:
        """The position itself if an entry has it, else as `next_position`."""
        ledger = self._by_id.get(position[0])
        if ledger is not None and 0 <= position[1] < ledger.entries:
            return position
        return self.next_position(position)

    def at_or_before(self, position: Position) -> Position:
        """The last entry at or before the position; before the first entry if there is none."""
        if self.holds(position):
            return position
        ledger_id, entry_id = position
        for index in range(bisect_right(self._ids, ledger_id) - 1, -1, -1):
            ledger = self.ledgers[index]
            last = ledger.entries - 1
            if ledger.ledger_id == ledger_id:
                last = min(last, entry_id)
            if last >= 0:
                return ledger.position(last)
        return self.first_position()

    def previous_position(self, position: Position) -> Position:
        """The last entry before the position; (first ledger, -1) at the beginning."""
        ledger_id, entry_id = position
        if entry_id < 0:
            ledger_id, entry_id = ledger_id - 1, (1 << 63) - 1
        return self.at_or_before(Position(ledger_id, entry_id - 1))

    def ordinal(self, position: Position) -> int:
        """Number of entries written up to the position, inclusive."""
        ledger_id, entry_id = position
        ledger = self._by_id.get(ledger_id)
        if ledger is None:
            index = bisect_right(self._ids, ledger_id)
            if index < len(self.ledgers):
                return self.ledgers[index].base
            return self._end()
        return ledger.base + max(0, min(entry_id + 1, ledger.entries))

    def at_ordinal(self, ordinal: int) -> Position:
        """The entry with that ordinal, counted from 1; clamped to existing entries."""
        for ledger in reversed(self.ledgers):
            if ledger.entries and ledger.base < ordinal:
                return ledger.position(min(ordinal - ledger.base, ledger.entries) - 1)
        return self.first_position()

    def entries_between(self, after: Position, upto: Position) -> int:
        """Number of entries in (after, upto]; 0 if `upto` is not after `after`."""
        return max(0, self.ordinal(upto) - self.ordinal(after))

    def _end(self) -> int:
        if not self.ledgers:
            return 0
        last = self.ledgers[-1]
        return last.base + last.entries
