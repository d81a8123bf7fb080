"""The file that says that acknowledged entries may be missing (spec BK-02, decisions 5 and 31)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.disk import Disk, replace_file

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
    stood there. Raises OSError.
    """
    for damage in damages[:REASONS_MAX]:
        logger.error("%s: acknowledged entries may be lost there", damage)
    if options.replicas_elsewhere:
        write_limbo(disk, options.journal_dirs[0], damages)
