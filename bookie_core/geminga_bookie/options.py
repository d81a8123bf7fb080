"""How a bookie is set up (spec BK-01, BK-03, BK-05, BK-06, BK-10).

Defaults follow BookKeeper's where the figure is about meaning; where it is about memory they fit a
small process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

LiveLedgers = Callable[[], AsyncIterator[int]]
"""Ids of all ledgers that metadata knows; what a bookie holds beyond them is garbage (BK-06)."""


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The journal (BK-01); BookKeeper's `journal*` settings."""

    sync_data: bool = True
    """False acknowledges after the write, before it is on disk (`journalSyncData=false`)."""
    segment_bytes: int = 64 * 1024 * 1024
    """Size of a pre-allocated, zero-filled journal file."""
    first_segment_bytes: int = 4 * 1024 * 1024
    """Size of a file that is needed at once, before a whole one is filled with zeros."""
    group_bytes_max: int = 4 * 1024 * 1024
    """A group commit takes no further run once it holds this many bytes."""
    group_entries_max: int = 8192
    group_wait_s: float = 0.0
    """How long a group may wait for company although the queue is empty; 0 writes at once."""
    backups_max: int = 5
    """Files behind the mark that are kept (`journalMaxBackups`); older ones are used again."""


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
    """How fast compaction copies and the scrubber reads."""
    scrub_interval_s: float = 7 * 86400.0
    """How often every entry log is checked against its checksums (BK-12)."""


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """Disk usage thresholds (BK-10); `diskUsageThreshold`, `diskUsageLwmThreshold`,
    `diskCheckInterval`."""

    usage_max: float = 0.95
    """Above this share of any disk the bookie is read-only."""
    usage_low: float = 0.95
    """It takes writes again when every disk is at or under this share."""
    check_interval_s: float = 10.0
    ballast_bytes: int = 4 * 1024 * 1024
    """Each directory keeps so much room to start on a full disk; 0 keeps none."""


@dataclass(frozen=True, slots=True)
class BookieOptions:
    """One bookie. With `in_memory` nothing is written and the directories are not looked at."""

    bookie_id: str = "127.0.0.1:3181"
    journal_dirs: Sequence[Path] = ()
    ledger_dirs: Sequence[Path] = ()
    index_dirs: Sequence[Path] = ()
    """Where the indexes stand, one for each of `ledger_dirs`; empty: in the ledger directories."""
    in_memory: bool = False
    write_cache_bytes: int = 64 * 1024 * 1024
    """Both halves of all ledger directories together."""
    read_cache_bytes: int = 32 * 1024 * 1024
    read_ahead_bytes: int = 4 * 1024 * 1024
    read_ahead_entries: int = 4096
    throttle_max_s: float = 10.0
    """How long an add may wait for room in the write cache (`dbStorage_maxThrottleTimeMs`)."""
    flush_interval_s: float = 60.0
    entry_log_bytes_max: int = 1024 * 1024 * 1024
    replicas_elsewhere: bool = False
    """Whether other bookies hold copies. Then entries that a damaged or missing journal may have
    held are answered with UnknownLedgerState until checked (BK-02); a sole copy is served as far as
    it goes, and the loss is logged."""
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
