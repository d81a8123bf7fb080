"""Pauses that keep a rate, under a clock that only pauses move."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_pulsar._scan._pace import BURST_S, Bucket, Throttle


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses = 0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, for_s: float) -> None:
        assert for_s > 0
        self.pauses += 1
        self.now_s += for_s


def test_the_rate_is_kept_on_average() -> None:
    clock = Clock()
    throttle = Throttle(None, 1000.0, clock=clock, sleep=clock.sleep)
    for _ in range(50):
        throttle.took(10, 400)
    assert abs((clock.now_s - 100.0) - 50 * 400 / 1000) <= BURST_S + 1e-9


def test_both_limits_hold() -> None:
    clock = Clock()
    throttle = Throttle(100.0, 1e9, clock=clock, sleep=clock.sleep)
    for _ in range(20):
        throttle.took(10, 400)
    assert clock.now_s - 100.0 >= 200 / 100 - BURST_S


def test_a_pause_allows_at_most_one_burst() -> None:
    clock = Clock()
    throttle = Throttle(None, 1000.0, clock=clock, sleep=clock.sleep)
    clock.now_s += 3600
    began_s = clock.now_s
    throttle.took(1, 10_000)
    assert clock.now_s - began_s == 10.0 - BURST_S


def test_without_limits_nothing_pauses() -> None:
    clock = Clock()
    throttle = Throttle(None, None, clock=clock, sleep=clock.sleep)
    throttle.took(10**9, 10**12)
    assert clock.pauses == 0
    assert not throttle.is_limited
    assert throttle.chunk_bytes == float("inf")


def test_a_low_rate_takes_little_at_once() -> None:
    assert Throttle(None, 4000.0).chunk_bytes == 4000 * BURST_S


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5000)), max_size=40), st.floats(1, 1e6))
def test_never_above_the_rate(steps: list[tuple[float, float]], per_s: float) -> None:
    """With all pauses, at most the rate and one burst is taken, plus the last piece."""
    now_s = 0.0
    bucket = Bucket(per_s, now_s)
    taken = 0.0
    for idle_s, amount in steps:
        now_s += idle_s
        assert taken <= per_s * (now_s + BURST_S) * (1 + 1e-9) + 1e-6
        taken += amount
        now_s += bucket.took(amount, now_s)
