"""Runs that are counted together: no entry is lost, and none counts at another one's time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_bookie.errors import LedgerFenced, TooManyRequests
from geminga_bookie.metrics.server import TOGETHER, ServerMetrics
from geminga_bookie.metrics.storage import JournalMetrics
from geminga_runtime.metrics.distribution import Distribution

RUNS = st.lists(st.tuples(st.floats(0.0, 0.2), st.integers(1, 50)), min_size=1, max_size=40)


def check(found: Distribution, expected: list[tuple[float, int]]) -> None:
    """The same count, and a sum that differs by the share that is allowed."""
    assert found.count == sum(count for _, count in expected)
    total = sum(value * count for value, count in expected)
    assert found.sum == pytest.approx(total, rel=TOGETHER, abs=1e-9)


@given(RUNS)
def test_of_a_group_commit(runs: list[tuple[float, int]]) -> None:
    metrics = JournalMetrics()
    ordered = sorted(runs)
    metrics.committed(ordered, 0.2, 0.25, failed=False)
    check(metrics.waits.succeeded, [(0.2 - at, count) for at, count in ordered])
    check(metrics.adds.succeeded, [(0.25 - at, count) for at, count in ordered])


@given(st.lists(st.tuples(st.sampled_from([1.0, 1.01, 1.5]), RUNS), max_size=6))
def test_of_answers(reads: list[tuple[float, list[tuple[float, int]]]]) -> None:
    metrics = ServerMetrics()
    now = 2.0
    expected: list[tuple[float, int]] = []
    for began, runs in reads:
        for pause, count in runs:
            now += pause / 10
            metrics.adds_begun += count
            metrics.added(began, now, count, 10 * count, None, recovery=False)
            expected.append((now - began, count))
    assert metrics.adds_in_progress == 0
    metrics.settle()
    check(metrics.adds.succeeded, expected)
    assert metrics.bytes_written == 10 * metrics.adds.succeeded.count
    assert metrics.adds_in_progress == 0


def test_what_fails_counts_by_itself() -> None:
    metrics = ServerMetrics()
    metrics.added(1.0, 1.5, 3, 30, None, recovery=False)
    metrics.added(1.0, 1.5, 2, 20, LedgerFenced(), recovery=False)
    metrics.added(1.0, 1.5, 4, 40, TooManyRequests(), recovery=False)
    metrics.added(1.0, 1.5, 1, 10, None, recovery=True)
    metrics.settle()
    assert (metrics.adds.succeeded.count, metrics.adds.failed.count) == (4, 6)
    assert metrics.recovery_adds.succeeded.count == 1
    assert (metrics.adds_rejected, metrics.bytes_written) == (4, 40)
