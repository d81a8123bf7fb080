"""What must hold in a run of the load simulation."""

from __future__ import annotations

from geminga_broker.loadbalance.load_data import PENDING_S
from geminga_broker.loadbalance.settings import THRESHOLD_SHEDDER
from geminga_broker.loadbalance.sheds import MARGIN

from .cluster import SimBroker, World
from .plan import BROKER_MB, QUIET_S

IMBALANCE_MAX = 0.10
"""How far the most used broker may be above the average in the end."""
TOLERANCE = 0.03
"""Of samples, which are noisy."""
DECISION_S_MAX = 0.1


class Checks:
    """Looks at a run after each step, and at its end."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._seen = 0
        self._moved_at: dict[str, tuple[float, int]] = {}
        self.settled_moves = 0

    def step(self, world: World) -> None:
        """After a step."""
        self._owners(world)
        self._moves(world)
        if len(self.found) > 20:
            raise AssertionError("\n".join(self.found[:5]))

    def _owners(self, world: World) -> None:
        """Each bundle is somewhere, once."""
        waiting = [name for _, name in world.in_transit]
        held = [name for broker in world.brokers.values() for name in broker.bundles]
        everywhere = waiting + held
        if len(everywhere) != len(set(everywhere)) or set(everywhere) != set(world.loads):
            self.found.append(f"{world.now_s:.0f} s: bundles are lost, or at two brokers")

    def _moves(self, world: World) -> None:
        grace_s = world.plan.config.grace_s
        term = id(world.leader)
        quiet_since_s = world.plan.length_s - QUIET_S
        for at_s, move in world.moves[self._seen :]:
            last = self._moved_at.get(move.bundle)
            if last is not None and last[1] == term and at_s - last[0] < grace_s:
                self.found.append(f"{move.bundle} is moved after {at_s - last[0]:.0f} s again")
            self._moved_at[move.bundle] = at_s, term
            if move.bundle in world.plan.hot:
                self.found.append(f"{at_s:.0f} s: the hot bundle {move.bundle} is moved")
            if move.source == move.destination:
                self.found.append(f"{move.bundle} is moved to where it is")
            if at_s > quiet_since_s >= world.plan.disturbed_until_s:
                self.settled_moves += 1
        self._seen = len(world.moves)
        for name in world.orphans:
            self._moved_at.pop(name, None)
        world.orphans.clear()

    def end(self, world: World) -> None:
        """At the end."""
        for kind, took_s in world.timings.longest.items():
            if took_s > DECISION_S_MAX:
                self.found.append(f"a decision took {took_s * 1000:.0f} ms: {kind}")
        if world.refused:
            self.found.append(f"no broker was found for {len(world.refused)} bundles")
        load = world.leader.load
        for broker in load.brokers.values():
            if any(world.now_s - each.at_s > PENDING_S for each in broker.preallocated.values()):
                self.found.append("choices are left over")
        if world.plan.config.shedding_strategy == THRESHOLD_SHEDDER:
            self._balance(world)
        if world.plan.scene == "spikes" and world.moves:
            late = [each for each in world.moves if each[0] > 120]
            if len(late) > len(world.loads) / 20 + world.splits / 4:
                self.found.append(f"{len(late)} moves because of short peaks")
        if world.plan.scene == "growing bundle" and not world.splits:
            self.found.append("the growing bundle was not split")

    def _balance(self, world: World) -> None:
        plan = world.plan
        usages = {
            name: broker.usage(world.now_s - plan.step_s) for name, broker in world.brokers.items()
        }
        average = sum(usages.values()) / len(usages)
        for name, usage in usages.items():
            above = usage - average
            if above > IMBALANCE_MAX + TOLERANCE and self._could_shed(world, name, usages, average):
                self.found.append(f"{name} is {above * 100:.0f} points above the average")
            below = average - usage
            started = world.brokers[name].report.start_timestamp > 1_700_000_000_000
            if started and below > IMBALANCE_MAX + TOLERANCE:
                self.found.append(f"{name} was restarted, and is {below * 100:.0f} points below it")
        if self.settled_moves > max(3, len(world.loads) / 30):
            self.found.append(f"{self.settled_moves} moves when all was settled")

    def _could_shed(
        self, world: World, name: str, usages: dict[str, float], average: float
    ) -> bool:
        """Whether some bundle of the broker could go where there is room: looks at all."""
        broker = world.brokers[name]
        if len(broker.bundles) < 2:
            return False
        rest = [usage for other, usage in usages.items() if other != name]
        limit = average + world.plan.config.threshold
        return any(
            not world.leader.load.recently_unloaded(each)
            and (
                min(rest) + share <= limit
                or (
                    share <= limit
                    and max(usages[name] - share, min(rest) + share) < usages[name] - MARGIN
                )
            )
            for each, share in _shares(broker, world.now_s)
        )


def _shares(broker: SimBroker, now_s: float) -> list[tuple[str, float]]:
    return [
        (name, load.mb * load.shape.at(now_s) / BROKER_MB / broker.capacity)
        for name, load in broker.bundles.items()
    ]


def imbalance(world: World) -> float:
    """How far the most used broker is above the average, in points."""
    usages = [broker.usage(world.now_s - world.plan.step_s) for broker in world.brokers.values()]
    return 100 * (max(usages) - sum(usages) / len(usages))
