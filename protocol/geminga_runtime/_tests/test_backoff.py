"""Backoff against the waits of Pulsar's client."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_runtime.backoff import Backoff


class NoJitter(random.Random):
    def random(self) -> float:
        return 0.0


def test_doubles_to_the_maximum() -> None:
    backoff = Backoff(0.1, 1.0, rng=NoJitter())
    assert [backoff.next_s(0) for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    backoff.reset()
    assert backoff.next_s(0) == pytest.approx(0.1)


def test_mandatory_stop_is_met_once() -> None:
    """From 100 ms with a stop at 1.9 s: a retry at 1.9 s, then doubling continues."""
    backoff = Backoff(0.1, 60.0, 1.9, rng=NoJitter())
    now, waits = 0.0, []
    for _ in range(8):
        waits.append(backoff.next_s(now))
        now += waits[-1]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.4, 3.2, 6.4, 12.8])
    assert sum(waits[:5]) == pytest.approx(1.9)


@pytest.mark.parametrize(("initial_s", "max_s"), [(0, 1), (2, 1), (-1, 1)])
def test_refused_options(initial_s: float, max_s: float) -> None:
    with pytest.raises(ValueError, match="initial_s"):
        Backoff(initial_s, max_s)


@given(
    initial_s=st.floats(0.001, 10),
    factor=st.floats(1, 1000),
    stop_s=st.floats(0, 100),
    seed=st.integers(0, 1000),
)
def test_waits_stay_in_bounds(initial_s: float, factor: float, stop_s: float, seed: int) -> None:
    max_s = initial_s * factor
    backoff = Backoff(initial_s, max_s, stop_s, random.Random(seed))
    now = 0.0
    for _ in range(30):
        wait_s = backoff.next_s(now)
        assert initial_s <= wait_s <= max_s
        now += wait_s
