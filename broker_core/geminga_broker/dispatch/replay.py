"""Entries that are to be sent again, by position (spec BR-33)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from sortedcontainers import SortedDict

from geminga_protocol.ids import Position

NO_HASH = -1


class ReplayQueue:
    """Positions to be read again, ascending, each with its Key_Shared hash (or NO_HASH).

    Bounded by what was sent and not acknowledged, plus Key_Shared's look-ahead.
    """

    __slots__ = ("_by_position", "_hashes")

    def __init__(self) -> None:
        self._by_position: SortedDict = SortedDict()
        self._hashes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_position)

    def __contains__(self, position: Position) -> bool:
        return position in self._by_position

    def add(self, position: Position, key_hash: int = NO_HASH) -> None:
        """Send this entry again. Adding it twice is adding it once."""
        if position in self._by_position:
            return
        self._by_position[position] = key_hash
        if key_hash != NO_HASH:
            self._hashes[key_hash] = self._hashes.get(key_hash, 0) + 1

    def discard(self, position: Position) -> None:
        """It was acknowledged, or is being sent."""
        key_hash = self._by_position.pop(position, None)
        if key_hash is None or key_hash == NO_HASH:
            return
        count = self._hashes[key_hash] - 1
        if count:
            self._hashes[key_hash] = count
        else:
            del self._hashes[key_hash]

    def holds_hash(self, key_hash: int) -> bool:
        """Whether an entry of that hash waits."""
        return key_hash in self._hashes

    def first(self, entries_max: int) -> list[Position]:
        """The lowest positions."""
        return list(islice(self._by_position, entries_max))

    def first_where(
        self, entries_max: int, may_go: Callable[[int], bool]
    ) -> list[tuple[Position, int]]:
        """The lowest positions whose hash may go, with the hash; each hash is asked about once."""
        verdicts: dict[int, bool] = {key_hash: may_go(key_hash) for key_hash in self._hashes}
        if not any(verdicts.values()):
            return []
        found: list[tuple[Position, int]] = []
        for position, key_hash in self._by_position.items():
            if verdicts[key_hash]:
                found.append((position, key_hash))
                if len(found) == entries_max:
                    break
        return found

    def clear(self) -> None:
        """Forget all."""
        self._by_position.clear()
        self._hashes.clear()
