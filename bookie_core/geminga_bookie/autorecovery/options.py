"""Options of auto-recovery, with Apache's keys (spec BK-26)."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_bookie.client.placement_rules import PlacementOptions
from geminga_bookie.registered import ChoiceOptions
from geminga_runtime.settings import setting


@dataclass(frozen=True, slots=True)
class AutoRecoveryOptions:
    """Intervals, delays and bounds. Zero turns a periodic check off."""

    bookie_check_interval_s: int = setting("auditorPeriodicBookieCheckInterval", 86_400)
    """The metadata of all ledgers are searched for lost bookies."""
    ledger_check_interval_s: int = setting("auditorPeriodicCheckInterval", 604_800)
    """All entries of all closed fragments are looked for on their bookies."""
    placement_check_interval_s: int = setting("auditorPeriodicPlacementPolicyCheckInterval", 0)
    """The racks of all closed ledgers are compared with the placement rules."""
    moves_misplaced: bool = setting("repairedPlacementPolicyNotAdheringBookieEnabled", False)
    """The ledgers that this check finds are marked, and workers move them."""
    marked_grace_s: int = setting("underreplicatedLedgerRecoveryGracePeriod", 0)
    """Ledgers that are marked for longer are counted by that check; 0: not."""
    lost_bookie_delay_s: int = setting("lostBookieRecoveryDelay", 0)
    """A bookie that comes back within this time is not lost."""
    batch_entries: int = setting("rereplicationEntryBatchSize", 100, at_least=1)
    grace_period_ms: int = setting("openLedgerRereplicationGracePeriod", 30_000)
    """The writer of an open ledger has this time to replace a lost bookie, before it is fenced."""
    backoff_ms: int = setting("rwRereplicateBackoffMs", 5_000, at_least=1)
    """Wait before a ledger that could not be completed is tried again; doubles each time."""
    replication_bytes_per_s: int = setting("replicationRateByBytes", -1, at_least=-1)
    """Bound of what a worker copies; none if not positive."""


@dataclass(frozen=True, slots=True)
class RackConfig:
    """The rules of placement that copies keep to, and the check of them."""

    min_racks: int = setting("minNumRacksPerWriteQuorum", 2, at_least=1)
    enforce_racks: bool = setting("enforceMinNumRacksPerWriteQuorum", False)

    def choice(self) -> ChoiceOptions:
        """For the directory of bookies."""
        return ChoiceOptions(
            placement=PlacementOptions(min_racks=self.min_racks, enforce_racks=self.enforce_racks)
        )
