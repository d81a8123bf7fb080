"""What runs of the load simulation have measured, by scene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..outcome import Outcome
from .checks import imbalance
from .cluster import World
from .plan import SCENES

_COLUMNS = ("seeds", "failed", "brokers", "bundles", "moves", "splits", "points", "ms")


def measured(world: World) -> Mapping[str, float]:
    """Figures of one run: `points` that the most used broker is above the average in the end, `ms`
    of CPU of the longest decision.
    """
    return {
        "scene": SCENES.index(world.plan.scene),
        "brokers": world.plan.brokers,
        "bundles": len(world.loads),
        "moves": len(world.moves),
        "splits": world.splits,
        "points": imbalance(world),
        "ms": 1000 * max(world.timings.longest.values(), default=0.0),
    }


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each scene: sums of moves and splits, of all else the most."""
    lines = [f"{'':18}" + "".join(f"{name:>9}" for name in _COLUMNS)]
    for at, scene in enumerate(SCENES):
        of = [each for each in outcomes if each.figures and each.figures["scene"] == at]
        if of:
            found = [each.figures for each in of if each.figures]
            row: dict[str, float] = {"seeds": len(of)}
            row["failed"] = sum(1 for each in of if each.violations)
            for name in _COLUMNS[2:]:
                fold = sum if name in ("moves", "splits") else max
                row[name] = fold(each[name] for each in found)
            lines.append(f"{scene:18}" + "".join(f"{row[name]:9.0f}" for name in _COLUMNS))
    return lines
