"""What the leader knows of the load: reports, averages, and what it has decided meanwhile.

Apache's LoadData, BrokerData, BundleRangeCache and the upkeep in ModularLoadManagerImpl. Each
report touches its own broker and bundles only, so that 200 brokers with 100 000 bundles cost the
leader a few milliseconds a report and a decision looks at brokers, never at all bundles. Pure:
times are seconds of a monotonic clock that the caller reads.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from operator import itemgetter

from geminga_broker.loadbalance.broker_load import BrokerLoad, Choice, Decision
from geminga_broker.loadbalance.model import BundleData, TimeAverageBrokerData
from geminga_broker.loadbalance.names import namespace_of
from geminga_broker.loadbalance.reports import LocalBrokerData

SETTLE_S = 30.0
"""A report this long after a decision shows whether it was carried out."""
PENDING_S = 1200.0
"""A decision is forgotten after this time if no report comes."""

NON_PERSISTENT_MAX = 100_000
"""Bundles with non-persistent topics that are remembered."""


class LoadData:
    """The state from which placement, shedding and splitting are decided."""

    def __init__(self) -> None:
        self.brokers: dict[str, BrokerLoad] = {}
        self.bundles: dict[str, BundleData] = {}
        """Averages of the bundles that some broker has, or was chosen for."""
        self.preallocations: dict[str, str] = {}
        """Bundle -> the broker that was chosen for it and doesn't report it yet."""
        self.unloaded: dict[str, float] = {}
        """Bundles that were moved within the grace period, and when, in this order."""
        self.non_persistent: set[str] = set()
        """Bundles in which a non-persistent topic was asked for."""
        self._holders: dict[str, str] = {}
        self._learned: set[str] = set()

    def has_non_persistent(self, bundle: str) -> None:
        """A non-persistent topic of the bundle was asked for."""
        if len(self.non_persistent) >= NON_PERSISTENT_MAX:
            self.non_persistent.clear()  # of bundles that are long gone, too
        self.non_persistent.add(bundle)

    def unknown(self, bundles: Iterable[str]) -> list[str]:
        """Those without averages: what the store has of them is to be given to `learn`."""
        return [bundle for bundle in bundles if bundle not in self.bundles]

    def learn(self, bundle: str, data: BundleData) -> None:
        """Averages that the store has of a bundle; before `report` or a choice, else they are
        forgotten with the next `expire`.
        """
        if bundle not in self.bundles:
            self.bundles[bundle] = data
            self._learned.add(bundle)

    def bundle(self, bundle: str) -> BundleData:
        """Averages of a bundle; of an unseen one what is assumed."""
        return self.bundles.get(bundle) or BundleData()

    def holder(self, bundle: str) -> str | None:
        """The broker that reported the bundle last."""
        return self._holders.get(bundle)

    def report(self, broker_id: str, report: LocalBrokerData, now_s: float) -> None:
        """Take a broker's new report: one sample of each of its bundles.

        A report that was taken already, by its time, changes nothing: it must not enter the
        averages twice.
        """
        broker = self.brokers.get(broker_id)
        old: Collection[str] = ()
        if broker is None:
            broker = self.brokers[broker_id] = BrokerLoad(report)
        elif broker.report.last_update and broker.report.last_update == report.last_update:
            return
        else:
            old = broker.report.last_stats
            broker.replace(report)
        lost = [bundle for bundle in old if bundle not in report.last_stats]
        for bundle in lost:
            if self._holders.get(bundle) == broker_id:
                del self._holders[bundle]
        self._settle(broker_id, broker, now_s)
        self._sum(broker_id, broker)
        for bundle in lost:
            self._forget_if_unheld(bundle)

    def _settle(self, broker_id: str, broker: BrokerLoad, now_s: float) -> None:
        """Drop what was decided and the report shows, or would show if it had been done."""
        stats = broker.report.last_stats
        kept: dict[str, Choice] = {}
        dropped = []
        for bundle, choice in broker.preallocated.items():
            if bundle in stats or now_s - choice.at_s >= SETTLE_S:
                dropped.append(bundle)
            else:
                kept[bundle] = choice
        broker.preallocated = kept
        broker.preallocated_rate = sum(each.rate for each in kept.values())
        broker.preallocated_topics = sum(each.topics for each in kept.values())
        for bundle in dropped:
            if self.preallocations.get(bundle) == broker_id:
                del self.preallocations[bundle]
            if bundle not in stats:
                self._forget_if_unheld(bundle)
        for bundle, decision in list(broker.decisions.items()):
            if (bundle in stats) == decision.arrives or now_s - decision.at_s >= SETTLE_S:
                broker.unexpect(bundle)

    def _sum(self, broker_id: str, broker: BrokerLoad) -> None:
        """Sample the bundles, and sum what the broker has."""
        sums = TimeAverageBrokerData()
        by_namespace: dict[str, int] = {}
        traffic = []
        bundles, holders = self.bundles, self._holders
        for bundle, stats in broker.report.last_stats.items():
            data = bundles.get(bundle)
            if data is None:
                data = bundles[bundle] = BundleData()
            data.update(stats)
            traffic.append(_add(sums, bundle, data))
            holders[bundle] = broker_id
            namespace = namespace_of(bundle)
            by_namespace[namespace] = by_namespace.get(namespace, 0) + 1
        for bundle in broker.preallocated:
            namespace = namespace_of(bundle)
            by_namespace[namespace] = by_namespace.get(namespace, 0) + 1
        broker.averages = sums
        traffic.sort(key=itemgetter(1), reverse=True)
        broker.traffic = traffic
        broker.reported_rate = sums.long_term_msg_rate_in + sums.long_term_msg_rate_out
        broker.by_namespace = by_namespace

    def gone(self, broker_id: str) -> None:
        """A broker isn't registered any more: what was chosen for it is open again, and what it
        had may be moved again, as it comes to brokers that the load didn't ask for it.
        """
        broker = self.brokers.pop(broker_id, None)
        if broker is None:
            return
        for bundle in broker.preallocated:
            if self.preallocations.get(bundle) == broker_id:
                del self.preallocations[bundle]
            self._forget_if_unheld(bundle)
        for bundle in broker.held():
            self.unloaded.pop(bundle, None)
        for bundle in broker.report.last_stats:
            if self._holders.get(bundle) == broker_id:
                del self._holders[bundle]
            self._forget_if_unheld(bundle)

    def keep_only(self, active: Container[str]) -> list[str]:
        """Forget the brokers that aren't registered; returns them."""
        dead = [broker_id for broker_id in self.brokers if broker_id not in active]
        for broker_id in dead:
            self.gone(broker_id)
        return dead

    def preallocate(
        self, bundle: str, broker_id: str, now_s: float, *, is_named: bool = False
    ) -> None:
        """Remember that the broker was chosen, or named by an operator: its load is counted before
        it reports it.
        """
        broker = self.brokers.get(broker_id)
        if broker is None:
            self.unallocate(bundle)
            return
        self._unchoose(bundle)
        data = self.bundles.setdefault(bundle, BundleData())
        self.preallocations[bundle] = broker_id
        broker.choose(
            bundle, Choice(now_s, data.long_term_data.rate, data.topics, is_named=is_named)
        )

    def remembered(
        self, bundle: str, active: Collection[str], permitted: Collection[str]
    ) -> str | None:
        """The broker that was chosen, if it is active and policies still allow it; what an operator
        named goes before those (Apache's ModularLoadManagerWrapper).
        """
        chosen = self.preallocations.get(bundle)
        if chosen is None or chosen not in active:
            return None
        is_named = self.brokers[chosen].preallocated[bundle].is_named
        return chosen if is_named or chosen in permitted else None

    def unallocate(self, bundle: str) -> None:
        """Forget the choice: the bundle was unloaded, split or deleted."""
        self._unchoose(bundle)
        self._forget_if_unheld(bundle)

    def _unchoose(self, bundle: str) -> None:
        broker_id = self.preallocations.pop(bundle, None)
        if broker_id is not None:
            self.brokers[broker_id].unchoose(bundle)

    def expire(self, now_s: float) -> None:
        """Forget choices and moves that no report has settled for `PENDING_S`."""
        for broker in self.brokers.values():
            for bundle, choice in list(broker.preallocated.items()):
                if now_s - choice.at_s >= PENDING_S:
                    self.unallocate(bundle)
            for bundle, decision in list(broker.decisions.items()):
                if now_s - decision.at_s >= PENDING_S:
                    broker.unexpect(bundle)
        for bundle in self._learned:
            self._forget_if_unheld(bundle)
        self._learned.clear()

    def moved(self, bundle: str, source: str, destination: str, usage: float, now_s: float) -> None:
        """A bundle is moved: until both report it, `usage` (1 is all) goes with it."""
        self.unloaded.pop(bundle, None)
        self.unloaded[bundle] = now_s
        average = self.bundle(bundle).short_term_data
        if broker := self.brokers.get(source):
            broker.expect(bundle, Decision(now_s, usage, average, arrives=False))
        if broker := self.brokers.get(destination):
            broker.expect(bundle, Decision(now_s, usage, average, arrives=True))

    def not_moved(self, bundle: str, source: str, destination: str) -> None:
        """The move failed: it may be tried again, and changes no expectation."""
        self.unloaded.pop(bundle, None)
        for broker_id in (source, destination):
            if broker := self.brokers.get(broker_id):
                decision = broker.decisions.get(bundle)
                broker.unexpect(bundle)
                if decision is not None and decision.arrives:
                    broker.gained_usage -= decision.usage
        if self.preallocations.get(bundle) == destination:
            self.unallocate(bundle)

    def recently_unloaded(self, bundle: str) -> bool:
        """Whether it was moved within the grace period that `end_grace` keeps."""
        return bundle in self.unloaded

    def end_grace(self, before_s: float) -> None:
        """Bundles that were moved before this time may be moved again."""
        for bundle, at_s in list(self.unloaded.items()):
            if at_s >= before_s:  # they stand in the order of their moves
                break
            del self.unloaded[bundle]

    def forget_bundle(self, bundle: str) -> None:
        """A bundle was split or deleted: no decision must use it again."""
        self._unchoose(bundle)
        self.bundles.pop(bundle, None)
        self.unloaded.pop(bundle, None)
        holder = self._holders.pop(bundle, None)
        broker = self.brokers.get(holder) if holder is not None else None
        if broker is not None and broker.report.last_stats.pop(bundle, None) is not None:
            broker.release(namespace_of(bundle))
            broker.traffic = [each for each in broker.traffic if each[0] != bundle]

    def _forget_if_unheld(self, bundle: str) -> None:
        if bundle not in self._holders and bundle not in self.preallocations:
            self.bundles.pop(bundle, None)


def _add(sums: TimeAverageBrokerData, bundle: str, data: BundleData) -> tuple[str, float, float]:
    """Add a bundle to the sums; returns its short-term throughput and message rate."""
    short, long = data.short_term_data, data.long_term_data
    data_in, data_out = short.msg_throughput_in, short.msg_throughput_out
    rate_in, rate_out = short.msg_rate_in, short.msg_rate_out
    sums.short_term_msg_throughput_in += data_in
    sums.short_term_msg_throughput_out += data_out
    sums.short_term_msg_rate_in += rate_in
    sums.short_term_msg_rate_out += rate_out
    sums.long_term_msg_throughput_in += long.msg_throughput_in
    sums.long_term_msg_throughput_out += long.msg_throughput_out
    sums.long_term_msg_rate_in += long.msg_rate_in
    sums.long_term_msg_rate_out += long.msg_rate_out
    return bundle, data_in + data_out, rate_in + rate_out
