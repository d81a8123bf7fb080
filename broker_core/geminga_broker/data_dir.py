"""Creates a standalone's data directory, readable by its owner only (spec OP-02, PX-24)."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from geminga_runtime.directories import OsDirectories, make_durable_directory

_log = logging.getLogger(__name__)

METADATA_FILE = "metadata.sqlite"
BOOKIE_DIRECTORY = "bookie"
_ENTRY_LOGS = "ledgers/*.log"
_OTHERS = 0o077


class DataDirUnusable(Exception):
    """The data directory can't be used; the text is one sentence that says why."""


def prepare_data_dir(path: Path) -> None:
    """Create the directory for its owner only, and remove others' access to Geminga's files. A
    directory with other files keeps its mode: others may use it too. Raises DataDirUnusable.
    """
    try:
        make_durable_directory(OsDirectories(), path)
        names = set(os.listdir(path))
    except OSError as error:
        text = f"data directory {path} can't be made: {error.strerror or error}"
        raise DataDirUnusable(text) from error
    ours = {name for name in names if name.startswith(METADATA_FILE)} | (names & {BOOKIE_DIRECTORY})
    for one in [path / name for name in sorted(ours)] + ([path] if ours == names else []):
        _close_to_others(one)


def missing_metadata(data_dir: Path) -> str:
    """What is to be said if the metadata are gone while the bookie's data are there; empty if that
    isn't so. Raises OSError.
    """
    file = data_dir / METADATA_FILE
    if file.exists() and (not file.is_file() or file.stat().st_size):
        return ""
    if not any((data_dir / BOOKIE_DIRECTORY).glob(_ENTRY_LOGS)):
        return ""
    what = "empty" if file.exists() else "gone"
    return f"{file} is {what}, while the bookie's data are there; all topics and policies are lost"


def _close_to_others(path: Path) -> None:
    try:
        found = path.lstat()
        is_ours = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
        if is_ours and found.st_mode & _OTHERS and not path.is_symlink():
            path.chmod(found.st_mode & ~_OTHERS & 0o777)
            _log.info("%s was open to other users: mode changed", path)
    except OSError as error:  # e.g. a file system without modes
        _log.warning("%s stays open to other users: %s", path, error.strerror)
