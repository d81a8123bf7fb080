"""Files and index stores of the simulated disk: what a reader sees, and what is on the disk
(decision 21)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

from geminga_bookie.storage.key_value import Batch

PAGE_BYTES = 4096
SECTOR_BYTES = 512
_ZEROS = bytes(PAGE_BYTES)


class Loss(NamedTuple):
    """How much of what was not synced a loss of power takes: shares of 1."""

    kept: float
    torn: float

    @classmethod
    def draw(cls, chance: random.Random, *, tears: bool) -> Loss:
        """All in one of four, nothing in one of four; else by piece. With `tears` a page may be on
        the disk up to a sector."""
        shares = chance.choice(((0.0, 0.0), (1.0, 0.0), (0.5, 0.3), (0.8, 0.1)))
        return cls(shares[0], shares[1] * tears)

    def prefix(self, chance: random.Random, count: int) -> int:
        """How many of so many changes stay, the first ones."""
        if self.kept in (0.0, 1.0):
            return int(count * self.kept)
        return chance.randint(0, count)


class Inode:
    """Pages that are not there read as zeros."""

    __slots__ = ("_before", "_dirty", "_durable", "_durable_bytes", "_pages", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._pages: dict[int, bytes] = {}
        self._durable: dict[int, bytes] = {}
        self._durable_bytes = 0
        self._dirty: set[int] = set()
        self._before: tuple[dict[int, bytes], int, bytes, int] | None = None
        """Pages and size before the last write, its bytes and offset: a kill may cut it."""

    def clone(self) -> Inode:
        """The same, apart."""
        twin = Inode()
        twin.size_bytes, twin._durable_bytes = self.size_bytes, self._durable_bytes
        twin._pages, twin._durable = dict(self._pages), dict(self._durable)
        twin._dirty, twin._before = set(self._dirty), self._before
        return twin

    def read(self, size_bytes: int, offset: int) -> bytes:
        """As a `DiskFile` does."""
        end = min(offset + size_bytes, self.size_bytes)
        if end <= offset:
            return b""
        first = offset // PAGE_BYTES
        pages = range(first, (end - 1) // PAGE_BYTES + 1)
        data = b"".join([self._pages.get(page, _ZEROS) for page in pages])
        return data[offset - first * PAGE_BYTES : end - first * PAGE_BYTES]

    def write(self, content: bytes, offset: int) -> set[int]:
        """Returns the pages that are dirty by this."""
        if not content:
            return set()
        self._before = (dict(self._pages), self.size_bytes, content, offset)
        return self._write(content, offset)

    def _write(self, content: bytes, offset: int) -> set[int]:
        end = offset + len(content)
        pages = set(range(offset // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1)) if content else set()
        for page in pages:
            start = page * PAGE_BYTES
            low, high = max(offset, start), min(end, start + PAGE_BYTES)
            piece = content[low - offset : high - offset]
            if len(piece) < PAGE_BYTES:
                old = self._pages.get(page, _ZEROS)
                piece = old[: low - start] + piece + old[high - start :]
            self._pages[page] = piece
        self._dirty |= pages
        self.size_bytes = max(self.size_bytes, end)
        return pages

    def truncate(self) -> None:
        """Empty it. What is on the disk stays there until it is synced."""
        self._dirty.update(self._durable)
        self._pages = {}
        self.size_bytes = 0
        self._before = None

    def reserve(self, size_bytes: int) -> None:
        """Let it have that size, zeros behind its end."""
        self.size_bytes = max(self.size_bytes, size_bytes)
        self._before = None

    def flush(self, pages: Iterable[int] | None = None) -> None:
        """These pages, or all, are on the disk, and so much of the size as they need, or all."""
        chosen = set(self._dirty) if pages is None else self._dirty.intersection(pages)
        for page in chosen:
            self._put_durable(page, self._pages.get(page, _ZEROS))
        self._dirty -= chosen
        if pages is None:
            self._durable_bytes = self.size_bytes
        elif chosen:
            end = min(self.size_bytes, (max(chosen) + 1) * PAGE_BYTES)
            self._durable_bytes = max(self._durable_bytes, end)
        self._before = None

    def forget_dirty(self, loss: Loss, chance: random.Random) -> None:
        """A sync failed: the pages count as clean, and some are on the disk."""
        for page in sorted(self._dirty):
            self._put_durable(page, self._survivor(page, loss, chance))
        self._dirty.clear()
        self._before = None

    def cut(self, loss: Loss, chance: random.Random) -> None:
        """A kill: of the write under way any first pages were taken, or bytes if pages tear."""
        if self._before is not None:
            pages, self.size_bytes, content, offset = self._before
            self._pages = dict(pages)
            self._before = None
            end = offset + chance.randint(0, len(content))
            if not loss.torn and end < offset + len(content):
                end = max(offset, end // PAGE_BYTES * PAGE_BYTES)
            self._write(content[: end - offset], offset)

    def settle(self) -> None:
        """The write was done: a kill can't cut it any more."""
        self._before = None

    def lose(self, loss: Loss, chance: random.Random) -> None:
        """Power was lost, and is back."""
        low, high = sorted((self._durable_bytes, self.size_bytes))
        if loss.kept in (0.0, 1.0):
            size = self.size_bytes if loss.kept else self._durable_bytes
        else:
            size = chance.choice((low, high, chance.randint(low, high)))
        survivors = {
            page: self._survivor(page, loss, chance)
            for page in sorted(self._dirty)
            if page * PAGE_BYTES < size
        }
        for page, content in survivors.items():
            self._put_durable(page, content)
        pages = {page: data for page, data in self._durable.items() if page * PAGE_BYTES < size}
        if size % PAGE_BYTES and (last := size // PAGE_BYTES) in pages:
            pages[last] = pages[last][: size % PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
        self._pages, self._durable = pages, dict(pages)
        self.size_bytes = self._durable_bytes = size
        self._dirty.clear()
        self._before = None

    def _survivor(self, page: int, loss: Loss, chance: random.Random) -> bytes:
        """What is on the disk of a dirty page: the new, the old, or the new up to a sector."""
        new, old = self._pages.get(page, _ZEROS), self._durable.get(page, _ZEROS)
        drawn = chance.random()
        if drawn < loss.torn:
            cut = chance.randrange(0, PAGE_BYTES, SECTOR_BYTES)
            return new[:cut] + old[cut:]
        return new if drawn < loss.torn + loss.kept else old

    def _put_durable(self, page: int, content: bytes) -> None:
        self._durable[page] = content


class StoreNode:
    """What stands in a directory: keys, and the batches that are not on the disk."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []
        """Sorted. Never changed in place, nor is `data`: cursors hold them."""
        self._durable: dict[bytes, bytes] = {}
        self._pending: list[Batch] = []
        self._is_under_way = False

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.keys)) + sum(map(len, self.data.values()))

    def apply(self, batch: Batch) -> None:
        """Readers see it."""
        self._set(_applied(self.data, batch))
        self._pending.append(batch)
        self._is_under_way = True

    def _set(self, data: dict[bytes, bytes]) -> None:
        self.data, self.keys = data, sorted(data)

    def flush(self) -> None:
        """All batches are on the disk."""
        self._durable = self.data
        self._pending = []
        self._is_under_way = False

    def settle(self) -> None:
        """The last batch was written: a kill can't undo it any more."""
        self._is_under_way = False

    def lose(self, loss: Loss, chance: random.Random) -> None:
        """Power was lost, and is back."""
        for batch in self._pending[: loss.prefix(chance, len(self._pending))]:
            self._durable = _applied(self._durable, batch)
        self._set(self._durable)
        self._pending = []
        self._is_under_way = False

    def cut(self, loss: Loss, chance: random.Random) -> None:
        """A kill: the batch under way was written or not."""
        if self._is_under_way and chance.random() < 0.5:
            del self._pending[-1]
            data = self._durable
            for batch in self._pending:
                data = _applied(data, batch)
            self._set(data)
        self._is_under_way = False

    def clone(self) -> StoreNode:
        """The same, apart."""
        twin = StoreNode()
        twin.data, twin.keys, twin._durable = self.data, self.keys, self._durable
        twin._pending, twin._is_under_way = list(self._pending), self._is_under_way
        return twin


def _applied(data: dict[bytes, bytes], batch: Batch) -> dict[bytes, bytes]:
    data = dict(data)
    for key, value, end in batch.changes:
        if value is not None:
            data[key] = value
        elif end is None:
            data.pop(key, None)
        else:
            for doomed in [each for each in data if key <= each < end]:
                del data[doomed]
    return data
