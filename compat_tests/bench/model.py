"""What a benchmark row is: how it is run, what it measures, and what must be reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compat_tests.bench.side import Side

GEMINGA = "geminga"
APACHE = "apache"


@dataclass(frozen=True)
class Measure:
    """One figure of a row. Ratios are Geminga's figure over Apache's."""

    key: str
    title: str
    unit: str
    ratio_min: float | None = None
    ratio_max: float | None = None
    ratio_aim: float | None = None
    geminga_max: float | None = None
    geminga_min: float | None = None

    def target(self) -> str:
        """The target as a reader sees it."""
        parts = []
        if self.ratio_min is not None:
            parts.append(f"≥ {self.ratio_min:g}×")
        if self.ratio_max is not None:
            parts.append(f"≤ {self.ratio_max:g}×")
        if self.ratio_aim is not None:
            parts.append(f"aim {self.ratio_aim:g}×")
        if self.geminga_max is not None:
            parts.append(f"< {self.geminga_max:g} {self.unit}")
        if self.geminga_min is not None:
            parts.append(f"≥ {self.geminga_min:g} {self.unit}")
        return ", ".join(parts) or "none"

    def held(self, geminga: float | None, apache: float | None) -> bool | None:
        """Whether the target is reached; None when there is none, or nothing to compare with."""
        verdicts = []
        if self.geminga_max is not None and geminga is not None:
            verdicts.append(geminga < self.geminga_max)
        if self.geminga_min is not None and geminga is not None:
            verdicts.append(geminga >= self.geminga_min)
        if geminga is not None and apache:
            ratio = geminga / apache
            if self.ratio_min is not None:
                verdicts.append(ratio >= self.ratio_min)
            if self.ratio_max is not None:
                verdicts.append(ratio <= self.ratio_max)
        return all(verdicts) if verdicts else None


@dataclass(frozen=True)
class Row:
    """A piece of work that both servers are given."""

    name: str
    title: str
    run: Callable[[Side], Mapping[str, float]]
    measures: tuple[Measure, ...]
    geminga_only: bool = False


@dataclass
class Outcome:
    """What a row gave: kind of server to figures, or to the reason why there are none."""

    row: Row
    figures: dict[str, Mapping[str, float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    run: str = ""
    """The run that the figures are of, in words."""

    def figure(self, kind: str, key: str) -> float | None:
        """One figure, None when it was not measured."""
        return self.figures.get(kind, {}).get(key)
