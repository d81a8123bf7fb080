"""Load traces over many brokers, and the leader's decisions about them, in virtual time (CL-07 to
CL-10).
"""

from __future__ import annotations

from .canary import CANARIES, FOUND_BY, first_seed
from .plan import SCENES
from .run import plan_of, run_plan, run_seed
from .table import table

__all__ = [
    "CANARIES",
    "FOUND_BY",
    "SCENES",
    "first_seed",
    "plan_of",
    "run_plan",
    "run_seed",
    "table",
]
