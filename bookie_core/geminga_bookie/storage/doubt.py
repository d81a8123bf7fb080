"""The file that says that acknowledged entries may be missing (spec BK-02, decisions 5 and 31)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.data_dirs import UNREAD_NAME
from geminga_bookie.storage.disk import Disk, read_file, replace_file

logger = logging.getLogger(__name__)

LIMBO_NAME = "limbo"
"""In a journal directory since acknowledged entries may have been lost (BK-02)."""
REASONS_MAX = 50


def is_in_limbo(disk: Disk, options: BookieOptions) -> bool:
    """Whether acknowledged entries may once have been lost, and there are other copies to ask."""
    return options.replicas_elsewhere and any(
        LIMBO_NAME in disk.names(directory) for directory in options.journal_dirs
    )


def write_limbo(disk: Disk, directory: Path, reasons: Sequence[str]) -> None:
    """Say in a journal directory why entries may be missing. Durable. Raises OSError."""
    replace_file(disk, directory / LIMBO_NAME, "\n".join(reasons[:REASONS_MAX]).encode())


def doubt_logs(disk: Disk, options: BookieOptions, damages: Sequence[str]) -> None:
    """Entry logs have parts that can't be read, and there is no index that tells whose entries
    stood there: the start, or the next one, puts all ledgers in doubt. Durable. Raises OSError.
    """
    for damage in damages[:REASONS_MAX]:
        logger.error("%s: acknowledged entries may be lost there", damage)
    known = unread_logs(disk, options.journal_dirs[0])
    text = "\n".join([*known, *damages][:REASONS_MAX])
    replace_file(disk, options.journal_dirs[0] / UNREAD_NAME, text.encode())


def unread_logs(disk: Disk, directory: Path) -> list[str]:
    """What `doubt_logs` left in a journal directory. Raises OSError."""
    found = read_file(disk, directory / UNREAD_NAME)
    return found.decode("utf-8", "replace").splitlines() if found else []
