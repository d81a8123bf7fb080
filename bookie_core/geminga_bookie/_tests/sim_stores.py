"""The index's store on the simulated disk: batches that were not synced vanish (decision 21)."""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right
from pathlib import Path

from geminga_bookie._tests.sim_disk import SimDisk
from geminga_bookie._tests.sim_nodes import StoreNode
from geminga_bookie.storage.key_value import Batch

_CHANGE_BYTES = 64


class SimCursor:
    """A `Cursor` over one moment."""

    def __init__(self, node: StoreNode) -> None:
        self._keys, self._data = node.keys, node.data
        self._place = -1

    def seek(self, key: bytes) -> None:
        """See `Cursor.seek`."""
        self._place = bisect_left(self._keys, key)

    def seek_for_prev(self, key: bytes) -> None:
        """See `Cursor.seek_for_prev`."""
        self._place = bisect_right(self._keys, key) - 1

    def next(self) -> None:
        """See `Cursor.next`."""
        self._place += 1

    def prev(self) -> None:
        """See `Cursor.prev`."""
        self._place -= 1

    def valid(self) -> bool:
        """See `Cursor.valid`."""
        return 0 <= self._place < len(self._keys)

    def status(self) -> None:
        """See `Cursor.status`: there is no damage."""

    def key(self) -> bytes:
        """See `Cursor.key`."""
        return self._keys[self._place]

    def value(self) -> bytes:
        """See `Cursor.value`."""
        return self._data[self._keys[self._place]]


class SimStore:
    """A `KeyValueStore`."""

    def __init__(self, disk: SimDisk, node: StoreNode, path: Path) -> None:
        self._disk = disk
        self._node = node
        self._path = path
        self._epoch = disk.epoch
        self._is_broken = False

    def get(self, key: bytes) -> bytes | None:
        """See `KeyValueStore.get`."""
        self._disk.check_on(self._epoch)
        return self._node.data.get(key)

    def cursor(self) -> SimCursor:
        """See `KeyValueStore.cursor`."""
        self._disk.check_on(self._epoch)
        return SimCursor(self._node)

    def write(self, batch: Batch, *, sync: bool) -> None:
        """See `KeyValueStore.write`; a step, and with `sync` a second one."""
        if self._is_broken:
            raise OSError(errno.EIO, "it must be opened again")
        self._is_broken = True
        self._disk.begin("write-index", self._path, self._epoch)
        self._disk.take_room(_CHANGE_BYTES * len(batch.changes), self._path)
        self._node.apply(batch)
        self._disk.middle("write-index", self._path)
        if sync:
            self._disk.begin("sync-index", self._path, self._epoch)
            self._disk.middle("sync-index", self._path)
            self._node.flush()
        self._node.settle()
        self._is_broken = False

    def close(self) -> None:
        """See `KeyValueStore.close`."""


class SimStores:
    """`KeyValueStores` on a simulated disk."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def open(self, directory: Path, *, read_only: bool = False) -> SimStore:
        """See `KeyValueStores.open`."""
        disk = self._disk
        disk.check_on(disk.epoch)
        node = disk.find(directory)
        if node is None and not read_only:
            disk.begin("make-index", directory)
            node = StoreNode()
            disk.directory(directory.parent).change(None, directory.name, node)
            disk.middle("make-index", directory)
        if not isinstance(node, StoreNode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        return SimStore(disk, node, directory)

    def free_bytes(self, directory: Path) -> int:
        """See `KeyValueStores.free_bytes`."""
        return self._disk.usage(directory).free_bytes
