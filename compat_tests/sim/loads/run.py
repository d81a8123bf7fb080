"""Runs a seed of the load simulation."""

from __future__ import annotations

import hashlib

from ..chance import Chances
from ..outcome import Outcome
from .checks import Checks
from .cluster import World
from .plan import LoadPlan, make_plan
from .table import measured


def plan_of(seed: int) -> LoadPlan:
    """The plan of a seed."""
    return make_plan(seed, Chances(seed).of("loads"))


def run_seed(seed: int, *, verbose: bool = False) -> Outcome:
    """What becomes of a seed."""
    return run_plan(plan_of(seed), verbose=verbose)[0]


def run_plan(plan: LoadPlan, *, verbose: bool = False) -> tuple[Outcome, World]:
    """What becomes of a plan."""
    lines: list[str] = []
    digest = hashlib.blake2b(digest_size=16)
    events = 0

    def note(text: str) -> None:
        nonlocal events
        line = f"{world.now_s:.0f} {text}"
        events += 1
        digest.update(line.encode())
        if verbose:
            lines.append(line)

    checks = Checks()
    world = World(plan, Chances(plan.seed).of("run"), note)
    world.run(checks.step)
    checks.end(world)
    outcome = Outcome(
        plan.seed,
        checks.found,
        digest.hexdigest(),
        events,
        len(world.moves),
        world.now_s,
        lines if verbose else None,
        measured(world),
    )
    return outcome, world
