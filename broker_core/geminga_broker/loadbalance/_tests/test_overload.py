"""What is taken off overloaded brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga_broker.loadbalance._tests.samples import MB, bundle, load_of, report, stats
from geminga_broker.loadbalance.overload import OverloadShedder
from geminga_broker.loadbalance.settings import LoadBalanceConfig

A, B = "a:1", "b:1"
CONFIG = LoadBalanceConfig()
BUNDLES = {bundle("t/n", at): stats(10, mb) for at, mb in enumerate((10, 40, 30, 20))}


@pytest.mark.parametrize(
    ("cpu", "share"),
    [(0, None), (84.9, None), (85, 0.05), (90, 0.10), (100, 0.20)],
)
def test_part_above_the_threshold_and_five_percent(cpu: float, share: float | None) -> None:
    load = load_of({A: report(BUNDLES, cpu=cpu), B: report()})
    sheds = OverloadShedder().find(load, CONFIG, 0)
    if share is None:
        assert not sheds
        return
    (shed,) = sheds
    assert (shed.source, shed.limit) == (A, 0.85)
    assert shed.wanted == pytest.approx(100 * MB * share)
    assert [name for name, _ in shed.bundles] == [bundle("t/n", at) for at in (1, 2, 3, 0)]


def test_threshold_and_weights_are_configured() -> None:
    load = load_of({A: report(BUNDLES, cpu=60), B: report()})
    assert OverloadShedder().find(load, replace(CONFIG, overloaded_percent=50), 0)
    half = replace(CONFIG, overloaded_percent=50, cpu_weight=0.5)
    assert not OverloadShedder().find(load, half, 0)


def test_sole_bundle_stays() -> None:
    load = load_of({A: report({bundle("t/n"): stats(10, 100)}, cpu=99), B: report(cpu=99)})
    assert not OverloadShedder().find(load, CONFIG, 0)


def test_bundles_of_system_namespaces_and_those_just_moved_stay() -> None:
    system = {bundle(name): stats(1, 90) for name in ("pulsar/system", "pulsar/a:1")}
    load = load_of({A: report({**BUNDLES, **system}, cpu=99), B: report()})
    load.moved(bundle("t/n", 1), A, B, 0, 0)
    (shed,) = OverloadShedder().find(load, CONFIG, 0)
    assert [name for name, _ in shed.bundles] == [bundle("t/n", at) for at in (2, 3, 0)]


def test_moves_under_way_are_counted() -> None:
    load = load_of({A: report(BUNDLES, cpu=95), B: report()})
    load.moved(bundle("t/n", 0), A, B, 0.095, 0)
    (shed,) = OverloadShedder().find(load, CONFIG, 0)
    assert shed.wanted == pytest.approx(90 * MB * (0.855 - 0.85 + 0.05))
    load.moved(bundle("t/n", 3), A, B, 0.19, 0)
    assert not OverloadShedder().find(load, CONFIG, 0)
