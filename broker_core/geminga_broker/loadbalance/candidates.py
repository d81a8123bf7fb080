"""Which brokers a bundle may be given to, step by step (spec CL-08; Apache's LoadManagerShared,
BrokerLoadManagerClassFilter, BrokerVersionFilter).

Each step takes brokers (`host:port`) and returns those that it leaves, in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from geminga_broker.loadbalance.isolation import IsolationPolicies
from geminga_broker.loadbalance.load_data import LoadData
from geminga_broker.loadbalance.names import namespace_of

DEFAULT_DOMAIN = "default"
"""The failure domain of a broker that is in none."""


class Rules:
    """What administrators say about placement, immutable; made anew when a record changes.

    `groups` gives the anti-affinity group of each namespace that has one, `domains` the failure
    domain of each broker id that is in one (empty if domains are off).
    """

    def __init__(
        self,
        isolation: IsolationPolicies | None = None,
        groups: Mapping[str, str] | None = None,
        domains: Mapping[str, str] | None = None,
    ) -> None:
        self.isolation = isolation or IsolationPolicies()
        self.domains = dict(domains or {})
        self._group_of: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        for namespace, name in (groups or {}).items():
            # As in Apache, the case of a group's name doesn't matter.
            if group := name.strip().lower():
                self._group_of[namespace] = group
                self._members.setdefault(group, []).append(namespace)

    def members(self, namespace: str) -> list[str]:
        """The namespaces of the same anti-affinity group, itself too; none if it has no group."""
        group = self._group_of.get(namespace)
        return self._members[group] if group is not None else []


def allowed(
    bundle: str,
    brokers: Iterable[str],
    load: LoadData,
    rules: Rules,
) -> list[str]:
    """The brokers that policies allow and that serve this kind of topics.

    A broker without a report isn't known to serve any (applyNamespacePolicies).
    """
    return rules.isolation.allowed(namespace_of(bundle), _serving(bundle, brokers, load))


def _serving(bundle: str, brokers: Iterable[str], load: LoadData) -> list[str]:
    known = load.brokers
    if bundle in load.non_persistent:
        return [
            each
            for each in brokers
            if (broker := known.get(each)) and broker.report.non_persistent_topics_enabled
        ]
    return [
        each
        for each in brokers
        if (broker := known.get(each)) and broker.report.persistent_topics_enabled
    ]


def why_nobody(bundle: str, brokers: Sequence[str], load: LoadData, rules: Rules) -> str:
    """In words, for the log: why `allowed` leaves none of these brokers."""
    serving = _serving(bundle, brokers, load)
    if not serving:
        kind = "non-persistent" if bundle in load.non_persistent else "persistent"
        return f"none of {len(brokers)} registered brokers reports that it serves {kind} topics"
    return rules.isolation.why_nobody(namespace_of(bundle), serving)


def below_topics(brokers: Sequence[str], load: LoadData, topics_max: int) -> list[str]:
    """Those with no more than `topics_max` topics, also of bundles that they were chosen for; all
    if none is (filterBrokersWithLargeTopicCount).
    """
    known = load.brokers
    left = [
        each
        for each in brokers
        if not (broker := known.get(each))
        or broker.report.num_topics + broker.preallocated_topics <= topics_max
    ]
    return left or list(brokers)


def apart(bundle: str, brokers: Sequence[str], load: LoadData, rules: Rules) -> list[str]:
    """Of a namespace in an anti-affinity group: the brokers with the fewest namespaces of the
    group, in the failure domains with the fewest (filterAntiAffinityGroupOwnedBrokers).
    """
    members = rules.members(namespace_of(bundle))
    if not members or not brokers:
        return list(brokers)
    counts = {broker_id: _held(broker_id, members, load) for broker_id in brokers}
    left = list(brokers)
    if rules.domains:
        totals: dict[str, int] = {}
        for broker_id in left:
            domain = rules.domains.get(broker_id, DEFAULT_DOMAIN)
            totals[domain] = totals.get(domain, 0) + counts[broker_id]
        least = min(totals.values())
        left = [
            broker_id
            for broker_id in left
            if totals[rules.domains.get(broker_id, DEFAULT_DOMAIN)] == least
        ]
    least = min(counts[broker_id] for broker_id in left)
    return [broker_id for broker_id in left if counts[broker_id] == least]


def may_leave(
    bundle: str, broker_id: str, brokers: Iterable[str], load: LoadData, rules: Rules
) -> bool:
    """Whether a bundle of an anti-affinity group may be shed by its broker.

    No, if all brokers that policies allow have as many namespaces of the group: it would come
    back (shouldAntiAffinityNamespaceUnload).
    """
    members = rules.members(namespace_of(bundle))
    if not members:
        return True
    counts = {each: _held(each, members, load) for each in brokers}
    if not counts:
        return True
    least = min(counts.values())
    if least == 0 or counts.get(broker_id, 0) > least:
        return True
    return any(count != least for count in counts.values())


def _held(broker_id: str, namespaces: Iterable[str], load: LoadData) -> int:
    """How many of these namespaces the broker has bundles of."""
    broker = load.brokers.get(broker_id)
    if broker is None:
        return 0
    return sum(1 for namespace in namespaces if namespace in broker.by_namespace)


def least_of_namespace(bundle: str, brokers: Sequence[str], load: LoadData) -> list[str]:
    """Those with the fewest bundles of the namespace (removeMostServicingBrokersForNamespace)."""
    if not brokers:
        return []
    namespace = namespace_of(bundle)
    known = load.brokers
    counts = [
        broker.by_namespace.get(namespace, 0) if (broker := known.get(each)) else 0
        for each in brokers
    ]
    least = min(counts)
    return [broker_id for broker_id, count in zip(brokers, counts, strict=True) if count == least]


def same_manager(brokers: Sequence[str], load: LoadData, class_name: str) -> list[str]:
    """Those whose load manager is of this class, so that both kinds don't move each other's
    bundles while it is changed (BrokerLoadManagerClassFilter). A report of an older version
    without a class counts as the same.
    """
    known = load.brokers
    same = (class_name, None)
    return [
        each
        for each in brokers
        if not (broker := known.get(each)) or broker.report.load_manager_class_name in same
    ]


def latest(brokers: Sequence[str], load: LoadData) -> list[str] | None:
    """Those of the latest version; None if a version can't be compared (BrokerVersionFilter).

    Versions of different products can't be compared.
    """
    versions = []
    for broker_id in brokers:
        broker = load.brokers.get(broker_id)
        version = parse_version((broker.report.broker_version_string or "") if broker else "")
        if version is None:
            return None
        versions.append(version)
    if len({version.product for version in versions}) != 1:
        return None
    last = max(versions)
    return [each for each, version in zip(brokers, versions, strict=True) if version == last]


class Version(NamedTuple):
    """A version to compare, as semantic versions are: a release comes after its pre-releases."""

    product: str
    numbers: tuple[int, ...]
    is_release: bool
    pre_release: tuple[tuple[int, int, str], ...]


VERSION_MAX = 256
"""Characters of a version; Python makes no number of thousands of digits."""

_VERSION = re.compile(
    r"(?:(?P<product>[A-Za-z]+)[ /])?(\d+)\.(\d+)(?:\.(\d+))?(?:[-.](?P<pre>[0-9A-Za-z.-]+))?"
    r"(?:\+[0-9A-Za-z.-]+)?"
)


def parse_version(text: str) -> Version | None:
    """A broker's version (`4.0.7`, `4.1.0-SNAPSHOT`, `Geminga 1.2.0`); None if it is none."""
    match = _VERSION.fullmatch(text.strip()) if len(text) <= VERSION_MAX else None
    if match is None:
        return None
    before = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in re.split(r"[.-]", match["pre"] or "")
        if part
    )
    numbers = tuple(int(part or 0) for part in match.group(2, 3, 4))
    return Version((match["product"] or "").lower(), numbers, not before, before)
