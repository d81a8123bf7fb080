"""Several brokers over a bookie and a twin of ZooKeeper, with the SDK's clients (CL-04, CL-13)."""

from __future__ import annotations

from ..chance import Chances
from .canary import CANARIES, FOUND_BY, HIDDEN_BY, first_seed
from .plan import BrokersPlan, make_plan
from .run import run_seed


def plan_of(seed: int) -> BrokersPlan:
    """The plan of a seed."""
    return make_plan(seed, Chances(seed))


__all__ = ["CANARIES", "FOUND_BY", "HIDDEN_BY", "first_seed", "plan_of", "run_seed"]
