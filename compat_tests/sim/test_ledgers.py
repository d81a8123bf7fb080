"""Seeds of the ledgers' simulation, and mistakes that they find."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from geminga_protocol._tests.rounds import IS_NIGHTLY, rounds

from .ledgers import CANARIES, FOUND_BY, HIDDEN_BY, first_seed, run_seed

SEEDS_PER_BLOCK = 10


@pytest.mark.slow
@pytest.mark.parametrize("block", range(rounds(12)))
def test_nothing_confirmed_is_lost_or_changed(block: int) -> None:
    first = block * SEEDS_PER_BLOCK
    failed = {
        outcome.seed: outcome.violations[:3]
        for outcome in map(run_seed, range(first, first + SEEDS_PER_BLOCK))
        if outcome.violations
    }
    assert not failed, "python -m compat_tests.sim ledgers --verbose --seed N repeats it"


@pytest.mark.parametrize("name", CANARIES)
def test_a_mistake_can_be_planted(name: str) -> None:
    """The code that it changes is there still."""
    with CANARIES[name]():
        pass


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CANARIES.keys() - HIDDEN_BY) if IS_NIGHTLY else FOUND_BY)
def test_a_mistake_is_found(name: str) -> None:
    """The seed that is recorded does it at once, unless the code has changed since."""
    seeds = [FOUND_BY[name]] if name in FOUND_BY else []
    assert first_seed(name, [*seeds, *range(2000)]) is not None


DIGESTS = """
from compat_tests.sim.ledgers import run_seed
for seed in (0, 1, 2, 9):
    print(seed, run_seed(seed).digest)
"""


@pytest.mark.slow
def test_a_seed_repeats_exactly() -> None:
    """In a process whose sets and dicts go by other hashes, too."""
    here = "".join(f"{seed} {run_seed(seed).digest}\n" for seed in (0, 1, 2, 9))
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == here
