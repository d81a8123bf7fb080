"""A histogram of latencies, within 0.8 % (like HdrHistogram). Pure."""

from __future__ import annotations

_SUB_BITS = 7
_SUB = 1 << _SUB_BITS


class Histogram:
    """Counts of whole numbers, 0 or above (e.g. microseconds)."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total = 0
        self.max = 0

    def record(self, value: int, times: int = 1) -> None:
        """Count a value; a negative one as 0."""
        value = max(value, 0)
        shift = max(0, value.bit_length() - _SUB_BITS - 1)
        # A power of two has 128 slots, so a slot's width is at most 1/128 of its value.
        slot = (shift << (_SUB_BITS + 1)) | (value >> shift)
        self._counts[slot] = self._counts.get(slot, 0) + times
        self.count += times
        self.total += value * times
        self.max = max(self.max, value)

    def add(self, other: Histogram) -> None:
        """Add the other's counts."""
        for slot, times in other._counts.items():
            self._counts[slot] = self._counts.get(slot, 0) + times
        self.count += other.count
        self.total += other.total
        self.max = max(self.max, other.max)

    @property
    def mean(self) -> float:
        """The average; 0 without values."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """The least value at or above that percentage of all; 0 without values."""
        wanted = self.count * percent / 100
        seen = 0
        for slot in sorted(self._counts):
            seen += self._counts[slot]
            if seen >= wanted:
                shift = slot >> (_SUB_BITS + 1)
                base = slot & ((_SUB << 1) - 1)
                return min(((base + 1) << shift) - 1, self.max)
        return self.max

    def describe_ms(self) -> str:
        """Mean and percentiles in milliseconds, in pulsar-perf's format; values in microseconds."""
        parts = [f"mean: {self.mean / 1000:7.3f} ms", f"med: {self.percentile(50) / 1000:7.3f}"]
        for percent in (95, 99, 99.9, 99.99):
            parts.append(f"{percent}pct: {self.percentile(percent) / 1000:7.3f}")
        return " - ".join([*parts, f"Max: {self.max / 1000:7.3f}"])
