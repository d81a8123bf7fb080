"""Each policy of the table holds, for a topic that is loaded already, from when it is set until it
is removed; a topic's before its namespace's, that before the broker's (spec BR-60).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from compat_tests.policies import effects_admission, effects_flow, effects_life
from compat_tests.policies.model import JSON, Policy
from compat_tests.policies.table import POLICIES
from compat_tests.policies.world import NAMESPACE_PATH, PATH, World, world
from geminga_broker.log.api import Entry
from geminga_broker.subscription.entry_filters import EntryFilter, FilterContext, FilterResult

EFFECTS = effects_admission.EFFECTS | effects_flow.EFFECTS | effects_life.EFFECTS
PROBED = [each for each in POLICIES if each.name in EFFECTS]


class _Filter:
    """Rejects every n-th entry."""

    def __init__(self, every: int) -> None:
        self._every = every

    def filter_entry(self, entry: Entry, context: FilterContext) -> FilterResult:
        del context
        rejects = entry.position.entry_id % self._every == 0
        return FilterResult.REJECT if rejects else FilterResult.ACCEPT


def installed_filters(names: str) -> Sequence[EntryFilter]:
    """Two that are installed: the first rejects all entries, the second half of them."""
    return tuple(_Filter({"f": 1, "g": 2}[name]) for name in names.split(",") if name)


@pytest.fixture
def filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the filters of the table installed."""
    for module in ("resolve", "broker_options"):
        monkeypatch.setattr(f"geminga_broker.policies.{module}.load_filters", installed_filters)


def test_each_policy_has_an_effect_or_none() -> None:
    for each in POLICIES:
        shown = [each.name in EFFECTS, bool(each.shown_by), each.kept, each.refused]
        assert shown.count(True) == 1, each.name


async def _levels(at: World, policy: Policy, base: JSON) -> None:
    """Set and remove the policy at both levels of one loaded topic, and look after each step."""
    effect = EFFECTS[policy.name]
    space, own = policy.namespace, policy.topic
    assert await effect.probe(at) == base
    if space is not None:
        await at.set(NAMESPACE_PATH, space)
        assert await effect.probe(at) == effect.namespace
    above = base if space is None else effect.namespace
    if own is not None:
        await at.set(PATH, own)
        assert await effect.probe(at) == effect.topic
        await at.remove(PATH, own)
        assert await effect.probe(at) == above
    if space is not None:
        await at.remove(NAMESPACE_PATH, space)
        assert await effect.probe(at) == (effect.base if space.lasting else base)


@pytest.mark.parametrize("policy", PROBED, ids=lambda policy: policy.name)
@pytest.mark.slow
async def test_a_policy_holds_while_it_is_set(
    policy: Policy, autojump_clock: trio.testing.MockClock, filters: None
) -> None:
    effect = EFFECTS[policy.name]
    async with world(effect.settings) as at:
        await _levels(at, policy, effect.base)


@pytest.mark.parametrize(
    "policy", [each for each in PROBED if EFFECTS[each.name].keys], ids=lambda policy: policy.name
)
@pytest.mark.slow
async def test_a_policy_holds_before_the_broker_s_setting(
    policy: Policy, autojump_clock: trio.testing.MockClock, filters: None
) -> None:
    effect = EFFECTS[policy.name]
    assert set(effect.keys) <= set(policy.keys)
    async with world({**effect.settings, **effect.keys}) as at:
        await _levels(at, policy, effect.broker)


async def test_no_namespace_lifts_the_encryption_that_the_broker_requires() -> None:
    """As in Apache, where either of them is enough."""
    async with world({"encryptionRequireOnProducer": "true"}) as at:
        for required in (True, False):
            await at.done("POST", f"{NAMESPACE_PATH}/encryptionRequired", required)
            assert await effects_admission.encryption(at) is False
