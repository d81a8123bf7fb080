"""Options of a bookie (spec BK-01, BK-03, BK-05, BK-06, BK-10).

Defaults are BookKeeper's, except those about memory, which fit a small process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

CACHE_BUDGET_BYTES = 256 * 1024 * 1024
"""Memory of a small process for caches. BookKeeper takes a quarter of its direct memory for each of
both caches."""

LiveLedgers = Callable[[], AsyncIterator[int]]
"""Ids of all ledgers with metadata; a bookie's other ledgers are garbage (BK-06)."""

LedgerExists = Callable[[int], Awaitable[bool]]
"""Whether a ledger has metadata: asked once more before it is collected (`verifyMetadataOnGC`)."""

IdentityCheck = Callable[[str, bool, bool], Awaitable[None]]
"""Called with the instance of the directories, whether they are without entries, and whether the
bookie may have lost ledgers, before it serves. Raises DataDirError."""


class AgeCheck(Protocol):
    """Whether a bookie's data and the metadata are of one time."""

    async def check(self, highest_ledger: int, journal: int) -> None:
        """Before it serves, with the highest id of a ledger that it holds, -1 if there is none, and
        the number of its newest journal, 0 if there is none. Raises what refuses the start.
        """

    async def started(self, journal: int) -> None:
        """When the journals of that number, the first of this life, are on disk."""


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
    ahead_bytes: int = 256 * 1024
    """So many zeros, up to twice as many, are written behind a small record at the end of what was
    ever written of a new file, which makes the syncs of those that follow quicker
    (docs/decisions/0050); 0: none. In whole pages.
    """
    drops_cached: bool = True
    """Whether the system is told to drop what is on disk from its memory
    (`journalRemovePagesFromCache`), of files above 64 MiB."""
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
    any_full: bool = False
    """Whether one full disk is enough for it (`readOnlyModeOnAnyDiskFullEnabled`)."""
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
    write_cache_bytes: int = CACHE_BUDGET_BYTES // 4
    """Total of both halves, of all ledger directories."""
    read_cache_bytes: int = CACHE_BUDGET_BYTES // 8
    read_ahead_bytes: int = 4 * 1024 * 1024
    """Bound of one read-ahead; less if so many ledgers are read at once that the read cache has no
    room for two of each."""
    read_ahead_entries: int = 4096
    read_threads: int = 2
    """Threads that read entry logs (`numReadWorkerThreads`)."""
    waiting_reads_max: int = 20_000
    """Reads that may wait for those threads; more fail with TooManyRequests
    (`maxPendingReadRequestsPerThread`, here of all threads)."""
    waiting_adds_max: int | None = None
    """Adds that may wait for that; more fail with TooManyRequests
    (`maxPendingAddRequestsPerThread`, here of all threads). None: their bytes alone are bounded."""
    throttle_max_s: float = 10.0
    """How long an add may wait for room in the write cache (`dbStorage_maxThrottleTimeMs`)."""
    flush_interval_s: float = 60.0
    entry_log_bytes_max: int = 1024 * 1024 * 1024
    replicas_elsewhere: bool = False
    """Whether other bookies have copies. If so, reads of entries that a damaged or missing journal
    may have held raise UnknownLedgerState until they are checked (BK-02); otherwise the remaining
    entries are served, and the loss is logged."""
    cluster_id: str = ""
    """The cluster whose bookie this is: directories of another one are refused. Empty: of none."""
    may_be_new: bool = True
    """False: the cluster knows the bookie, so that empty directories are refused (BK-10)."""
    heals_lost_disks: bool = False
    """Empty directories of a known bookie are taken, with all of its ledgers in doubt, instead
    (`dataIntegrityStampMissingCookies`)."""
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
