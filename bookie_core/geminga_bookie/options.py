"""Options of a bookie (spec BK-01, BK-03, BK-05, BK-06, BK-10).

Defaults are BookKeeper's, except those about memory, which fit a small process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

LiveLedgers = Callable[[], AsyncIterator[int]]
"""Ids of all ledgers with metadata; a bookie's other ledgers are garbage (BK-06)."""


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The journal (BK-01); BookKeeper's `journal*` settings."""

    sync_data: bool = True
    """False: acknowledge after the write, before it is on disk (`journalSyncData=false`)."""
    segment_bytes: int = 64 * 1024 * 1024
    """Size of a pre-allocated, zero-filled journal file."""
    first_segment_bytes: int = 4 * 1024 * 1024
    """Size of a file that is needed before one of full size is filled with zeros."""
    group_bytes_max: int = 4 * 1024 * 1024
    """A group commit takes no further run above this size."""
    group_entries_max: int = 8192
    group_wait_s: float = 0.0
    """How long a group waits for more runs although the queue is empty; 0: not at all."""
    backups_max: int = 5
    """Retained files before the mark (`journalMaxBackups`); older ones are reused."""


@dataclass(frozen=True, slots=True)
class GcOptions:
    """Garbage collection, compaction (BK-06): BookKeeper's `gc*`, `minor*`, `major*` settings."""

    gc_interval_s: float = 15 * 60.0
    minor_interval_s: float = 3600.0
    minor_threshold: float = 0.2
    """Logs with a smaller share of live bytes are rewritten by a minor compaction."""
    major_interval_s: float = 86400.0
    major_threshold: float = 0.5
    compaction_rate_bytes_s: int = 32 * 1024 * 1024
    """Rate of compaction's copies and the scrubber's reads."""
    scrub_interval_s: float = 7 * 86400.0
    """Interval of verifying every entry log's checksums (BK-12)."""


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """Disk usage thresholds (BK-10); `diskUsageThreshold`, `diskUsageLwmThreshold`,
    `diskCheckInterval`."""

    usage_max: float = 0.95
    """Above this share of any disk the bookie is read-only."""
    usage_low: float = 0.95
    """The bookie is writable again when every disk is at or below this share."""
    check_interval_s: float = 10.0
    ballast_bytes: int = 4 * 1024 * 1024
    """Space reserved in each directory for a start on a full disk; 0: none."""


@dataclass(frozen=True, slots=True)
class BookieOptions:
    """One bookie. With `in_memory` the directories are not used."""

    bookie_id: str = "127.0.0.1:3181"
    journal_dirs: Sequence[Path] = ()
    ledger_dirs: Sequence[Path] = ()
    index_dirs: Sequence[Path] = ()
    """Directories of the indexes, one for each of `ledger_dirs`; empty: the ledger directories."""
    in_memory: bool = False
    write_cache_bytes: int = 64 * 1024 * 1024
    """Total of both halves, of all ledger directories."""
    read_cache_bytes: int = 32 * 1024 * 1024
    read_ahead_bytes: int = 4 * 1024 * 1024
    read_ahead_entries: int = 4096
    throttle_max_s: float = 10.0
    """How long an add may wait for room in the write cache (`dbStorage_maxThrottleTimeMs`)."""
    flush_interval_s: float = 60.0
    entry_log_bytes_max: int = 1024 * 1024 * 1024
    replicas_elsewhere: bool = False
    """Whether other bookies have copies. If so, reads of entries that a damaged or missing journal
    may have held raise UnknownLedgerState until they are checked (BK-02); otherwise the remaining
    entries are served, and the loss is logged."""
    journal: JournalOptions = JournalOptions()
    gc: GcOptions = GcOptions()
    disk: DiskOptions = DiskOptions()

    @classmethod
    def in_directory(cls, data_dir: Path, bookie_id: str = "127.0.0.1:3181") -> BookieOptions:
        """The usual layout of one bookie in one directory: `journal/` and `ledgers/`."""
        return cls(
            bookie_id=bookie_id,
            journal_dirs=(data_dir / "journal",),
            ledger_dirs=(data_dir / "ledgers",),
        )
