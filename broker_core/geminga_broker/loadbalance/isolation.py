"""Which brokers may serve a namespace: isolation policies (spec CL-08).

Apache's NamespaceIsolationPolicies, NamespaceIsolationPolicyImpl, MinAvailablePolicy; the record
is `/admin/clusters/{cluster}/namespaceIsolationPolicies` of the configuration store, an object
of policies by name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec

from geminga_runtime.json_text import read_json
from geminga_runtime.logs import shown

_log = logging.getLogger(__name__)

MIN_AVAILABLE = "min_available"
_REGEX_MAX = 4096
"""Characters of a regular expression; a longer one matches nothing."""
_REGEX_BYTES_MAX = 1 << 20
"""Memory that one may take; one that needs more matches nothing."""
_COMPILED_MAX = 1024
_CACHED_MAX = 16_384


class AutoFailoverPolicyData(msgspec.Struct):
    """When secondary brokers serve too: with `min_available` while fewer than `min_limit` primary
    ones are registered. Apache's AutoFailoverPolicyData.
    """

    policy_type: str = MIN_AVAILABLE
    parameters: dict[str, str] = {}

    @property
    def min_limit(self) -> int:
        """Primary brokers that make secondary ones unnecessary; 0 if there is no such number."""
        try:
            return int(self.parameters.get("min_limit", "0"))
        except ValueError:
            return 0


class NamespaceIsolationData(msgspec.Struct):
    """Regular expressions of namespaces, and of the hosts of their brokers.

    Apache's NamespaceIsolationData.
    """

    namespaces: list[str] = []
    primary: list[str] = []
    secondary: list[str] = []
    auto_failover_policy: AutoFailoverPolicyData | None = None
    unload_scope: str | None = None

    def covers(self, namespace: str) -> bool:
        """Whether it is a policy of the namespace."""
        return matches_any(self.namespaces, namespace)

    def is_primary(self, host: str) -> bool:
        """Whether a broker on this host serves its namespaces."""
        return matches_any(self.primary, host)

    def is_secondary(self, host: str) -> bool:
        """Whether a broker on this host serves them while primary ones are missing."""
        return matches_any(self.secondary, host)

    def fails_over(self, primaries: int) -> bool:
        """Whether so few primary brokers are registered that secondary ones serve too."""
        policy = self.auto_failover_policy
        return policy is not None and primaries < policy.min_limit


class IsolationPolicies:
    """All policies of a cluster, immutable; answers are cached."""

    def __init__(self, policies: Mapping[str, NamespaceIsolationData] | None = None) -> None:
        self.policies = dict(policies or {})
        self._of = lru_cache(_CACHED_MAX)(self._find)
        self._shared = lru_cache(_CACHED_MAX)(self._is_shared)

    def of(self, namespace: str) -> NamespaceIsolationData | None:
        """The first policy of the namespace."""
        return self._of(namespace) if self.policies else None

    def is_shared(self, host: str) -> bool:
        """Whether brokers on this host are primary in no policy: only those serve namespaces
        without a policy.
        """
        return self._shared(host) if self.policies else True

    def _find(self, namespace: str) -> NamespaceIsolationData | None:
        found = (policy for policy in self.policies.values() if policy.covers(namespace))
        return next(found, None)

    def _is_shared(self, host: str) -> bool:
        return not any(policy.is_primary(host) for policy in self.policies.values())

    def allowed(self, namespace: str, brokers: Iterable[str]) -> list[str]:
        """The brokers (`host:port`) that may serve the namespace, in the order given.

        Of a namespace with a policy: primary brokers, and secondary ones while too few primary
        are there. Of another: brokers that are primary for nobody.
        """
        if not self.policies:
            return list(brokers)
        policy = self.of(namespace)
        if policy is None:
            return [broker for broker in brokers if self.is_shared(host_of(broker))]
        brokers = list(brokers)
        primary = [broker for broker in brokers if policy.is_primary(host_of(broker))]
        if not policy.fails_over(len(primary)):
            return primary
        chosen = set(primary)
        return [
            broker for broker in brokers if broker in chosen or policy.is_secondary(host_of(broker))
        ]

    def why_nobody(self, namespace: str, brokers: Sequence[str]) -> str:
        """In words, for the log: why `allowed` leaves none of these brokers."""
        names = (name for name, policy in self.policies.items() if policy.covers(namespace))
        name = next(names, None)
        if name is None:
            return (
                f"each of {len(brokers)} brokers is a primary one of an isolation policy, and no "
                "policy covers this namespace: name it in a policy, or leave a broker to nobody"
            )
        policy = self.policies[name]
        wanted = [*policy.primary, *(policy.secondary if policy.fails_over(0) else ())]
        return (
            f"isolation policy {shown(name)} of its namespace wants a host that matches "
            f"{shown(str(wanted))}, which none of {len(brokers)} brokers has: change the policy's "
            "brokers, or start one of them"
        )


def host_of(broker_id: str) -> str:
    """The host of `host:port`."""
    return broker_id.rpartition(":")[0]


def matches_any(expressions: Sequence[str], text: str) -> bool:
    """Whether the whole text matches one of them; one that is malformed matches nothing."""
    return any(
        compiled is not None and compiled.fullmatch(text) is not None
        for compiled in map(_compiled, expressions)
    )


def is_expression(text: str) -> bool:
    """Whether it is a regular expression that can match something."""
    return _compiled(text) is not None


class _Expression(Protocol):
    """A compiled one."""

    def fullmatch(self, text: str, /) -> object:
        """None unless the whole text matches."""


@lru_cache(_COMPILED_MAX)
def _compiled(expression: str) -> _Expression | None:
    """By RE2, whose time grows with the text only: tenants choose the names of namespaces, and one
    expression that backtracks would hold up every broker. Unlike Java's it has no lookaround.
    """
    import re2  # only needed where there are policies

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _REGEX_BYTES_MAX
    try:
        if len(expression) > _REGEX_MAX:
            raise re2.error("it is too long")
        compiled: _Expression = re2.compile(expression, options)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        _log.warning(
            "isolation policies: the expression %s matches nothing: %s",
            shown(expression),
            why.decode("utf-8", "replace") if isinstance(why, bytes) else why,
        )
        return None
    return compiled


def decode_policies(raw: bytes) -> IsolationPolicies:
    """The record of all policies. Raises ValueError if it isn't one."""
    return IsolationPolicies(read_json(raw, dict[str, NamespaceIsolationData]))


def encode_policies(policies: Mapping[str, NamespaceIsolationData]) -> bytes:
    """The record of all policies."""
    return msgspec.json.encode(policies)
