"""Many seeds, the proof that a seed repeats, and breaks that must be found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from geminga_protocol._tests.rounds import IS_NIGHTLY

from .canary import CANARIES, FOUND_BY, first_seed
from .run import run_seed

BLOCKS = 20 if IS_NIGHTLY else 6
SEEDS_PER_BLOCK = 10
CANARY_SEEDS = 40
"""Within so many seeds each break is found."""


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_nothing_is_lost_repeated_or_left_over(block: int) -> None:
    first = block * SEEDS_PER_BLOCK
    failed = {
        outcome.seed: outcome.violations[:3]
        for outcome in map(run_seed, range(first, first + SEEDS_PER_BLOCK))
        if outcome.violations
    }
    assert not failed, "python -m compat_tests.sim --verbose --seed N repeats it"


@pytest.mark.slow
@pytest.mark.parametrize("name", CANARIES)
def test_a_break_is_found(name: str) -> None:
    """The seed that is recorded does it at once, unless the code has changed since."""
    assert first_seed(name, [FOUND_BY[name], *range(CANARY_SEEDS)]) is not None


DIGESTS = """
from compat_tests.sim.run import run_seed
for seed in range(4):
    print(seed, run_seed(seed).digest)
"""


def digests(hash_seed: str) -> str:
    """Hashes of the first seeds' events, from a process of their own."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.slow
def test_a_seed_repeats_exactly() -> None:
    """In one process and in others whose sets and dicts go by other hashes."""
    here = "".join(f"{seed} {run_seed(seed).digest}\n" for seed in range(4))
    assert here.count("\n") == 4
    assert here == digests("1") == digests("2")
