"""Which bundles the leader splits (spec CL-10; Apache's BundleSplitterTask, and the bundles that
NamespaceBundleFactory finds for `LARGEST` and `HOT`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.model import BundleData, NamespaceBundleStats
from geminga_broker.loadbalance.names import namespace_of
from geminga_broker.loadbalance.settings import LoadBalanceConfig
from geminga_broker.loadbalance.sheds import MIB

TOPICS_MIN = 2
"""A bundle with fewer topics is never split: its load would stay together."""
LARGEST = "LARGEST"
"""Instead of a range: the bundle with the most topics."""
HOT = "HOT"
"""Instead of a range: the bundle with the highest throughput."""


def is_too_large(
    stats: NamespaceBundleStats, data: BundleData | None, config: LoadBalanceConfig
) -> bool:
    """Whether a bundle is beyond one of the limits of a bundle.

    Topics, and producers with consumers, as last reported; messages and bytes a second on long
    average.
    """
    if stats.topics < TOPICS_MIN:
        return False
    if stats.topics > config.bundle_topics_max:
        return True
    if 0 < config.bundle_sessions_max < stats.sessions:
        return True
    if data is None:
        return False
    average = data.long_term_data
    return average.rate > config.bundle_rate_max or average.throughput > config.bundle_mb_max * MIB


def find_splits(
    load: LoadData,
    config: LoadBalanceConfig,
    bundle_count: Callable[[str], int],
    brokers: Iterable[str] | None = None,
) -> dict[str, str]:
    """Bundles that are to be split, and the broker of each.

    `bundle_count` gives the number of bundles of a namespace, which is never split beyond
    `loadBalancerNamespaceMaximumBundles`. With `brokers`, only those are looked at: for a report
    that came, the others have not changed. None with a single broker, and while splits are off.
    """
    if not (config.enabled and config.split) or len(load.brokers) <= 1:
        return {}
    found: dict[str, str] = {}
    added: dict[str, int] = {}
    for broker_id in load.brokers if brokers is None else brokers:
        broker = load.brokers.get(broker_id)
        if broker is None:
            continue
        for bundle, stats in broker.report.last_stats.items():
            if is_too_large(stats, load.bundles.get(bundle), config):
                _add(bundle, broker_id, found, added, bundle_count, config)
    return found


def still_too_large(
    load: LoadData,
    config: LoadBalanceConfig,
    bundle_count: Callable[[str], int],
    bundles: Iterable[str],
) -> dict[str, str]:
    """As `find_splits`, of these bundles only, which were found before: time has passed."""
    found: dict[str, str] = {}
    added: dict[str, int] = {}
    for bundle in bundles:
        holder = load.holder(bundle)
        broker = load.brokers.get(holder) if holder is not None else None
        stats = broker.report.last_stats.get(bundle) if broker is not None else None
        if holder is None or stats is None:
            continue
        if is_too_large(stats, load.bundles.get(bundle), config):
            _add(bundle, holder, found, added, bundle_count, config)
    return found


def _add(
    bundle: str,
    broker_id: str,
    found: dict[str, str],
    added: dict[str, int],
    bundle_count: Callable[[str], int],
    config: LoadBalanceConfig,
) -> None:
    """Unless its namespace has as many bundles as it may have, with those found before."""
    namespace = namespace_of(bundle)
    more = added.get(namespace, 0)
    if bundle_count(namespace) + more < config.namespace_bundles_max:
        found[bundle] = broker_id
        added[namespace] = more + 1


def largest(topics: Mapping[str, int]) -> str | None:
    """The bundle with the most topics, of those of a namespace; None if none has any."""
    best = max(topics, key=topics.__getitem__, default=None)
    return best if best is not None and topics[best] > 0 else None


def hottest(bundles: Mapping[str, BundleData]) -> str | None:
    """The bundle with the highest long-term throughput, of those of a namespace that have topics.

    None if none has any.
    """
    used = {bundle: data for bundle, data in bundles.items() if data.topics > 0}
    return max(used, key=lambda bundle: used[bundle].long_term_data.throughput, default=None)
