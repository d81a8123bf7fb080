"""What says that acknowledged entries may be missing (spec BK-02, decisions 5 and 31)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from geminga_bookie.options import BookieOptions
from geminga_bookie.storage.data_dirs import UNREAD_NAME, UNSYNCED_NAME, lost_disks
from geminga_bookie.storage.disk import Disk, read_file, replace_file
from geminga_bookie.storage.journal_replay import ReplayReport
from geminga_bookie.storage.ledger_table import LedgerTable

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


def settle_doubts(
    disk: Disk,
    options: BookieOptions,
    reports: Sequence[ReplayReport],
    recovered: LedgerTable,
) -> bool:
    """Whether acknowledged entries may be missing and there are other copies to ask. Without them
    the ledgers are marked only: what is missing in front of others was lost (decision 5).

    Each step is repeated after a kill before the next: the limbo files, the marks of the ledgers,
    then the removal of the marker that asked for them.
    """
    is_new_doubt = False
    for directory, report in zip(options.journal_dirs, reports, strict=True):
        names = disk.names(directory)
        reasons = list(report.damages)
        if UNSYNCED_NAME in names:
            text = lost_disks(disk, options)
            reasons.append(text or "the bookie stopped without syncing its journal")
            logger.error("%s: %s", directory, reasons[-1])
        unread = unread_logs(disk, directory)
        reasons += unread
        if reasons and options.replicas_elsewhere:
            write_limbo(disk, directory, reasons)
            is_new_doubt = True
        is_new_doubt |= bool(report.damages or unread)
    if is_new_doubt:
        _put_in_doubt(recovered, fences=options.replicas_elsewhere)
    for directory in options.journal_dirs:
        disk.remove(directory / UNSYNCED_NAME)
        disk.remove(directory / UNREAD_NAME)
    return is_in_limbo(disk, options)


def _put_in_doubt(recovered: LedgerTable, *, fences: bool) -> None:
    """Every ledger so far is in limbo, and fenced: a fence that was lost must hold, and nothing may
    be added behind a gap. Apache's data integrity check does the same. The writers of a sole bookie
    ended with it."""
    for state in recovered.states.values():
        state.limbo, state.fenced = True, state.fenced or fences
    for store in recovered.stores:
        known = {record.ledger_id: record for record in store.index.ledgers()}
        for state in recovered.states.values():
            if state.store is store:
                known[state.ledger_id] = state.record()
        records = [
            each._replace(limbo=True, fenced=each.fenced or fences) for each in known.values()
        ]
        if records:
            store.index.write(records=records)
