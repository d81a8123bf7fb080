"""What a seed draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from geminga_broker.config import BrokerConfig

from .. import plan as alone
from ..chance import Chances

STORE_FAULTS = (
    "cut-store",
    "cut-store",
    "reset-store",
    "slow-store",
    "missed-changes",
    "lost-answer",
)
PROCESS_FAULTS = ("kill", "kill", "restart", "pause", "pause", "clock-step")
CLIENT_FAULTS = ("cut-clients", "cut-link", "stall-link")
BOOKIE_FAULTS = ("cut-bookie", "slow-bookie")
OPERATORS = ("unload", "unload", "unload-to", "unload-topic", "split", "two-splits")
DEATHS = ("split-and-kill", "unload-and-kill", "leader-killed")
"""Of those who have begun something, or asked others to."""
AIMED = (
    ("split-and-lose", "split-and-fail", "split"),
    ("split-and-fail", "split-and-lose", "split-and-cut"),
    ("split-and-unload", "slow-store", "split"),
    ("unload-and-fail", "unload-to", "rivals", "rivals"),
    ("node-removed", "node-removed", "rivals", "unload-to"),
    ("unload", "unload-to", "cut-bookie", "slow-bookie", "rivals"),
    ("long-pause", "long-pause", "cut-store"),
    ("restart", "slow-bookie", "cut-clients"),
)
"""Each is about one kind of mistake."""
AIMED_EACH = 3
"""Of so many seeds one is aimed."""


@dataclass(frozen=True, slots=True)
class BrokersPlan:
    """One run."""

    seed: int
    work: alone.Plan
    """Topics, producers, subscriptions and their settings."""
    brokers: int
    late_brokers: int
    """Of them, so many are started later."""
    bundles: int
    session_s: float
    witness_s: float | None
    """After so long the witness of a killed broker ends its session; None: there is no witness."""
    unload_timeout_ms: int
    looks_at_once: bool
    """Whether brokers that go on are looked at before they do anything."""
    bookie_timeout_s: float
    latency_s: float
    placement: str
    """product: as the load manager says; drawn: anywhere, by the leader."""
    faults: tuple[str, ...]
    fault_count: int
    fault_pause_s: float

    @property
    def config(self) -> BrokerConfig:
        """Of each broker."""
        base = self.work.config()
        return replace(
            base,
            topics=replace(
                base.topics,
                namespace_bundles=self.bundles,
                bundle_unload_timeout_ms=self.unload_timeout_ms,
            ),
            load_balance=replace(base.load_balance, enabled=self.placement == "product"),
            log=replace(base.log, ensemble_size=1, write_quorum=1, ack_quorum=1),
        )


def make_plan(seed: int, chances: Chances) -> BrokersPlan:
    """The plan of a seed."""
    rng, witness = chances.of("brokers"), chances.of("witness")
    kinds = [
        STORE_FAULTS,
        PROCESS_FAULTS,
        CLIENT_FAULTS,
        BOOKIE_FAULTS,
        OPERATORS,
        OPERATORS,
        DEATHS,
    ]
    drawn = [name for kind in rng.sample(kinds, rng.randint(1, 5)) for name in kind]
    faults = tuple(sorted(rng.sample(drawn, rng.randint(1, min(7, len(drawn))))))
    is_aimed = seed % AIMED_EACH == AIMED_EACH - 1
    if is_aimed:
        faults = AIMED[seed // AIMED_EACH % len(AIMED)]
    brokers = rng.choice((2, 2, 3, 3, 4))
    return BrokersPlan(
        seed=seed,
        work=_work(seed, rng),
        brokers=brokers,
        late_brokers=rng.choice((0, 0, 1, brokers - 1)),
        bundles=rng.choice((1, 2, 4)),
        session_s=rng.choice((2.0, 4.0, 8.0)),
        witness_s=witness.choice((None, 0.0, 0.05, 0.5)),
        unload_timeout_ms=rng.choice((10_000, 10_000, 50, 500)),
        looks_at_once=rng.random() < 0.5,
        bookie_timeout_s=rng.choice((1.0, 5.0)),
        latency_s=rng.choice((0.0005, 0.005, 0.05)),
        placement=rng.choice(("product", "drawn")),
        faults=faults,
        fault_count=rng.choice((6, 12) if is_aimed else (2, 4, 8, 12)),
        fault_pause_s=rng.choice((0.2, 1.0, 3.0)),
    )


def _work(seed: int, rng: Random) -> alone.Plan:
    """A smaller workload than one broker has, over a longer time."""
    plan = alone.make_plan(seed, rng)
    pause_s = rng.choice((0.1, 0.5, 1.0))
    return replace(
        plan,
        clients=min(plan.clients, 2),
        keep_alive_s=rng.choice((2, 5)),
        mark_delete_rate=rng.choice((0.5, 5.0)),
        producers=tuple(
            replace(
                each, client=each.client % 2, count=min(each.count, 20), pause_s=pause_s, burst=2
            )
            for each in plan.producers
        ),
        subscriptions=tuple(
            replace(
                each,
                consumers=tuple(
                    replace(one, client=one.client % 2, seeks=0.0) for one in each.consumers
                ),
            )
            for each in plan.subscriptions
        ),
    )
