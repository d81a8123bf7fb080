"""Ballast: room that a data directory keeps for itself, so that a process that was killed on a full
disk can start again and serve reads.

A file of some MiB stands in the directory. A start that finds too little room cuts off as much of
it as it needs; the file is made whole again when there is room for that and more. What one start
frees others may take, so a start takes a part only, and the rest is there for the next.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

MIB = 1024 * 1024
STEP_BYTES = MIB // 4
SPARE_BYTES = 4 * MIB
"""So much must stay free when the file is made whole."""


def disk_free_bytes(directory: Path) -> int:
    """Room on the file system of a directory, without what is kept for the superuser. Raises
    OSError."""
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


def is_full(error: BaseException) -> bool:
    """Whether the error says that there is no room, also one by quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class Ballast:
    """The file at `path`, of `size_bytes` when it is whole; 0 keeps none.

    For one process and one thread at a time. All methods block for a moment, and none raises:
    a directory where it can't be kept has none.
    """

    def __init__(
        self,
        path: Path,
        size_bytes: int,
        free_bytes: Callable[[Path], int] = disk_free_bytes,
    ) -> None:
        self.path = path
        self._size_bytes = size_bytes
        self._free_bytes = free_bytes

    def held_bytes(self) -> int:
        """What the file holds now."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def make_room(self, needed_bytes: int) -> None:
        """Cut off as much as makes `needed_bytes` free, or all."""
        try:
            while self._free_bytes(self.path.parent) < needed_bytes and self.release():
                pass
        except OSError as error:
            logger.warning("%s: %s", self.path, error)

    def release(self, size_bytes: int = STEP_BYTES) -> bool:
        """Cut off so much; False if there is nothing left."""
        held = self.held_bytes()
        if not held:
            return False
        try:
            os.truncate(self.path, max(0, held - size_bytes))
        except OSError as error:
            logger.warning("%s can't be made smaller: %s", self.path, error)
            return False
        return True

    def restore(self) -> bool:
        """Make it whole if there is room for it and some more; whether it is. Where it can't be
        made for another reason, there is none from then on."""
        missing = self._size_bytes - self.held_bytes()
        if missing <= 0:
            return True
        try:
            if self._free_bytes(self.path.parent) < missing + SPARE_BYTES:
                return False
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size_bytes)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if is_full(error):
                return False
            logger.warning("%s can't be created, so no ballast is kept: %s", self.path, error)
            self._size_bytes = 0
        return True
