"""What a log counts: by runs, in windows (OP-05)."""

from __future__ import annotations

from time import perf_counter

import pytest

from geminga_broker.metrics.log_meter import LogMeter, Window


def total(window: Window) -> tuple[float, float, float]:
    """Entries by the three histograms."""
    histograms = window.write_latency, window.ledger_latency, window.entry_sizes
    written, added, sized = (sum(figures[:-1]) for figures in histograms)
    return written, added, sized


def test_a_run_counts_as_its_entries() -> None:
    meter = LogMeter()
    now_s = perf_counter()
    meter.appended(10, 1280)
    meter.appended(1, 129)
    meter.appended(2, 10 << 20)
    meter.stored(4, now_s - 0.02)
    meter.stored(6, now_s - 0.04)
    meter.committed()
    meter.waited(3, 1.85)
    meter.stored(3, now_s - 0.15)
    meter.committed()
    meter.committed()
    found = meter.window(now_s + 1, 60)
    assert total(found) == (13, 13, 13)
    assert list(found.entry_sizes) == [10, 1, 0, 0, 0, 0, 0, 0, 2, 1280 + 129 + (10 << 20)]
    assert found.write_latency[5] == 10  # up to 50 ms
    assert found.write_latency[9] == 3  # above 1 s, with the wait for a ledger
    assert found.ledger_latency[7] == 3  # up to 200 ms, without it
    assert found.write_latency[-1] == pytest.approx(6.32e6, rel=0.1)
    assert found.ledger_latency[-1] == pytest.approx(0.75e6, rel=0.2)


def test_a_wait_counts_for_those_who_waited() -> None:
    """Not for others in a later group commit, nor after a ledger that has failed."""
    meter = LogMeter()
    now_s = perf_counter()
    meter.waited(4, 0.5)
    meter.stored(3, now_s)
    meter.committed()
    meter.stored(1, now_s)
    meter.stored(9, now_s)
    meter.committed()
    found = meter.window(now_s + 1, 60)
    assert found.write_latency[8] == 3  # up to 1 s
    assert found.write_latency[-1] == pytest.approx(4 * 0.5e6, rel=0.1)
    meter.waited(5, 1000)
    meter.failed(1)
    meter.failed(4)
    meter.stored(1, perf_counter())
    meter.committed()
    failed = meter.window(now_s + 2, 60)
    assert failed.write_failures == 5
    assert failed.write_latency[-1] < 10e6


def test_figures_are_of_the_last_whole_period() -> None:
    meter = LogMeter()
    began_s = perf_counter()
    meter.read(60, 600)
    meter.missed_entries += 30
    first = meter.window(began_s + 30, 60)
    assert (first.read_entries, round(first.read_rate)) == (60, 2)
    meter.read(60, 600)
    whole = meter.window(began_s + 60.1, 60)
    assert (whole.read_entries, round(whole.read_rate, 1)) == (120, 2.0)
    assert round(whole.miss_rate, 1) == 0.5
    meter.read(6000, 6000)
    assert meter.window(began_s + 90, 60) is whole
    later = meter.window(began_s + 180.1, 60)
    assert (later.read_entries, round(later.read_rate)) == (6000, 50)
    assert total(meter.window(began_s + 250, 60)) == (0, 0, 0)


def test_windows_are_added_up() -> None:
    every, began_s = Window(), perf_counter()
    for entries in (3, 0, 4):
        meter = LogMeter()
        if entries:
            meter.appended(entries, entries * 100)
            meter.stored(entries, began_s)
            meter.committed()
        meter.write_failures += 1 if entries else 0
        every.add(meter.window(began_s + 10, 60))
    assert total(every) == (7, 7, 7)
    assert every.write_failures == 2
    assert every.write_rate == pytest.approx(0.7, rel=0.01)
    assert every.write_bytes_rate == pytest.approx(70, rel=0.01)


def test_an_append_without_entries_counts_nothing() -> None:
    meter = LogMeter()
    meter.appended(0, 0)
    assert total(meter.window(perf_counter() + 1, 60)) == (0, 0, 0)
