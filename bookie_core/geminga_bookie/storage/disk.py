"""The storage's file operations, behind an interface with which tests inject faults."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from geminga_protocol.buffers import Buffer
from geminga_runtime.directories import Directories, OsDirectories

IOV_MAX = 1024
"""Bound of the buffers of one pwritev (Linux's UIO_MAXIOV)."""
_DSYNC = getattr(os, "RWF_DSYNC", 0)
_RESERVE = getattr(os, "posix_fallocate", None)
_ADVISE = getattr(os, "posix_fadvise", None)
_DIRECT = getattr(os, "O_DIRECT", 0)
_ZEROS_BYTES = 256 * 1024
PAGE_BYTES = 4096
"""Direct writes begin and end at multiples of it: no disk's blocks are larger."""
DIRECT_BYTES = 1024 * 1024
"""Bound of one direct write."""
COPIED_MAX = 64
"""So many buffers are copied one by one: more are joined first, which takes less than the loop."""
_WITHOUT_CALL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""Errors of kernels and file systems that don't support a flag or call."""


class DiskUsage(NamedTuple):
    """Room on the file system of a directory."""

    total_bytes: int
    free_bytes: int
    device: int = 0
    """Of two directories on one file system the same."""
    size_bytes: int = 0
    """Of the file system, with what is reserved; 0: as `total_bytes`."""

    @property
    def used_share(self) -> float:
        return 1.0 - self.free_bytes / self.total_bytes if self.total_bytes else 1.0


class DiskFile(Protocol):
    """An open file. Methods raise OSError, and release the interpreter lock while they work."""

    def read(self, size_bytes: int, offset: int) -> bytes:
        """Up to that many bytes from the offset on; fewer only at the end of the file."""

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all buffers, one after the other, from that offset on."""

    def write_durably(self, buffers: Sequence[Buffer], offset: int) -> None:
        """As `write`; returns when these bytes are on disk. Other writes may not be."""

    def reserve(self, size_bytes: int) -> None:
        """Allocate that size for an empty file: it reads as zeros, and later writes can't fail for
        a full disk."""

    def drop_cached(self, begin: int, end: int) -> None:
        """A hint: the system needn't keep these bytes, which are on disk, in memory. Never
        raises.
        """

    def sync(self) -> None:
        """Return when all writes and the file's size are on disk (fdatasync)."""

    def size(self) -> int:
        """Bytes in the file."""

    def close(self) -> None:
        """Close the descriptor. Idempotent."""


class DirectoryLock(Protocol):
    """A directory locked by this process."""

    def release(self) -> None:
        """Unlock. Idempotent."""


class Disk(Directories, Protocol):
    """A file system. Every method raises OSError."""

    def open(
        self, path: Path, *, create: bool = False, writable: bool = True, direct: bool = False
    ) -> DiskFile:
        """Open a file; `create` creates or truncates it. With `direct` whole pages are written past
        the system's memory where it can do so; the file must not be written twice at one place.
        """

    def names(self, directory: Path) -> list[str]:
        """Names in a directory, sorted; empty if there is no directory."""

    def lock(self, path: Path) -> DirectoryLock:
        """Lock a file, created if absent, against other processes. Raises BlockingIOError if it is
        locked."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically; replaces the target."""

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is no error."""

    def usage(self, directory: Path) -> DiskUsage:
        """Usage of its file system."""


class _DirectWrites:
    """Writes whole pages of a file from one buffer that is aligned as disks ask for it: what is
    written once, and perhaps never read, takes no fresh pages of the system's memory.
    """

    __slots__ = ("_buffer", "_descriptor")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = mmap.mmap(-1, DIRECT_BYTES)

    def write(self, buffers: Sequence[Buffer], offset: int) -> bool:
        """Returns False if the file system refuses such writes: then all of it must be written in
        the other way. Raises OSError.
        """
        if self._descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if len(buffers) > COPIED_MAX:
            buffers = [b"".join(buffers)]
        try:
            self._write(buffers, offset)
        except OSError as error:
            if error.errno not in _WITHOUT_CALL:
                raise
            return False
        return True

    def _write(self, buffers: Sequence[Buffer], offset: int) -> None:
        filled = 0
        with memoryview(self._buffer) as room:
            for each in buffers:
                with memoryview(each) as left:
                    at = 0
                    while at < len(left):
                        piece = left[at : at + DIRECT_BYTES - filled]
                        room[filled : filled + len(piece)] = piece
                        filled += len(piece)
                        at += len(piece)
                        if filled == DIRECT_BYTES:
                            offset = self._write_room(room, filled, offset)
                            filled = 0
            self._write_room(room, filled, offset)

    def _write_room(self, room: memoryview, size: int, offset: int) -> int:
        """Returns where it ends. Raises OSError."""
        written = 0
        while written < size:
            with room[written:size] as rest:
                written += os.pwrite(self._descriptor, rest, offset + written)
        return offset + size

    def close(self) -> None:
        """Idempotent, also if it fails: the number may be another file's afterwards."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.close(descriptor)
            finally:
                self._buffer.close()


def _direct_writes(path: Path) -> _DirectWrites | None:
    """None where there are none: not on each system nor file system, nor with larger pages of
    memory, of which one would be written more than once, nor without room for another descriptor.
    """
    if not _DIRECT or mmap.PAGESIZE > PAGE_BYTES:
        return None
    try:
        descriptor = os.open(path, os.O_WRONLY | _DIRECT | os.O_CLOEXEC)
    except OSError:  # what is wrong with the file itself the other descriptor tells
        return None
    try:
        return _DirectWrites(descriptor)
    except OSError:
        os.close(descriptor)
        return None


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_direct")

    def __init__(self, descriptor: int, direct: _DirectWrites | None = None) -> None:
        self._descriptor = descriptor
        self._direct = direct

    def read(self, size_bytes: int, offset: int) -> bytes:
        """See `DiskFile.read`."""
        data = os.pread(self._descriptor, size_bytes, offset)
        while 0 < len(data) < size_bytes:
            more = os.pread(self._descriptor, size_bytes - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        """See `DiskFile.write`; usually one pwritev."""
        expected = sum(map(len, buffers))
        if self._direct is not None and not (expected % PAGE_BYTES or offset % PAGE_BYTES):
            if self._direct.write(buffers, offset):
                return
            direct, self._direct = self._direct, None
            direct.close()
        if len(buffers) > IOV_MAX:
            buffers = [b"".join(buffers)]
        written = os.pwritev(self._descriptor, buffers, offset)
        if written < expected:
            rest = memoryview(b"".join(buffers))
            while written < expected:
                written += os.pwrite(self._descriptor, rest[written:], offset + written)

    def write_durably(self, buffers: Sequence[Buffer], offset: int) -> None:
        """See `DiskFile.write_durably`; one call, and so one wait for the lock, with RWF_DSYNC."""
        if _DSYNC and len(buffers) <= IOV_MAX:
            try:
                if os.pwritev(self._descriptor, buffers, offset, _DSYNC) == sum(map(len, buffers)):
                    return
            except OSError as error:
                if error.errno not in _WITHOUT_CALL:
                    raise
        self.write(buffers, offset)
        self.sync()

    def reserve(self, size_bytes: int) -> None:
        """See `DiskFile.reserve`; writes zeros if the system doesn't support the call."""
        if _RESERVE is not None:
            try:
                _RESERVE(self._descriptor, 0, size_bytes)
            except OSError as error:
                if error.errno not in _WITHOUT_CALL:
                    raise
            else:
                return
        zeros = bytes(min(size_bytes, _ZEROS_BYTES))
        for offset in range(0, size_bytes, _ZEROS_BYTES):
            self.write([zeros[: size_bytes - offset]], offset)

    def drop_cached(self, begin: int, end: int) -> None:
        """See `DiskFile.drop_cached`."""
        if _ADVISE is not None:
            with suppress(OSError):
                _ADVISE(self._descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """See `DiskFile.sync`."""
        os.fdatasync(self._descriptor)

    def size(self) -> int:
        """See `DiskFile.size`."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """See `DiskFile.close`."""
        try:
            if self._direct is not None:
                self._direct.close()
        finally:
            if self._descriptor >= 0:
                descriptor, self._descriptor = self._descriptor, -1
                os.close(descriptor)


class _OsLock:
    """Held while the descriptor is open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class OsDisk(OsDirectories):
    """The operating system's files."""

    def open(
        self, path: Path, *, create: bool = False, writable: bool = True, direct: bool = False
    ) -> DiskFile:
        """See `Disk.open`."""
        flags = os.O_RDWR if writable or create else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | os.O_TRUNC
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            return OsFile(descriptor, _direct_writes(path) if direct else None)
        except BaseException:
            os.close(descriptor)
            raise

    def names(self, directory: Path) -> list[str]:
        """See `Disk.names`."""
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def lock(self, path: Path) -> DirectoryLock:
        """See `Disk.lock`; a lock of `flock`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return _OsLock(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """See `Disk.rename`."""
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        """See `Disk.remove`."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def usage(self, directory: Path) -> DiskUsage:
        """See `Disk.usage`; space reserved for the superuser isn't free."""
        stat = os.statvfs(directory)
        used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
        free = stat.f_bavail * stat.f_frsize
        size = stat.f_blocks * stat.f_frsize
        return DiskUsage(used + free, free, os.stat(directory).st_dev, size)


def read_file(disk: Disk, path: Path) -> bytes | None:
    """The contents of a small file, or None if there is none."""
    try:
        file = disk.open(path, writable=False)
    except FileNotFoundError:
        return None
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def replace_file(disk: Disk, path: Path, content: bytes) -> None:
    """Write a small file; after a crash the complete old or new one is there."""
    draft = path.with_name(path.name + ".tmp")
    file = disk.open(draft, create=True)
    try:
        file.write([content], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(draft, path)
    disk.sync_directory(path.parent)
