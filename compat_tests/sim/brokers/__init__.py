"""Several brokers over a bookie and a twin of ZooKeeper, with the SDK's clients (CL-04, CL-13)."""

from __future__ import annotations

from ..chance import Chances
from .plan import BrokersPlan, make_plan
from .run import run_seed


def plan_of(seed: int) -> BrokersPlan:
    """The plan of a seed."""
    return make_plan(seed, Chances(seed).of("brokers"))


__all__ = ["plan_of", "run_seed"]
