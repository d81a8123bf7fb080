"""Options of managed ledgers, with the defaults of Apache's `broker.conf`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from geminga_bookie.client.api import DigestType, LedgerOptions
from geminga_runtime.clock import wall_clock_ms

MIB = 1024 * 1024


COMPONENT = "component"
LOG_NAME = "pulsar/managed-ledger"
CURSOR_NAME = "pulsar/cursor"
"""Keys of a ledger's custom metadata (LedgerMetadataUtils)."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long consumed ledgers are retained (BR-04), by age or size. Negative: unlimited."""

    time_s: float = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LedgerDurability:
    """Quorums, digest and password of the ledgers of logs and cursors."""

    ensemble_size: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""

    def ledger_options(self, log_name: str, cursor_name: str | None = None) -> LedgerOptions:
        """Options of a new ledger; custom metadata names its owner (LedgerMetadataUtils)."""
        about = {
            "application": b"pulsar",
            COMPONENT: b"managed-ledger",
            LOG_NAME: log_name.encode(),
        }
        if cursor_name is not None:
            about[CURSOR_NAME] = cursor_name.encode()
        return LedgerOptions(
            self.ensemble_size,
            self.write_quorum,
            self.ack_quorum,
            self.digest_type,
            self.password,
            about,
        )


SLOWEST_FLUSH_S = 3600.0
"""Most time between two writes of a cursor that a topic or namespace may choose."""


@dataclass(frozen=True, slots=True)
class Persistence:
    """What a topic or namespace may choose of its logs (Apache's `PersistencePolicies`): copies of
    the ledgers that are made afterwards, and how often a cursor is written.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    mark_delete_rate_per_s: float
    """Most writes of one cursor's acknowledgements; 0: no bound, negative: the broker's own."""

    def flush_interval_s(self, default_s: float) -> float:
        """Time between two writes of one cursor."""
        rate = self.mark_delete_rate_per_s
        if rate < 0 or math.isnan(rate):
            return default_s
        return 1 / max(rate, 1 / SLOWEST_FLUSH_S) if rate else 0.0


@dataclass(frozen=True, slots=True)
class Rollover:
    """When an open ledger is closed and the next one opened (BR-02)."""

    entries_max: int = 50_000
    size_bytes_max: int = 2048 * MIB
    min_s: float = 600
    max_s: float = 14_400

    def is_due(self, entries: int, size_bytes: int, age_s: float) -> bool:
        """By entries or size after the minimum time, or by the maximum time; never if empty."""
        if not entries:
            return False
        full = entries >= self.entries_max or size_bytes >= self.size_bytes_max
        return age_s >= self.max_s or (full and age_s >= self.min_s)


@dataclass(frozen=True, slots=True)
class CursorOptions:
    """How cursors are persisted (BR-05)."""

    flush_interval_s: float = 1.0
    """Minimal interval of persisting acknowledgements; a crash causes redelivery of later ones."""
    ledger_entries_max: int = 50_000
    ledger_max_s: float = 14_400
    ranges_to_store_max: int = 1000
    """A closed cursor's holes are in the metadata store up to this number, else in its ledger."""
    batches_max: int = 10_000
    """Partly acknowledged batches that are persisted; others are redelivered whole."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """All options of a factory's logs."""

    durability: LedgerDurability = field(default_factory=LedgerDurability)
    rollover: Rollover = field(default_factory=Rollover)
    retention: Retention = field(default_factory=Retention)
    cursors: CursorOptions = field(default_factory=CursorOptions)
    cache_bytes_max: int = 64 * MIB
    """Bound of the entry caches of all logs together (BR-03)."""
    near_tail_entries: int = 1000
    """A cursor this near the end uses the cache (managedLedgerCursorBackloggedThreshold)."""
    broker_entry_metadata: bool = False
    """Store append time and index with entries (PR-03; `brokerEntryMetadataInterceptors`)."""
    skips_damaged: Callable[[], bool] = lambda: False
    """Whether a cursor acknowledges entries that are damaged or lost, instead of trying to read
    them for ever (autoSkipNonRecoverableData)."""
    open_deadline_s: float = 60
    create_retry_s: float = 1.0
    """After a new ledger could not be created, appends fail for this time before a retry."""
    roll_check_interval_s: float = 60
    retention_check_interval_s: float = 120
    """Interval of checks for too old ledgers (retentionCheckIntervalInSeconds)."""
    now_ms: Callable[[], int] = wall_clock_ms
