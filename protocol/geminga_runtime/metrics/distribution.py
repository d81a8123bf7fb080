"""Distributions of times and sizes (spec OP-05, BK-13; Apache's DataSketchesOpStatsLogger).

Values are counted in buckets of which each is a tenth wider than the one before, so that a run of
entries costs one search. A quantile is a bucket's upper end: at most a tenth too high.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
WINDOW_S = 60.0
"""Quantiles are of the last whole minute, or of the time since the last scrape if that is longer
(Apache's prometheusStatsLatencyRolloverSeconds)."""

_GROWTH = 1.1
_BOUNDS = [1e-6 * _GROWTH**power for power in range(400)]
"""From a microsecond, or a millionth of a byte, to 30 thousand millions of either."""


class Distribution:
    """One distribution. `add` is for one thread; the rest is for the one that scrapes."""

    __slots__ = ("_began_s", "_buckets", "_last", "_seen", "count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._seen: Sequence[int] = ()
        self._last: Sequence[int] = ()
        self._began_s = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Count so many equal values."""
        self._buckets[bisect_left(_BOUNDS, value)] += count
        self.count += count
        self.sum += value * count

    def quantiles(self, now_s: float, wanted: Sequence[float] = QUANTILES) -> list[float]:
        """The value at each quantile, which ascend; NaN without values. `now_s` is of a monotonic
        clock.
        """
        counts = self._window(now_s)
        total = sum(counts)
        if not total:
            return [math.nan] * len(wanted)
        found: list[float] = []
        place, passed = 0, counts[0]
        for quantile in wanted:
            while passed < quantile * total or not passed:
                place += 1
                passed += counts[place]
            found.append(_BOUNDS[min(place, len(_BOUNDS) - 1)])
        return found

    def _window(self, now_s: float) -> Sequence[int]:
        """Counts of the last whole window; of the first one, before it is whole."""
        if not self.count:
            return (0,)
        counts = self._buckets[:]
        fresh = _minus(counts, self._seen)
        if not self._began_s:
            self._began_s = now_s
        elif now_s - self._began_s >= WINDOW_S:
            self._last, self._seen, self._began_s = fresh, counts, now_s
            return fresh
        return self._last or fresh


def _minus(counts: Sequence[int], seen: Sequence[int]) -> Sequence[int]:
    if not seen:
        return counts
    return [count - before for count, before in zip(counts, seen, strict=True)]


class Outcomes:
    """Distributions of what succeeded, and of what failed."""

    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = Distribution()
        self.failed = Distribution()

    def add(self, value: float, count: int = 1, *, failed: bool = False) -> None:
        """Count so many equal values."""
        (self.failed if failed else self.succeeded).add(value, count)
