"""What parts of a broker count for `/metrics` (spec OP-05). Loop only."""

from __future__ import annotations

from bisect import bisect_left

from geminga_runtime.metrics.distribution import Distribution

CHECK_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LookupCounts:
    """Lookups of topics, over the binary protocol and HTTP (Apache's NamespaceService)."""

    def __init__(self) -> None:
        self.times = Distribution()
        """Of those that were answered, s."""
        self.answers = 0
        """Without redirects."""
        self.redirects = 0
        self.failures = 0

    def answered(self, took_s: float, *, redirect: bool) -> None:
        """One has found a broker."""
        self.times.add(took_s)
        if redirect:
            self.redirects += 1
        else:
            self.answers += 1


class LoadCounts:
    """Loads of topics (Apache's BrokerOperabilityMetrics)."""

    def __init__(self) -> None:
        self.times = Distribution()
        """Of those that succeeded, s."""
        self.failures = 0


class CheckTimes:
    """How long sweeps took."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(CHECK_BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, took_s: float) -> None:
        """One has ended."""
        self.buckets[bisect_left(CHECK_BOUNDS_S, took_s)] += 1
        self.sum_s += took_s
