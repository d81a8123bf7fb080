"""What a seed of the load simulation is about: a cluster, its bundles' loads, and what happens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import pi, sin
from random import Random

from geminga_broker.loadbalance.settings import (
    AVERAGE_SHEDDER,
    LEAST_RESOURCE_USAGE,
    OVERLOAD_SHEDDER,
    THRESHOLD_SHEDDER,
    UNIFORM_SHEDDER,
    LoadBalanceConfig,
)

MB = 1 << 20
BROKER_MB = 1000.0
"""Throughput at which a broker of the usual size is fully used, in MB a second."""
SETTLE_S = 600.0
"""After what disturbs it a cluster has so long to be balanced again."""
QUIET_S = 300.0
"""Then nothing may be moved for so long."""

SCENES = (
    "cold start",
    "brokers added",
    "hot namespace",
    "hot topic",
    "broker restarted",
    "rolling restart",
    "waves",
    "spikes",
    "broken samples",
    "leader changed",
    "growing bundle",
    "recorded",
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a load changes: a factor over the time."""

    steps: tuple[tuple[float, float, float], ...] = ()
    """From, until, factor."""
    amplitude: float = 0.0
    period_s: float = 1.0
    phase: float = 0.0
    samples: tuple[float, ...] = ()
    """Recorded factors, `sample_s` each."""
    sample_s: float = 10.0

    def at(self, now_s: float) -> float:
        """The factor at a time."""
        factor = 1.0
        for begins_s, ends_s, step in self.steps:
            if begins_s <= now_s < ends_s:
                factor *= step
        if self.amplitude:
            factor *= 1 + self.amplitude * sin(2 * pi * (now_s / self.period_s + self.phase))
        if self.samples:
            factor *= self.samples[int(now_s / self.sample_s) % len(self.samples)]
        return factor


@dataclass(frozen=True, slots=True)
class BundleLoad:
    """A bundle: MB and messages a second while its shape's factor is 1."""

    name: str
    mb: float
    rate: float
    topics: int
    shape: Shape = Shape()


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A run."""

    seed: int
    scene: str
    brokers: int
    bundles: tuple[BundleLoad, ...]
    config: LoadBalanceConfig
    length_s: float
    step_s: float = 5.0
    disturbed_until_s: float = 0.0
    owned_by: int | None = None
    """The first brokers, that begin with all bundles; None: bundles are looked up."""
    joins_s: float = 0.0
    """When the others join."""
    restarts: tuple[tuple[float, float, int], ...] = ()
    """Down, up again, which broker."""
    leader_changes_s: tuple[float, ...] = ()
    capacities: tuple[float, ...] = ()
    broken_share: float = 0.0
    """Of samples that are no numbers."""
    noise: float = 0.03
    failing_share: float = 0.0
    """Of moves that fail."""
    hot: frozenset[str] = field(default_factory=frozenset)
    """Bundles of one topic that overload any broker."""

    def __str__(self) -> str:
        strategy = self.config.shedding_strategy.rpartition(".")[2]
        return (
            f"seed {self.seed}: {self.scene}, {self.brokers} brokers, {len(self.bundles)} bundles, "
            f"{strategy}, {self.length_s:.0f} s"
        )


def bundle_name(namespace: int, number: int) -> str:
    """The name of a bundle; namespaces have up to 65 536."""
    return f"load/ns{namespace}/0x{number:04x}0000_0x{number + 1:04x}0000"


def make_plan(seed: int, chance: Random, *, scene: str | None = None) -> LoadPlan:
    """The plan of a seed, of a scene by chance or a given one."""
    scene = scene or SCENES[seed % len(SCENES)]
    brokers = chance.choice((3, 3, 4, 5, 8, 12, 20))
    per_broker = chance.choice((8, 12, 20, 40))
    return build(seed, chance, scene, brokers, brokers * per_broker)


def build(
    seed: int, chance: Random, scene: str, brokers: int, bundles: int, *, step_s: float = 5.0
) -> LoadPlan:
    """A plan of so many brokers and bundles."""
    used = chance.uniform(0.25, 0.5)  # of all brokers together
    loads = _loads(chance, brokers, bundles, used)
    plan = LoadPlan(
        seed,
        scene,
        brokers,
        tuple(loads),
        _config(chance, scene),
        SETTLE_S + QUIET_S,
        step_s,
        capacities=(1.0,) * brokers,
        failing_share=chance.choice((0.0, 0.0, 0.05)),
    )
    return _SCENES[scene](plan, chance)


def _config(chance: Random, scene: str) -> LoadBalanceConfig:
    config = LoadBalanceConfig(
        spread_evenly=chance.random() < 0.7,
        lower_boundary=chance.random() < 0.3,
    )
    if scene in ("cold start", "waves", "leader changed") and chance.random() < 0.4:
        name = chance.choice((OVERLOAD_SHEDDER, UNIFORM_SHEDDER, AVERAGE_SHEDDER))
        config = replace(config, shedding_strategy=name)
        if name == AVERAGE_SHEDDER:
            config = replace(config, placement_strategy=AVERAGE_SHEDDER)
    elif chance.random() < 0.2:
        config = replace(config, placement_strategy=LEAST_RESOURCE_USAGE)
    return config


def _loads(chance: Random, brokers: int, bundles: int, used: float) -> list[BundleLoad]:
    """Loads of which few are large, none beyond a tenth of a broker, that use a part of it all."""
    namespaces = max(1, bundles // chance.choice((4, 16, 64)))
    weights = [(1 + at) ** -chance.uniform(0.3, 0.9) for at in range(bundles)]
    whole = used * brokers * BROKER_MB
    factor = whole / sum(weights)
    most = 0.1 * BROKER_MB
    sizes = [min(weight * factor, most) for weight in weights]
    lost = (whole - sum(sizes)) / bundles
    sizes = [min(size + lost, most) for size in sizes]
    chance.shuffle(sizes)
    found = []
    for at, mb in enumerate(sizes):
        name = bundle_name(at % namespaces, at // namespaces)
        message_bytes = chance.choice((2048, 4096, 8192))
        found.append(BundleLoad(name, mb, mb * MB / message_bytes, chance.randint(2, 60)))
    return found


def _cold_start(plan: LoadPlan, chance: Random) -> LoadPlan:
    return plan


def _brokers_added(plan: LoadPlan, chance: Random) -> LoadPlan:
    first = max(1, plan.brokers // 2)
    # What they had carried alone is no more than they can.
    loads = tuple(replace(each, mb=each.mb * 0.6, rate=each.rate * 0.6) for each in plan.bundles)
    return replace(
        plan,
        bundles=loads,
        owned_by=first,
        joins_s=120.0,
        disturbed_until_s=120.0,
        length_s=120.0 + SETTLE_S + QUIET_S,
    )


def _hot_namespace(plan: LoadPlan, chance: Random) -> LoadPlan:
    """The bundles of a broker's share become several times as loaded."""
    begins_s = 240.0
    grown = set(chance.sample(range(len(plan.bundles)), max(1, len(plan.bundles) // plan.brokers)))
    factor = chance.uniform(1.5, 2.5)
    shape = Shape(steps=((begins_s, 1e9, factor),))
    loads = tuple(
        replace(each, shape=shape) if at in grown else each for at, each in enumerate(plan.bundles)
    )
    return replace(
        plan,
        bundles=loads,
        disturbed_until_s=begins_s,
        length_s=begins_s + SETTLE_S + QUIET_S,
    )


def _hot_topic(plan: LoadPlan, chance: Random) -> LoadPlan:
    """One topic takes most of a broker, for longer than the grace period."""
    mb = chance.uniform(0.65, 0.8) * BROKER_MB
    hot = BundleLoad(bundle_name(9999, 0), mb, mb * 256, 1)
    loads = (*(replace(each, mb=each.mb * 0.5, rate=each.rate * 0.5) for each in plan.bundles), hot)
    return replace(
        plan,
        bundles=loads,
        length_s=2 * 1800.0 + SETTLE_S + QUIET_S,
        step_s=15.0,
        hot=frozenset({hot.name}),
    )


def _restarted(plan: LoadPlan, chance: Random) -> LoadPlan:
    down_s, up_s = 300.0, 300.0 + chance.uniform(20, 180)
    return replace(
        plan,
        restarts=((down_s, up_s, chance.randrange(plan.brokers)),),
        disturbed_until_s=up_s,
        length_s=up_s + SETTLE_S + QUIET_S,
    )


def _rolling(plan: LoadPlan, chance: Random) -> LoadPlan:
    restarts = []
    now_s = 120.0
    for at in range(min(plan.brokers, 6)):
        restarts.append((now_s, now_s + 30.0, at))
        now_s += 90.0
    return replace(
        plan,
        restarts=tuple(restarts),
        disturbed_until_s=now_s,
        length_s=now_s + SETTLE_S + QUIET_S,
    )


def _waves(plan: LoadPlan, chance: Random) -> LoadPlan:
    """Slow waves of each namespace."""
    loads = tuple(
        replace(
            each,
            shape=Shape(amplitude=0.3, period_s=3600.0, phase=hash_of(each.name) % 97 / 97),
        )
        for each in plan.bundles
    )
    return replace(plan, bundles=loads, length_s=3600.0, step_s=15.0, disturbed_until_s=3600.0)


def _spikes(plan: LoadPlan, chance: Random) -> LoadPlan:
    """Peaks of half a minute, which are over before anything could be moved."""
    peaked = []
    for each in plan.bundles:
        steps = []
        if chance.random() < 0.3:
            begins_s = chance.uniform(120, plan.length_s - 120)
            steps.append((begins_s, begins_s + 30, chance.uniform(2, 4)))
        peaked.append(replace(each, shape=Shape(steps=tuple(steps))))
    return replace(plan, bundles=tuple(peaked))


def _broken(plan: LoadPlan, chance: Random) -> LoadPlan:
    return replace(plan, broken_share=0.05)


def _leader(plan: LoadPlan, chance: Random) -> LoadPlan:
    changes = tuple(sorted(chance.uniform(60, 600) for _ in range(chance.randint(1, 3))))
    return replace(
        plan,
        leader_changes_s=changes,
        disturbed_until_s=changes[-1],
        length_s=changes[-1] + SETTLE_S + QUIET_S,
    )


def _growing(plan: LoadPlan, chance: Random) -> LoadPlan:
    """A bundle of many topics becomes as large as half a broker: it has to be split."""
    mb = 0.5 * BROKER_MB
    large = BundleLoad(
        bundle_name(9998, 0),
        mb,
        mb * 256,
        chance.randint(100, 900),
        Shape(steps=((0.0, 120.0, 0.1),)),
    )
    return replace(
        plan,
        bundles=(*plan.bundles, large),
        disturbed_until_s=420.0,
        length_s=420.0 + SETTLE_S + QUIET_S,
    )


def _recorded(plan: LoadPlan, chance: Random) -> LoadPlan:
    from .recorded import factors  # the file is read when it is needed

    rows = factors()
    loads = tuple(
        replace(each, shape=Shape(samples=rows[chance.randrange(len(rows))]))
        for each in plan.bundles
    )
    return replace(plan, bundles=loads, disturbed_until_s=plan.length_s)


def hash_of(text: str) -> int:
    """The same in each process."""
    return sum(ord(character) * 31**at for at, character in enumerate(text)) & 0xFFFFFFFF


_SCENES = {
    "cold start": _cold_start,
    "brokers added": _brokers_added,
    "hot namespace": _hot_namespace,
    "hot topic": _hot_topic,
    "broker restarted": _restarted,
    "rolling restart": _rolling,
    "waves": _waves,
    "spikes": _spikes,
    "broken samples": _broken,
    "leader changed": _leader,
    "growing bundle": _growing,
    "recorded": _recorded,
}
assert set(_SCENES) == set(SCENES)
assert LoadBalanceConfig().shedding_strategy == THRESHOLD_SHEDDER
