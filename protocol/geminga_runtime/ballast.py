"""Ballast: disk space reserved in a data directory, so that a process that was killed on a full
disk can start again and serve reads.

A file of some MiB holds the space. A start that finds too little room truncates the file by as much
as it needs, and no more: other processes may take the freed space, and the next start needs some
too. The file is restored when there is room for that and SPARE_BYTES more.
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
"""Space that must stay free when the file is restored."""


def disk_free_bytes(directory: Path) -> int:
    """Free space on a directory's file system, without the superuser's reserve. Raises OSError."""
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


def is_full(error: BaseException) -> bool:
    """Whether the error means a full disk or an exceeded quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class Ballast:
    """The file at `path`, of `size_bytes` when complete; 0 means no ballast.

    For one process and one thread at a time. Methods block for a moment and don't raise: where the
    file can't be created, there is no ballast.
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
        """The file's current size."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def make_room(self, needed_bytes: int) -> None:
        """Truncate the file until `needed_bytes` are free, or nothing is left of it."""
        try:
            while self._free_bytes(self.path.parent) < needed_bytes and self.release():
                pass
        except OSError as error:
            logger.warning("%s: %s", self.path, error)

    def release(self, size_bytes: int = STEP_BYTES) -> bool:
        """Truncate the file by `size_bytes`; False if that isn't possible."""
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
        """Restore the file if there is room for it and SPARE_BYTES. False if there isn't; True if
        it is complete, or can't be created at all (then there is no ballast from now on)."""
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
