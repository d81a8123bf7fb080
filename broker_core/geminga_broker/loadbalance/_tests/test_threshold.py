"""What is taken off brokers that are used more than the average."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_broker.loadbalance._tests.samples import MB, bundle, load_of, report, stats
from geminga_broker.loadbalance.reports import LocalBrokerData
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.threshold import ThresholdShedder

A, B, C = "a:1", "b:1", "c:1"
CONFIG = LoadBalanceConfig()
MINUTE_MS = 60_000
NOW_MS = 10**12


def broker(
    cpu: float, *, mb: float = 400, bundles: int = 4, started: int = 0, name: str = ""
) -> LocalBrokerData:
    """A broker whose bundles have equal throughputs, which add up to `mb`."""
    namespace = f"t/{name or int(cpu * 1000)}"
    return report(
        {bundle(namespace, at): stats(10, mb / bundles) for at in range(bundles)},
        cpu=cpu,
        started=started,
    )


def test_part_above_the_average_and_the_threshold() -> None:
    load = load_of({A: broker(80), B: broker(20, name=B), C: broker(20, name=C)})
    (shed,) = ThresholdShedder().find(load, CONFIG, NOW_MS)
    assert shed.source == A
    assert shed.limit == pytest.approx(0.5)
    assert shed.wanted == pytest.approx(400 * MB * (0.8 - 0.4 - 0.1 + 0.05))


@pytest.mark.parametrize(
    ("cpus", "sources"),
    [
        ((40, 40, 40), []),
        ((0, 0, 0), []),
        ((54, 40, 40), []),
        ((60, 40, 40), [A]),
        ((70, 70, 10), [A, B]),
    ],
)
def test_who_is_above(cpus: tuple[float, float, float], sources: list[str]) -> None:
    load = load_of(
        {name: broker(cpu, name=name) for name, cpu in zip((A, B, C), cpus, strict=True)}
    )
    assert [shed.source for shed in ThresholdShedder().find(load, CONFIG, NOW_MS)] == sources


def test_little_throughput_is_left_alone() -> None:
    load = load_of({A: broker(80, mb=28), B: broker(20, name=B), C: broker(20, name=C)})
    assert not ThresholdShedder().find(load, CONFIG, NOW_MS)
    assert ThresholdShedder().find(load, replace(CONFIG, unload_mb_min=9), NOW_MS)


def test_sole_bundle_stays() -> None:
    load = load_of({A: broker(80, bundles=1), B: broker(20, name=B), C: broker(20, name=C)})
    assert not ThresholdShedder().find(load, CONFIG, NOW_MS)


def test_short_peak_is_smoothed() -> None:
    shedder = ThresholdShedder()
    load = load_of({name: broker(40, name=name) for name in (A, B, C)})
    assert not shedder.find(load, CONFIG, NOW_MS)
    load.report(A, broker(80, name=A), 1)
    # 44, 47.6, 50.8, 53.8, 56.4: the average is a third of it and of 80, the threshold 10 more.
    found = [bool(shedder.find(load, CONFIG, NOW_MS)) for _ in range(5)]
    assert found == [False, False, False, False, True]


def test_use_that_lasts_is_not_smoothed() -> None:
    shedder = ThresholdShedder()
    load = load_of({name: broker(40, name=name) for name in (A, B, C)})
    shedder.find(load, CONFIG, NOW_MS)
    load.report(A, broker(60, name=A), 1)
    found = []
    for _ in range(5):
        found.append(bool(shedder.find(load, CONFIG, NOW_MS)))
    # Smoothed it is 48.2 then, by itself 13 above the average.
    assert found == [False] * 4 + [True]
    peaked = ThresholdShedder()
    for at, cpu in enumerate((40, 60, 60, 60, 45, 60, 60, 60)):
        load.report(A, broker(cpu, name=A), at)
        assert not peaked.find(load, CONFIG, NOW_MS)


def test_use_that_has_fallen_counts_at_once() -> None:
    shedder = ThresholdShedder()
    load = load_of({A: broker(80, name=A), B: broker(40, name=B), C: broker(40, name=C)})
    assert shedder.find(load, CONFIG, NOW_MS)
    load.report(A, broker(45, name=A), 1)  # smoothed: 76.5
    assert not shedder.find(load, CONFIG, NOW_MS)


def test_moves_under_way_are_counted() -> None:
    shedder = ThresholdShedder()
    here = broker(80)
    load = load_of({A: here, B: broker(20, name=B), C: broker(20, name=C)})
    assert shedder.find(load, CONFIG, NOW_MS)
    first, second, *_ = here.last_stats
    load.moved(first, A, B, 0.2, 0)
    load.moved(second, A, C, 0.2, 0)
    # All have 40 then, though no report says so yet.
    assert not shedder.find(load, CONFIG, NOW_MS)
    load.not_moved(second, A, C)
    (shed,) = shedder.find(load, replace(CONFIG, history=0.0), NOW_MS)
    assert (shed.source, shed.limit) == (A, pytest.approx(0.5))


def test_moves_to_a_broker_are_not_smoothed() -> None:
    shedder = ThresholdShedder()
    load = load_of({A: broker(40, name=A), B: broker(10, name=B), C: broker(10, name=C)})
    shedder.find(load, CONFIG, NOW_MS)
    for each in list(load.brokers[A].report.last_stats)[:3]:
        load.moved(each, A, B, 0.1, 0)
    (shed,) = shedder.find(load, CONFIG, NOW_MS)
    assert (shed.source, shed.limit) == (B, pytest.approx(0.3))
    load.report(B, broker(40, name=B), 60)  # what was expected
    (shed,) = shedder.find(load, CONFIG, NOW_MS)
    assert (shed.source, shed.limit) == (B, pytest.approx(0.3))


def test_history_of_a_broker_that_went_is_forgotten() -> None:
    shedder = ThresholdShedder()
    load = load_of({name: broker(20, name=name) for name in (A, B, C)})
    shedder.find(load, CONFIG, NOW_MS)
    load.report(A, broker(80, name=A), 1)
    shedder.brokers_changed({B, C})
    assert [shed.source for shed in shedder.find(load, CONFIG, NOW_MS)] == [A]


def many(cpu: float, count: int) -> dict[str, LocalBrokerData]:
    return {
        f"m{at}:1": report(
            {bundle(f"t/m{at}", number): stats(10, 5) for number in range(10)}, cpu=cpu + at / 1000
        )
        for at in range(count)
    }


def test_broker_below_the_lower_boundary() -> None:
    reports = {**many(60, 10), A: broker(10)}
    load = load_of(reports)
    assert not ThresholdShedder().find(load, CONFIG, NOW_MS)
    lower = replace(CONFIG, lower_boundary=True, unload_mb_min=2)
    (shed,) = ThresholdShedder().find(load, lower, NOW_MS)
    assert shed.source == "m9:1"
    assert shed.wanted == pytest.approx(50 * MB * 0.1 * 0.5)
    assert not ThresholdShedder().find(load, replace(lower, unload_mb_min=3), NOW_MS)
    alone = load_of(many(60, 10))
    assert not ThresholdShedder().find(alone, lower, NOW_MS)


def test_broker_that_started_lately_is_filled() -> None:
    started = NOW_MS - 5 * MINUTE_MS
    load = load_of({**many(60, 20), A: report(started=started)})
    sheds = ThresholdShedder().find(load, CONFIG, NOW_MS)
    average = 60 * 20 / 21 / 100
    # Ten points are missing; each gives a twentieth of its sixty.
    assert [shed.source for shed in sheds] == ["m19:1", "m18:1", "m17:1", "m16:1"]
    assert [shed.wanted / (50 * MB) for shed in sheds] == pytest.approx(
        [0.05, 0.05, 0.05, 0.0167], abs=1e-3
    )
    assert [shed.limit for shed in sheds] == pytest.approx([average] * 4, abs=1e-3)


@pytest.mark.parametrize(
    ("cpu", "started", "filled"),
    [
        (0, NOW_MS - 29 * MINUTE_MS, True),
        (0, NOW_MS - 31 * MINUTE_MS, False),
        (46, NOW_MS - MINUTE_MS, True),
        (50, NOW_MS - MINUTE_MS, False),
    ],
)
def test_which_broker_is_filled(cpu: float, started: int, filled: bool) -> None:
    load = load_of({**many(60, 20), A: report(cpu=cpu, started=started)})
    assert bool(ThresholdShedder().find(load, CONFIG, NOW_MS)) is filled


def test_short_lull_fills_nobody() -> None:
    reports = {**many(60, 20), A: broker(58, started=NOW_MS - MINUTE_MS, name=A)}
    load = load_of(reports)
    shedder = ThresholdShedder()
    assert not shedder.find(load, CONFIG, NOW_MS)
    load.report(A, broker(10, started=NOW_MS - MINUTE_MS, name=A), 1)
    assert not shedder.find(load, CONFIG, NOW_MS)  # smoothed: 53
    assert not shedder.find(load, CONFIG, NOW_MS)  # 49
    assert shedder.find(load, CONFIG, NOW_MS)  # 45


def test_cluster_that_started_as_a_whole_fills_nobody_twice() -> None:
    reports = {
        name: broker(cpu, started=NOW_MS - MINUTE_MS)
        for name, cpu in ((A, 30.0), (B, 31.0), (C, 32.0))
    }
    assert not ThresholdShedder().find(load_of(reports), CONFIG, NOW_MS)
