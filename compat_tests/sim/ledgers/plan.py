"""What a seed draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

SIZES = (
    (3, 3, 2),
    (3, 2, 2),
    (3, 3, 1),
    (4, 3, 2),
    (4, 2, 1),
    (5, 3, 2),
    (5, 5, 3),
    (3, 3, 3),
    (2, 2, 1),
    (2, 2, 2),
)
"""Ensemble, write quorum, ack quorum."""

NETWORK_FAULTS = ("isolate", "one-way", "cut", "lossy", "slow-network", "slow-link", "reset")
BOOKIE_FAULTS = ("kill", "power-loss", "power-loss", "restart", "pause", "slow-disk")
DISK_FAULTS = ("full-disk", "failing-disk", "lost-disk")
METADATA_FAULTS = ("expire", "lossy-metadata", "isolate-metadata", "slow-metadata")
UNSYNCED_SHARE = 0.3
HANDOVERS_EVERY = 10
"""Of so many seeds the last one is about ledgers that are taken from their writers."""
CLIENT_FAULTS = ("crash-client", "pause-client")


@dataclass(frozen=True, slots=True)
class LedgerPlan:
    """One run."""

    seed: int
    bookies: int
    sizes: tuple[tuple[int, int, int], ...]
    """One for each writer's ledgers."""
    ledgers: int
    """How many each writer writes, one after the other."""
    entries: int
    """About as many in each."""
    recoverers: int
    readers: int
    deletes: bool
    repairers: int
    """Processes of auto-recovery."""
    faults: tuple[str, ...]
    fault_count: int
    fault_pause_s: float
    latency_s: float
    is_ordered: bool
    """Whether what one process sends to another arrives in order."""
    timeout_s: float
    """Of a client's request to a bookie."""
    session_s: float
    """Time-out of sessions of the metadata store."""
    all_killed_at_end: bool
    is_unsynced: bool = False
    """Some journals are not synced: a bookie that is killed, or loses its disk, is in doubt, and
    healed by the others."""
    handovers: int = 0
    """Ledgers that are taken over while messages come by a script."""

    @property
    def losable_disks(self) -> int:
        """So many disks may be lost for good, and all that was confirmed must still be there."""
        return min(ack for _, _, ack in self.sizes) - 1


def make_plan(seed: int, rng: Random) -> LedgerPlan:
    """The plan of a seed."""
    if seed % HANDOVERS_EVERY == HANDOVERS_EVERY - 1:
        return _handovers(seed, rng)
    writers = rng.choice((1, 1, 2))
    bookies = rng.randint(3, 6)
    fitting = [sizes for sizes in SIZES if sizes[0] <= bookies]
    kinds = [NETWORK_FAULTS, BOOKIE_FAULTS, DISK_FAULTS, METADATA_FAULTS, CLIENT_FAULTS]
    drawn = [name for kind in rng.sample(kinds, rng.randint(1, 5)) for name in kind]
    plan = LedgerPlan(
        seed=seed,
        bookies=bookies,
        sizes=tuple(rng.choice(fitting) for _ in range(writers)),
        ledgers=rng.choice((1, 2, 3)),
        entries=rng.choice((5, 20, 40)),
        recoverers=rng.choice((0, 1, 2, 2)),
        readers=rng.choice((0, 1, 1)),
        deletes=rng.random() < 0.2,
        faults=tuple(sorted(rng.sample(drawn, rng.randint(1, min(7, len(drawn)))))),
        fault_count=rng.choice((0, 3, 6, 10)),
        fault_pause_s=rng.choice((0.05, 0.3, 1.5)),
        latency_s=rng.choice((0.0005, 0.005, 0.05)),
        is_ordered=rng.random() < 0.6,
        timeout_s=rng.choice((1.0, 5.0)),
        session_s=rng.choice((1.0, 4.0)),
        all_killed_at_end=rng.random() < 0.35,
        repairers=rng.choice((0, 0, 0, 0, 1, 2)),
    )
    if plan.losable_disks == 0 or rng.random() >= UNSYNCED_SHARE:
        return plan
    # Failing and full disks put bookies in doubt that no plan counts.
    faults = tuple(each for each in plan.faults if each not in ("full-disk", "failing-disk"))
    return replace(plan, is_unsynced=True, all_killed_at_end=False, faults=(*faults, "lost-disk"))


def _handovers(seed: int, rng: Random) -> LedgerPlan:
    """Many short ledgers, each taken over while its last entries and the fences are under way."""
    bookies = rng.choice((3, 4, 4, 5))
    is_unsynced = rng.random() < UNSYNCED_SHARE
    fitting = [sizes for sizes in SIZES if sizes[0] <= bookies and sizes[2] > 1]
    return LedgerPlan(
        seed=seed,
        bookies=bookies,
        sizes=((3, 3, 2), rng.choice(fitting)),
        ledgers=0,
        entries=0,
        recoverers=0,
        readers=0,
        deletes=False,
        faults=(),
        fault_count=0,
        fault_pause_s=0.0,
        latency_s=0.0005,
        is_ordered=rng.random() < 0.5,
        timeout_s=rng.choice((1.0, 5.0)),
        session_s=4.0,
        all_killed_at_end=rng.random() < 0.35 and not is_unsynced,
        is_unsynced=is_unsynced,
        repairers=0,
        handovers=8,
    )
