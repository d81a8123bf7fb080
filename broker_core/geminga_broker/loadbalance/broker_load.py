"""What the leader knows of the load of one broker (spec CL-07; Apache's BrokerData)."""

from __future__ import annotations

from geminga_broker.loadbalance.model import (
    TimeAverageBrokerData,
    TimeAverageMessageData,
    Weights,
)
from geminga_broker.loadbalance.names import namespace_of
from geminga_broker.loadbalance.reports import LocalBrokerData


class Decision:
    """A bundle that was moved to a broker or from it, and what that adds to its load."""

    __slots__ = ("arrives", "at_s", "rate", "throughput", "usage")

    def __init__(
        self, at_s: float, usage: float, average: TimeAverageMessageData, *, arrives: bool
    ) -> None:
        sign = 1.0 if arrives else -1.0
        self.at_s = at_s
        self.usage = sign * usage
        self.throughput = sign * average.throughput
        self.rate = sign * average.rate
        self.arrives = arrives


class Choice:
    """A bundle that a broker was chosen for, and its long-term rate and topics."""

    __slots__ = ("at_s", "is_named", "rate", "topics")

    def __init__(self, at_s: float, rate: float, topics: int, *, is_named: bool) -> None:
        self.at_s = at_s
        self.rate = rate
        self.topics = topics
        self.is_named = is_named
        """Whether an operator named the broker."""


class BrokerLoad:
    """A broker's last report, the sums of its bundles' averages, and decisions about it."""

    __slots__ = (
        "_usage",
        "averages",
        "by_namespace",
        "decisions",
        "gained_usage",
        "pending_rate",
        "pending_throughput",
        "pending_usage",
        "preallocated",
        "preallocated_rate",
        "preallocated_topics",
        "report",
        "reported_rate",
        "traffic",
    )

    def __init__(self, report: LocalBrokerData) -> None:
        self.report = report
        self.averages = TimeAverageBrokerData()
        self.reported_rate = 0.0
        """Long-term messages a second of the bundles in its report."""
        self.traffic: list[tuple[str, float, float]] = []
        """Short-term throughput and message rate of each bundle in its report, the highest
        throughput first: shedding begins there.
        """
        self.preallocated: dict[str, Choice] = {}
        """Bundles that it was chosen for since its last report."""
        self.preallocated_rate = 0.0
        """Long-term messages a second of those that aren't in its report."""
        self.preallocated_topics = 0
        self.by_namespace: dict[str, int] = {}
        """How many bundles of each namespace it has, or was chosen for."""
        self.decisions: dict[str, Decision] = {}
        self.pending_usage = 0.0
        """What moves since its report add to its use, 1 is all of it."""
        self.pending_throughput = 0.0
        self.pending_rate = 0.0
        self.gained_usage = 0.0
        """What all moves to it have added to its use, reported or not."""
        self._usage: tuple[Weights, float] | None = None

    @property
    def throughput(self) -> float:
        """Bytes a second in and out, as reported."""
        return self.report.msg_throughput_in + self.report.msg_throughput_out

    @property
    def rate(self) -> float:
        """Messages a second in and out, as reported."""
        return self.report.msg_rate_in + self.report.msg_rate_out

    @property
    def expected_throughput(self) -> float:
        """Bytes a second once all moves since the report are done."""
        return max(0.0, self.throughput + self.pending_throughput)

    @property
    def expected_rate(self) -> float:
        """Messages a second once all moves since the report are done."""
        return max(0.0, self.rate + self.pending_rate)

    def usage(self, weights: Weights) -> float:
        """The weighted use of its scarcest resource as reported, 1 is all of it."""
        known = self._usage
        if known is None or (known[0] is not weights and known[0] != weights):
            known = self._usage = weights, self.report.max_usage(weights)
        return known[1]

    def expected_usage(self, weights: Weights) -> float:
        """As `usage`, once all moves since the report are done."""
        return max(0.0, self.usage(weights) + self.pending_usage)

    def long_term_rate(self) -> float:
        """Long-term messages a second of its bundles and of those it was chosen for."""
        return self.reported_rate + self.preallocated_rate

    def replace(self, report: LocalBrokerData) -> None:
        """Take a newer report."""
        self.report = report
        self._usage = None

    def choose(self, bundle: str, choice: Choice) -> None:
        """Count a bundle that it was chosen for."""
        self.preallocated[bundle] = choice
        if bundle not in self.report.last_stats:
            self.preallocated_rate += choice.rate
            self.preallocated_topics += choice.topics
            namespace = namespace_of(bundle)
            self.by_namespace[namespace] = self.by_namespace.get(namespace, 0) + 1

    def unchoose(self, bundle: str) -> None:
        """Count it no longer."""
        choice = self.preallocated.pop(bundle, None)
        if choice is None or bundle in self.report.last_stats:
            return
        self.release(namespace_of(bundle))
        if self.preallocated:
            self.preallocated_rate -= choice.rate
            self.preallocated_topics -= choice.topics
        else:  # so that errors of rounding don't add up
            self.preallocated_rate = 0.0
            self.preallocated_topics = 0

    def held(self) -> set[str]:
        """The bundles that it has once all moves since its report are done."""
        going = {each for each, decision in self.decisions.items() if not decision.arrives}
        return (self.report.last_stats.keys() | self.decisions.keys()) - going

    def release(self, namespace: str) -> None:
        """It has one bundle of a namespace less."""
        left = self.by_namespace.get(namespace, 0) - 1
        if left > 0:
            self.by_namespace[namespace] = left
        else:
            self.by_namespace.pop(namespace, None)

    def expect(self, bundle: str, decision: Decision) -> None:
        """Count a move."""
        self.unexpect(bundle)
        self.decisions[bundle] = decision
        self.pending_usage += decision.usage
        self.pending_throughput += decision.throughput
        self.pending_rate += decision.rate
        if decision.arrives:
            self.gained_usage += decision.usage

    def unexpect(self, bundle: str) -> None:
        """Count it no longer."""
        decision = self.decisions.pop(bundle, None)
        if decision is None:
            return
        if self.decisions:
            self.pending_usage -= decision.usage
            self.pending_throughput -= decision.throughput
            self.pending_rate -= decision.rate
        else:
            self.pending_usage = self.pending_throughput = self.pending_rate = 0.0
