"""A crash in each step of a bookie's life (BK-02, BK-03, BK-06): what was acknowledged is there,
what was fenced stays fenced, nothing is called damaged, and collection takes nothing that is
needed."""

from __future__ import annotations

from functools import partial

import pytest

from geminga_bookie._tests.power import (
    Trouble,
    calm,
    failed_moments,
    failing_syncs,
    full_disk,
    lives,
    run,
)
from geminga_bookie._tests.power_canaries import CANARIES
from geminga_protocol._tests.rounds import IS_NIGHTLY, rounds

EVERY = 1 if IS_NIGHTLY else 3
"""A life has about 250 steps; a crash comes in each of so many."""
CANARY_SEEDS = 6
"""Within so many seeds each mistake is found."""
TROUBLES: dict[str, Trouble] = {"calm": calm, "failing syncs": failing_syncs, "full": full_disk}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(4)))
@pytest.mark.parametrize("way", ["power", "kill"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_crash_in_each_step(trouble: str, way: str, seed: int) -> None:
    assert failed_moments(seed, TROUBLES[trouble], kill=way == "kill", every=EVERY) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(4)))
def test_a_crash_that_tears_pages(seed: int) -> None:
    """The journal may report a record that was under way, but loses none."""
    assert failed_moments(seed, tears=True, every=EVERY) == []


@pytest.mark.parametrize("seed", range(rounds(40)))
def test_crashes_follow_one_another(seed: int) -> None:
    """Also in the middle of recovery."""
    run(partial(lives, seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", CANARIES)
def test_a_mistake_is_found(name: str) -> None:
    trouble = failing_syncs if "after a failed sync" in name else calm
    with CANARIES[name]():
        found = any(
            failed_moments(seed, trouble, at_most=1, every=2) for seed in range(CANARY_SEEDS)
        )
    assert found
