"""Directories whose names a loss of power doesn't take away, nor with them all that is in them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS)
"""What systems answer for a directory of others that can't be synced: it isn't readable, or its
file system can't be written to."""


class Directories(Protocol):
    """A file system's directories. Every method raises OSError."""

    def has_directory(self, directory: Path) -> bool:
        """Whether it is there."""
        ...

    def make_directory(self, directory: Path) -> None:
        """In one that is there; no error if it is there too. See `make_durable_directory`."""

    def sync_directory(self, directory: Path) -> None:
        """Make creations, renames and removals in it durable."""


class OsDirectories:
    """The operating system's."""

    def has_directory(self, directory: Path) -> bool:
        """See `Directories.has_directory`."""
        return directory.is_dir()

    def make_directory(self, directory: Path) -> None:
        """See `Directories.make_directory`; for the owner only."""
        directory.mkdir(mode=0o700, exist_ok=True)

    def sync_directory(self, directory: Path) -> None:
        """See `Directories.sync_directory`."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_durable_directory(system: Directories, directory: Path) -> None:
    """Make a directory with its parents; their names are durable on return. Raises OSError.

    No directory is made before its parent's name is durable. So whatever step its maker was killed
    after, of those that are there only the last name can be in doubt: it is synced again.
    """
    if system.has_directory(directory):
        try:
            system.sync_directory(directory.parent)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
        return
    make_durable_directory(system, directory.parent)
    system.make_directory(directory)
    system.sync_directory(directory.parent)
