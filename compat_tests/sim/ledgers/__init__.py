"""Several bookies on disks that lose power, under the ledger client, in virtual time (BK-28)."""

from __future__ import annotations

from ..chance import Chances
from .canary import CANARIES, FOUND_BY, HIDDEN_BY, first_seed
from .plan import LedgerPlan, make_plan
from .run import run_seed


def plan_of(seed: int) -> LedgerPlan:
    """The plan of a seed."""
    return make_plan(seed, Chances(seed).of("ledgers"))


__all__ = ["CANARIES", "FOUND_BY", "HIDDEN_BY", "first_seed", "plan_of", "run_seed"]
