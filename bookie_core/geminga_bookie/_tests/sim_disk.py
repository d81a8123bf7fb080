"""A disk in memory that loses power, or whose process is killed, in any step (decision 21)."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeAlias

from geminga_bookie._tests.sim_nodes import PAGE_BYTES, Inode, Loss, StoreNode
from geminga_bookie.storage.disk import DirectoryLock, DiskUsage
from geminga_protocol.buffers import Buffer

Node: TypeAlias = "Inode | Directory | StoreNode"
_Change = tuple[str | None, str | None, "Node | None"]


class Off(OSError):
    """There is no power, or no process any more that could do it."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, "off, by the simulation")


class Directory:
    """Names. Those of changes that were not synced are on the disk or not, in order."""

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self._durable: dict[str, Node] = {}
        self._changes: list[_Change] = []

    def change(self, removed: str | None, added: str | None, node: Node | None) -> None:
        """Take a name away, add one, or both at once."""
        change = (removed, added, node)
        _apply(self.entries, change)
        self._changes.append(change)

    def flush(self) -> None:
        """All names are on the disk."""
        self._durable = dict(self.entries)
        self._changes = []

    def lose(self, loss: Loss, chance: random.Random) -> None:
        """Power was lost, and is back; of all that is in it too."""
        for change in self._changes[: loss.prefix(chance, len(self._changes))]:
            _apply(self._durable, change)
        self.entries = dict(self._durable)
        self._changes = []
        for name in sorted(self.entries):
            self.entries[name].lose(loss, chance)

    def cut(self, loss: Loss, chance: random.Random) -> None:
        """A kill."""
        for name in sorted(self.entries):
            self.entries[name].cut(loss, chance)

    def clone(self) -> Directory:
        """The same, apart."""
        twins: dict[int, Node] = {}

        def twin_of(node: Node) -> Node:
            if id(node) not in twins:
                twins[id(node)] = node.clone()
            return twins[id(node)]

        twin = Directory()
        twin.entries = {name: twin_of(node) for name, node in self.entries.items()}
        twin._durable = {name: twin_of(node) for name, node in self._durable.items()}
        twin._changes = [
            (removed, added, None if node is None else twin_of(node))
            for removed, added, node in self._changes
        ]
        return twin

    @property
    def size_bytes(self) -> int:
        """Room that all in it takes, in pages."""
        return sum(_page_round(node.size_bytes) for node in self.entries.values())


def _apply(entries: dict[str, Node], change: _Change) -> None:
    removed, added, node = change
    if removed is not None:
        entries.pop(removed, None)
    if added is not None and node is not None:
        entries[added] = node


def _page_round(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def _refuse(code: int, path: Path) -> NoReturn:
    raise OSError(code, os.strerror(code), str(path))


class SimDisk:
    """A `Disk`. `crash_at` is the number of the step in which it crashes. With `tears` a page is
    not always written whole or not at all."""

    def __init__(
        self, seed: int | str = 0, *, capacity_bytes: int = 1 << 40, tears: bool = False
    ) -> None:
        self.chance = random.Random(f"disk {seed}")
        self.capacity_bytes = capacity_bytes
        self.tears = tears
        self.steps = 0
        self.crash_at = -1
        self.is_off = False
        self.epoch = 0
        """Number of starts: what was opened before the last one is dead."""
        self.fault: Callable[[str, Path], int] = lambda _operation, _path: 0
        """Asked in each step for the number of an error, 0 for none."""
        self.in_step: Callable[[str, Path], None] = lambda _operation, _path: None
        """Called in each step, when it was begun and has made nothing durable yet."""
        self.crashed: Callable[[], None] = lambda: None
        """Called when step `crash_at` has come."""
        self.root = Directory()
        self._locks: set[Path] = set()

    # ---- for tests ----

    def clone(self, seed: int | str) -> SimDisk:
        """A copy of this moment that can crash and be started by itself."""
        twin = SimDisk(seed, capacity_bytes=self.capacity_bytes, tears=self.tears)
        twin.root = self.root.clone()
        return twin

    def stop(self) -> None:
        """From now on everything fails."""
        self.is_off = True

    def start_after_power_loss(self, loss: Loss | None = None) -> None:
        """Only what is on the disk is there."""
        self.root.lose(loss or self.draw_loss(), self.chance)
        self._start()

    def start_after_kill(self) -> None:
        """All is there; of the write under way any first bytes."""
        self.root.cut(Loss(1.0, float(self.tears)), self.chance)
        self._start()

    def draw_loss(self) -> Loss:
        """How much is lost of what was not synced."""
        return Loss.draw(self.chance, tears=self.tears)

    def _start(self) -> None:
        self.epoch += 1
        self.is_off = False
        self.crash_at = -1
        self._locks.clear()

    # ---- steps ----

    def begin(self, operation: str, path: Path, epoch: int | None = None) -> None:
        """A step begins; `epoch` is the one in which what is used was opened."""
        if self.is_off or (epoch is not None and epoch != self.epoch):
            raise Off
        self.steps += 1
        code = self.fault(operation, path)
        if code:
            raise OSError(code, f"injected at {operation}", str(path))

    def middle(self, operation: str, path: Path) -> None:
        """It has changed what readers see, and made nothing durable: it may crash here."""
        self.in_step(operation, path)
        if self.steps == self.crash_at:
            self.is_off = True
            self.crashed()
        if self.is_off:
            raise Off

    def take_room(self, size_bytes: int, path: Path) -> None:
        """Raises OSError if so much more doesn't fit."""
        if size_bytes > 0 and self.usage(path).free_bytes < size_bytes:
            _refuse(errno.ENOSPC, path)

    def check_on(self, epoch: int) -> None:
        """For what is no step."""
        if self.is_off or epoch != self.epoch:
            raise Off

    def find(self, path: Path) -> Node | None:
        """What stands there."""
        node: Node = self.root
        for name in path.parts[1:]:
            found = node.entries.get(name) if isinstance(node, Directory) else None
            if found is None:
                return None
            node = found
        return node

    def directory(self, path: Path) -> Directory:
        """Raises FileNotFoundError."""
        node = self.find(path)
        if not isinstance(node, Directory):
            _refuse(errno.ENOENT, path)
        return node

    # ---- Disk ----

    def open(
        self, path: Path, *, create: bool = False, writable: bool = True, direct: bool = False
    ) -> SimFile:
        """See `Disk.open`. All that isn't synced may be lost, however it is written."""
        self.check_on(self.epoch)
        parent = self.directory(path.parent)
        node = parent.entries.get(path.name)
        if create:
            self.begin("create", path)
            if isinstance(node, Inode):
                node.truncate()
            else:
                node = Inode()
                parent.change(None, path.name, node)
            self.middle("create", path)
        if not isinstance(node, Inode):
            _refuse(errno.ENOENT, path)
        return SimFile(self, node, path)

    def names(self, directory: Path) -> list[str]:
        """See `Disk.names`."""
        self.check_on(self.epoch)
        node = self.find(directory)
        return sorted(node.entries) if isinstance(node, Directory) else []

    def has_directory(self, directory: Path) -> bool:
        """See `Disk.has_directory`."""
        self.check_on(self.epoch)
        return self.find(directory) is not None

    def make_directory(self, directory: Path) -> None:
        """See `Disk.make_directory`."""
        parent = self.directory(directory.parent)
        if directory.name not in parent.entries:
            self.begin("mkdir", directory)
            parent.change(None, directory.name, Directory())
            self.middle("mkdir", directory)

    def lock(self, path: Path) -> DirectoryLock:
        """See `Disk.lock`."""
        self.check_on(self.epoch)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", str(path))
        if self.find(path) is None:
            self.open(path, create=True)
        self._locks.add(path)
        return _Lock(self, path)

    def unlock(self, path: Path, epoch: int) -> None:
        """For its `lock`."""
        if epoch == self.epoch:
            self._locks.discard(path)

    def rename(self, source: Path, target: Path) -> None:
        """See `Disk.rename`; within one directory."""
        assert source.parent == target.parent
        self.begin("rename", target)
        parent = self.directory(source.parent)
        if source.name not in parent.entries:
            _refuse(errno.ENOENT, source)
        parent.change(source.name, target.name, parent.entries[source.name])
        self.middle("rename", target)

    def remove(self, path: Path) -> None:
        """See `Disk.remove`."""
        self.begin("remove", path)
        node = self.find(path.parent)
        if isinstance(node, Directory) and path.name in node.entries:
            node.change(path.name, None, None)
        self.middle("remove", path)

    def sync_directory(self, directory: Path) -> None:
        """See `Disk.sync_directory`."""
        self.begin("sync-directory", directory)
        node = self.directory(directory)
        self.middle("sync-directory", directory)
        node.flush()

    def usage(self, directory: Path) -> DiskUsage:
        """See `Disk.usage`; one file system holds all."""
        used = self.root.size_bytes
        return DiskUsage(self.capacity_bytes, max(0, self.capacity_bytes - used))


class _Lock:
    def __init__(self, disk: SimDisk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._epoch = disk.epoch

    def release(self) -> None:
        self._disk.unlock(self._path, self._epoch)


class SimFile:
    """A `DiskFile`."""

    def __init__(self, disk: SimDisk, inode: Inode, path: Path) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._epoch = disk.epoch

    def read(self, size_bytes: int, offset: int) -> bytes:
        """See `DiskFile.read`."""
        self._disk.check_on(self._epoch)
        return self._inode.read(size_bytes, offset)

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """See `DiskFile.write`."""
        self._write("write", buffers, offset)
        self._inode.settle()

    def _write(self, operation: str, buffers: Sequence[Buffer], offset: int) -> set[int]:
        self._disk.begin(operation, self._path, self._epoch)
        content = b"".join(buffers)
        size = self._inode.size_bytes
        self._disk.take_room(_page_round(offset + len(content)) - _page_round(size), self._path)
        pages = self._inode.write(content, offset)
        self._disk.middle(operation, self._path)
        return pages

    def write_durably(self, buffers: Sequence[Buffer], offset: int) -> None:
        """See `DiskFile.write_durably`. A fault of "sync" finds it written."""
        pages = self._write("write", buffers, offset)
        self._sync(pages)

    def reserve(self, size_bytes: int) -> None:
        """See `DiskFile.reserve`."""
        self._disk.begin("reserve", self._path, self._epoch)
        self._disk.take_room(_page_round(size_bytes), self._path)
        self._inode.reserve(size_bytes)
        self._disk.middle("reserve", self._path)

    def drop_cached(self, begin: int, end: int) -> None:
        """See `DiskFile.drop_cached`."""

    def sync(self) -> None:
        """See `DiskFile.sync`."""
        self._sync(None)

    def _sync(self, pages: set[int] | None) -> None:
        try:
            self._disk.begin("sync", self._path, self._epoch)
        except Off:
            raise
        except OSError:
            self._inode.forget_dirty(self._disk.draw_loss(), self._disk.chance)
            raise
        self._disk.middle("sync", self._path)
        self._inode.flush(pages)

    def size(self) -> int:
        """See `DiskFile.size`."""
        self._disk.check_on(self._epoch)
        return self._inode.size_bytes

    def close(self) -> None:
        """See `DiskFile.close`."""
