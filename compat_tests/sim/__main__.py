"""`python -m compat_tests.sim --seeds 2000`: run seeds, print those that fail."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType

from .chance import Chances
from .plan import make_plan
from .run import Outcome, run_seed

SEED_S = 60
"""Real time of one run; one that takes longer spins without virtual time going on."""


def main() -> int:
    """Exit code 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--verbose", action="store_true", help="print every event")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    if chosen.seed is not None:
        seeds = range(chosen.seed, chosen.seed + 1)
    failed: list[int] = []
    for seed in seeds:
        if not _run(seed, seeds, verbose=chosen.verbose):
            failed.append(seed)
        if (done := seed - seeds[0] + 1) % 100 == 0:
            print(f"{done} seeds, {len(failed)} failed", flush=True)
    cpu_s = time.process_time()
    print(f"{len(seeds)} seeds, {len(failed)} failed, {cpu_s / len(seeds):.3f} s of CPU a seed")
    return 1 if failed else 0


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"it spins: {SEED_S} s of real time have passed")


def _run(seed: int, seeds: range, *, verbose: bool) -> bool:
    if verbose:
        print(make_plan(seed, Chances(seed).of("plan")))
    signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(SEED_S)
    try:
        outcome = run_seed(seed, verbose=verbose)
    except BaseException:
        print(f"in seed {seed}", flush=True)
        raise
    finally:
        signal.alarm(0)
    for line in outcome.lines or ():
        print(line)
    if outcome.violations:
        _print_failure(outcome)
    elif len(seeds) == 1:
        print(f"seed {seed}: {outcome.events} events, hash {outcome.digest}")
    return not outcome.violations


def _print_failure(outcome: Outcome) -> None:
    print(f"\nseed {outcome.seed} FAILED after {outcome.virtual_s:.1f} virtual seconds")
    for text in outcome.violations[:10]:
        print(f"  {text}")
    print(
        f"repeat: .venv/bin/python -m compat_tests.sim --seed {outcome.seed} --verbose", flush=True
    )


if __name__ == "__main__":
    sys.exit(main())
