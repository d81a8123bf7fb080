"""What a policy does, as seen by clients: a probe of each, and what it finds at each level."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from compat_tests.policies.model import JSON
from compat_tests.policies.world import World

Probe = Callable[[World], Awaitable[JSON]]


@dataclass(frozen=True)
class Between:
    """Equals the numbers from `low` to `high`."""

    low: float
    high: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and self.low <= other <= self.high


@dataclass(frozen=True)
class Effect:
    """What `probe` finds without the policy, with the values of the table, and with the `keys` of
    `broker.conf`. All three are tried with `settings`.
    """

    probe: Probe
    base: JSON
    namespace: JSON = None
    topic: JSON = None
    keys: Mapping[str, str] = field(default_factory=dict)
    broker: JSON = None
    settings: Mapping[str, str] = field(default_factory=dict)
