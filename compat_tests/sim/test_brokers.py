"""Seeds of the simulation of several brokers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from geminga_protocol._tests.rounds import IS_NIGHTLY

from .brokers import CANARIES, FOUND_BY, HIDDEN_BY, first_seed, run_seed

BLOCKS = 20 if IS_NIGHTLY else 4
SEEDS_PER_BLOCK = 10


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_bundles_have_one_owner_and_topics_lose_nothing(block: int) -> None:
    first = block * SEEDS_PER_BLOCK
    failed = {
        outcome.seed: outcome.violations[:3]
        for outcome in map(run_seed, range(first, first + SEEDS_PER_BLOCK))
        if outcome.violations
    }
    assert not failed, "python -m compat_tests.sim brokers --verbose --seed N repeats it"


@pytest.mark.parametrize("name", CANARIES)
def test_a_mistake_can_be_planted_in_a_broker(name: str) -> None:
    """The code that it changes is there still."""
    with CANARIES[name]():
        pass


def test_each_mistake_is_found_or_known_to_be_harmless() -> None:
    assert sorted([*FOUND_BY, *HIDDEN_BY]) == sorted(CANARIES)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_BY)
def test_a_mistake_in_a_broker_is_found(name: str) -> None:
    """The seed that is recorded does it at once, unless the code has changed since."""
    assert first_seed(name, [FOUND_BY[name], *range(200)]) is not None


DIGESTS = """
from compat_tests.sim.brokers import run_seed
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
