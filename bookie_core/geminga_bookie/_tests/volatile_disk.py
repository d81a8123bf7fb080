"""A disk in memory that loses power: unsynced pages survive at random."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from pathlib import Path

from geminga_bookie.storage.disk import DiskUsage
from geminga_bookie.storage.journal_format import PAGE_BYTES
from geminga_protocol.buffers import Buffer


class _Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()

    def flush(self, pages: set[int]) -> None:
        """Those pages are on disk."""
        self.durable.extend(bytes(max(0, len(self.data) - len(self.durable))))
        for page in pages:
            piece = slice(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
            self.durable[piece] = self.data[piece]
        self.dirty -= pages


class _File:
    def __init__(self, disk: VolatileDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def read(self, size_bytes: int, offset: int) -> bytes:
        self._disk.step()
        return bytes(self._inode.data[offset : offset + size_bytes])

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._disk.step()
        self._write(buffers, offset)

    def _write(self, buffers: Sequence[Buffer], offset: int) -> set[int]:
        content = b"".join(buffers)
        data = self._inode.data
        data.extend(bytes(max(0, offset + len(content) - len(data))))
        data[offset : offset + len(content)] = content
        last = offset + max(len(content), 1) - 1
        pages = set(range(offset // PAGE_BYTES, last // PAGE_BYTES + 1))
        self._inode.dirty |= pages
        return pages

    def write_durably(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._disk.step()
        pages = self._write(buffers, offset)
        self._disk.step()  # in the middle of it
        self._inode.flush(pages)

    def reserve(self, size_bytes: int) -> None:
        self._disk.step()
        self._write([bytes(size_bytes)], 0)

    def sync(self) -> None:
        self._disk.step()
        self._inode.flush(set(self._inode.dirty))

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None: ...


class VolatileDisk:
    """Counts operations down to the loss of power, after which everything fails until `restart`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names: dict[Path, _Inode] = {}
        self._durable: dict[Path, _Inode] = {}
        self._changes: list[tuple[Path | None, Path | None, _Inode | None]] = []
        self.steps_left = -1
        self.is_off = False

    def step(self) -> None:
        """One operation; the last one does not happen."""
        self.steps_left -= 1
        if self.is_off or self.steps_left == 0:
            self.is_off = True
            raise OSError(errno.EIO, "no power")

    def restart(self) -> None:
        """What survived: a prefix of the changes of names, any pages that were not synced."""
        for change in self._changes[: self._chance.randint(0, len(self._changes))]:
            _apply(self._durable, change)
        self._changes = []
        self._names = dict(self._durable)
        for inode in self._names.values():
            inode.flush({page for page in inode.dirty if self._chance.random() < 0.5})
            inode.data = bytearray(inode.durable)
            inode.dirty = set()
        self.is_off = False
        self.steps_left = -1

    def _change(self, source: Path | None, target: Path | None, inode: _Inode | None) -> None:
        change = (source, target, inode)
        _apply(self._names, change)
        self._changes.append(change)

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> _File:
        self.step()
        if create:
            self._change(None, path, _Inode())
        if path not in self._names:
            raise FileNotFoundError(path)
        return _File(self, self._names[path])

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self._names if path.parent == directory)

    def make_directory(self, directory: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        self._change(source, target, self._names[source])

    def remove(self, path: Path) -> None:
        self.step()
        self._change(path, None, None)

    def sync_directory(self, directory: Path) -> None:
        self.step()
        for change in self._changes:
            _apply(self._durable, change)
        self._changes = []

    def usage(self, directory: Path) -> DiskUsage:
        return DiskUsage(1 << 40, 1 << 39)


def _apply(
    names: dict[Path, _Inode], change: tuple[Path | None, Path | None, _Inode | None]
) -> None:
    source, target, inode = change
    if source is not None:
        names.pop(source, None)
    if target is not None and inode is not None:
        names[target] = inode
