"""Which bundles are shed, and who gets them, judged by Apache's classes: some hundred drawn loads,
and the traces of the simulation.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import pytest

from compat_tests.apache.balancing import CASES, Question, agree, ask, drawn_load, greedy, load_json
from compat_tests.sim.loads import plan_of, run_plan
from geminga_broker.loadbalance import settings
from geminga_broker.loadbalance._tests.samples import bundle, load_of
from geminga_broker.loadbalance.average import AverageShedder
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.overload import OverloadShedder
from geminga_broker.loadbalance.selection import LeastMessageRate, LeastResourceUsage
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.sheds import Shed, Shedder
from geminga_broker.loadbalance.threshold import ThresholdShedder
from geminga_broker.loadbalance.uniform import UniformShedder

pytestmark = pytest.mark.java

CONFIG = LoadBalanceConfig()


def shed_question(
    strategy: str, loads: Sequence[LoadData], config: LoadBalanceConfig = CONFIG
) -> Question:
    return {
        "ask": "shed",
        "strategy": strategy,
        "settings": {
            "loadBalancerBundleUnloadMinThroughputThreshold": config.unload_mb_min,
            "lowerBoundarySheddingEnabled": json.dumps(config.lower_boundary),
            "maxUnloadPercentage": config.unload_share_max,
        },
        "rounds": [load_json(load) for load in loads],
    }


def found_by(shedder: Shedder, load: LoadData, config: LoadBalanceConfig) -> dict[str, list[str]]:
    return greedy(shedder.find(load, config, 10**12))


SHEDDERS: dict[str, Callable[[], Shedder]] = {
    settings.OVERLOAD_SHEDDER: OverloadShedder,
    settings.THRESHOLD_SHEDDER: ThresholdShedder,
    settings.UNIFORM_SHEDDER: UniformShedder,
    settings.AVERAGE_SHEDDER: lambda: AverageShedder(random.Random(1)),
}


def test_bundles_that_are_shed() -> None:
    """The same ones, as long as there is room for them elsewhere."""
    chance = random.Random("shed")
    questions, ours = [], []
    for name, make in SHEDDERS.items():
        rounds = 9 if name == settings.AVERAGE_SHEDDER else 1
        for _ in range(CASES):
            load = drawn_load(chance)
            config = replace(
                CONFIG,
                unload_mb_min=chance.choice((0.0, 10.0)),
                lower_boundary=chance.random() < 0.5,
                unload_share_max=chance.choice((0.2, 0.5)),
            )
            shedder = make()
            questions.append(shed_question(name, [load] * rounds, config))
            ours.append([found_by(shedder, load, config) for _ in range(rounds)])
        assert sum(1 for each in ours[-CASES:] if any(each)) > CASES / 6
    agree(ours, ask(questions))


def test_smoothed_use() -> None:
    """While uses rise, and not for so long that they aren't peaks any more."""
    chance = random.Random("smoothed")
    questions, ours = [], []
    for _ in range(CASES):
        load = drawn_load(chance, used=(20, 40))
        loads, found = [], []
        shedder = ThresholdShedder()
        for _ in range(4):
            load = load_of(
                {
                    broker_id: msgspec.structs.replace(
                        broker.report,
                        cpu=msgspec.structs.replace(
                            broker.report.cpu, usage=broker.report.cpu.usage * chance.uniform(1, 2)
                        ),
                    )
                    for broker_id, broker in load.brokers.items()
                }
            )
            loads.append(load)
            found.append(found_by(shedder, load, CONFIG))
        questions.append(shed_question(settings.THRESHOLD_SHEDDER, loads))
        ours.append(found)
    agree(ours, ask(questions))
    assert sum(1 for each in ours if any(each)) > CASES / 6


def test_selection() -> None:
    chance = random.Random("selection")
    questions, ours = [], []
    for at in range(CASES):
        load = drawn_load(chance, used=(20, 95) if at % 4 else (86, 99))
        brokers = chance.sample(sorted(load.brokers), chance.randint(1, len(load.brokers)))
        name, strategy = chance.choice(
            (
                (settings.LEAST_MESSAGE_RATE, LeastMessageRate(random.Random(at))),
                (settings.LEAST_RESOURCE_USAGE, LeastResourceUsage(random.Random(at))),
            )
        )
        questions.append(
            {
                "ask": "select",
                "strategy": name,
                "brokers": brokers,
                "load": load_json(load),
                "times": 200,
            }
        )
        chosen = {strategy.select(brokers, bundle("t/x"), load, CONFIG) for _ in range(200)}
        ours.append(sorted(map(str, chosen)))
    agree(ours, ask(questions))


class Recorded(ThresholdShedder):
    """Keeps what it was asked and said, and the use of each broker after all moves."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[dict[str, object]] = []
        self.said: list[dict[str, list[str]]] = []
        self.uses: list[dict[str, float]] = []

    def find(self, load: LoadData, config: LoadBalanceConfig, now_ms: int) -> list[Shed]:
        self.loads.append(load_json(load))
        self.uses.append(
            {name: broker.expected_usage(config.weights) for name, broker in load.brokers.items()}
        )
        found = super().find(load, config, now_ms)
        self.said.append(greedy(found))
        return found


NEAR = 0.03
"""Averages of smoothed uses and of those of now are about so far apart."""


def test_traces_of_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same brokers shed, and a reason for each that doesn't.

    Apache's goes on by a smoothed use after enough was moved. Ours doesn't smooth what lasts, and
    fills brokers that were started.
    """
    asked: list[tuple[Recorded, float]] = []
    for seed in (0, 2, 8, 11, 12, 14, 22, 24, 25, 34):
        made: list[Recorded] = []

        def recording(
            self: object, config: LoadBalanceConfig, made: list[Recorded] = made
        ) -> Recorded:
            made.append(Recorded())
            return made[-1]

        monkeypatch.setattr("geminga_broker.loadbalance.shedding.Shedding._shedder_of", recording)
        plan = replace(plan_of(seed), config=replace(CONFIG, unload_mb_min=10.0))
        run_plan(plan)
        asked += [(one, CONFIG.threshold) for one in made if one.loads]
    theirs = ask(
        [
            {"ask": "shed", "strategy": settings.THRESHOLD_SHEDDER, "rounds": one.loads}
            for one, _ in asked
        ]
    )
    rounds = alike = before = 0
    for (one, threshold), answer in zip(asked, theirs, strict=True):
        assert isinstance(answer, list)
        moved = False
        for mine, other, uses in zip(one.said, answer, one.uses, strict=True):
            rounds += 1
            alike += set(mine) == set(other)
            average = sum(uses.values()) / len(uses)
            for broker_id in other.keys() - mine.keys():
                assert uses[broker_id] < average + threshold + NEAR
                assert moved
            for broker_id in mine.keys() - other.keys():
                low = min(uses.values()) < average - threshold + NEAR
                assert low or uses[broker_id] > average + threshold - NEAR
            before += not moved
            moved = moved or bool(mine)
    assert alike > 0.7 * rounds
    assert before > 0.3 * rounds
