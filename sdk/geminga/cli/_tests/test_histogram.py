from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.cli._histogram import Histogram


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200), st.floats(0.1, 100))
def test_percentiles_are_near(values: list[int], percent: float) -> None:
    halves = Histogram(), Histogram()
    for at, value in enumerate(values):
        halves[at % 2].record(value)
    whole = Histogram()
    whole.add(halves[0])
    whole.add(halves[1])
    ordered = sorted(values)
    rank = next(n for n in range(1, len(values) + 1) if n >= len(values) * percent / 100)
    exact = ordered[rank - 1]
    assert exact <= whole.percentile(percent) <= exact * (1 + 1 / 128) + 1
    assert whole.max == ordered[-1]
    assert whole.count == len(values)
    assert abs(whole.mean - sum(values) / len(values)) < 1e-3


def test_nothing_and_negative() -> None:
    histogram = Histogram()
    assert histogram.percentile(99) == 0
    assert histogram.mean == 0
    histogram.record(-5)
    assert histogram.max == 0
    assert "Max:   0.000" in histogram.describe_ms()
