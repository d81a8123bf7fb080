"""Counts of values by fixed bounds, as Prometheus's histograms have them (spec OP-05)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Buckets:
    """One histogram since the start. Not for several threads at once."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        """The upper ends, inclusive; above the last one there is one bucket more."""
        self.counts = [0] * (len(bounds) + 1)
        """Of each bucket, without those below it."""
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def up_to(self) -> list[tuple[str, int]]:
        """Each bucket's upper end, as the label `le` has it, and how many values are not above."""
        ends = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(ends, accumulate(self.counts), strict=True))
