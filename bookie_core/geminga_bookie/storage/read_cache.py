"""The read cache (spec BK-05): read-ahead blocks by ledger, bounded in bytes. Pure."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from itertools import islice
from typing import NamedTuple

from geminga_bookie.storage.write_cache import take_bounded

IDLE_CACHES = 8
"""A ledger counts as no longer read after this many cache sizes were loaded since its last read."""
WINDOW_BYTES_MIN = 128 * 1024
"""Read-ahead below this size is not worth its read."""
SEARCHED_MAX = 256
"""Ledgers that are looked at for one put."""


class CachedBlock(NamedTuple):
    """Consecutive entries, as read from an entry log."""

    first: int
    packets: list[bytes]
    size_bytes: int


class _LedgerBlocks:
    __slots__ = (
        "blocks",
        "firsts",
        "next_entry",
        "read_to",
        "size_bytes",
        "used_at",
        "window_bytes",
        "window_from",
    )

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.blocks: OrderedDict[int, CachedBlock] = OrderedDict()
        self.size_bytes = 0
        self.read_to = -1
        self.next_entry = 0
        """The entry behind the last one that was read."""
        self.window_from = -1
        self.window_bytes = 0
        self.used_at = 0


class ReadCache:
    """Blocks, evicted so that a ledger's catch-up reading evicts its own older blocks first.

    First, ledgers that are no longer read. Then the oldest block of a ledger above its equal share,
    except its last two windows, as a reader is still in one when the other is loaded. Then a block
    that its reader has passed, of the ledgers that were not read for longest. Otherwise the least
    recently read ledger's.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._ledgers: OrderedDict[int, _LedgerBlocks] = OrderedDict()
        self._loaded_bytes = 0
        self.size_bytes = 0

    def get(
        self, ledger_id: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> list[bytes] | None:
        """Packets from that entry on, across blocks, at least one; None if it isn't cached."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return None
        found: list[bytes] = []
        while entries_max > 0 and bytes_max > 0:
            place = bisect_right(ledger.firsts, entry_id) - 1
            if place < 0:
                break
            block = ledger.blocks[ledger.firsts[place]]
            index = entry_id - block.first
            if index >= len(block.packets):
                break
            if index == 0 and len(block.packets) <= entries_max and block.size_bytes <= bytes_max:
                part, size = block.packets, block.size_bytes
            else:
                part = take_bounded(block.packets, index, entries_max, bytes_max)
                size = sum(map(len, part))
                if found and size > bytes_max:
                    break
            found += part
            entries_max -= len(part)
            bytes_max -= size
            entry_id += len(part)
        if not found:
            return None
        ledger.next_entry = entry_id
        self._touch(ledger_id, ledger)
        return found

    def _touch(self, ledger_id: int, ledger: _LedgerBlocks) -> None:
        ledger.used_at = self._loaded_bytes
        self._ledgers.move_to_end(ledger_id)

    def window_end(self, ledger_id: int) -> int:
        """The entry after the last read-ahead one; -1 if there is none."""
        ledger = self._ledgers.get(ledger_id)
        return -1 if ledger is None else ledger.read_to

    def is_near_end(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a reader at that entry is in the second half of the last window."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return False
        return (ledger.window_from + ledger.read_to) // 2 <= entry_id <= ledger.read_to

    def window_bytes_max(self) -> int:
        """How much may be read ahead at once, so that two windows of each ledger that was read
        since the cache was filled anew have room."""
        readers = 1
        # With more of them the answer is the same.
        most = self._size_bytes_max // (2 * WINDOW_BYTES_MIN)
        for ledger in islice(reversed(self._ledgers.values()), most):
            if self._loaded_bytes - ledger.used_at > self._size_bytes_max:
                break
            readers += 1
        return max(WINDOW_BYTES_MIN, self._size_bytes_max // (2 * readers))

    def put(self, ledger_id: int, blocks: list[CachedBlock]) -> None:
        """Add read-ahead blocks."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = _LedgerBlocks()
        window_bytes = sum(block.size_bytes for block in blocks)
        self._loaded_bytes += window_bytes
        self._touch(ledger_id, ledger)
        ledger.window_from = blocks[0].first
        for block in blocks:
            if block.first in ledger.blocks:
                self._evict(ledger_id, block.first)
            ledger.blocks[block.first] = block
            insort(ledger.firsts, block.first)
            ledger.size_bytes += block.size_bytes
            self.size_bytes += block.size_bytes
            ledger.read_to = block.first + len(block.packets)
        needed = ledger.window_bytes + window_bytes
        ledger.window_bytes = window_bytes
        passed = self._passed(ledger_id) if self.size_bytes > self._size_bytes_max else []
        while self.size_bytes > self._size_bytes_max:
            victim = self._victim(ledger_id, needed, passed)
            self._evict(victim, next(iter(self._ledgers[victim].blocks)))
            if not self._ledgers[victim].blocks:
                del self._ledgers[victim]

    def _victim(self, ledger_id: int, needed_bytes: int, passed: list[int]) -> int:
        """The ledger whose oldest block is evicted for blocks of that size of `ledger_id`."""
        oldest, unused = next(iter(self._ledgers.items()))
        if self._loaded_bytes - unused.used_at > IDLE_CACHES * self._size_bytes_max:
            return oldest
        share = max(self._size_bytes_max // len(self._ledgers), needed_bytes)
        own = self._ledgers.get(ledger_id)
        if own is not None and own.size_bytes > share:
            return ledger_id
        while passed and not self._is_passed(passed[-1]):
            passed.pop()
        return passed[-1] if passed else oldest

    def _passed(self, ledger_id: int) -> list[int]:
        """Other ledgers whose oldest block was read to its end; the least recently read one is the
        last.
        """
        found = [
            each
            for each in islice(self._ledgers, SEARCHED_MAX)
            if each != ledger_id and self._is_passed(each)
        ]
        return found[::-1]

    def _is_passed(self, ledger_id: int) -> bool:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return False
        block = ledger.blocks[next(iter(ledger.blocks))]
        return block.first + len(block.packets) <= ledger.next_entry

    def _evict(self, ledger_id: int, first: int) -> None:
        ledger = self._ledgers[ledger_id]
        block = ledger.blocks.pop(first)
        ledger.firsts.remove(first)
        ledger.size_bytes -= block.size_bytes
        self.size_bytes -= block.size_bytes

    def drop(self, ledger_id: int) -> None:
        """Forget a deleted ledger."""
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is not None:
            self.size_bytes -= ledger.size_bytes
