"""`python -m compat_tests.sim --seeds 2000`: run seeds, print those that fail.

Of `ledgers`: several bookies under the ledger client; of `broker`: SDK and broker on one bookie; of
`brokers`: several brokers that take bundles from each other; of `loads`: traces of load over many
brokers. Without a kind all: so many seeds of ledgers, and a tenth of them of the others.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import NamedTuple

from . import brokers, ledgers, loads, run
from .chance import Chances
from .outcome import Outcome
from .plan import make_plan

SEED_S = 60
"""Time of the processor for one run; one that takes more spins without virtual time going on."""
BROKER_SHARE = 10
"""Without a kind, of so many seeds one runs the others too."""


class Canaries(NamedTuple):
    """Mistakes that a simulation finds, and what looks for the first seed that does."""

    names: Mapping[str, object]
    first_seed: Callable[[str, Iterable[int]], int | None]


class _Kind:
    """A simulation."""

    def __init__(
        self,
        name: str,
        run_seed: Callable[..., Outcome],
        plan: Callable[[int], object],
        canaries: Canaries | None = None,
        table: Callable[[Sequence[Outcome]], list[str]] | None = None,
    ) -> None:
        self.name = name
        self.run_seed = run_seed
        self.plan = plan
        self.canaries = canaries
        self.table = table
        """Lines about what was measured."""


KINDS = {
    each.name: each
    for each in (
        _Kind(
            "ledgers",
            ledgers.run_seed,
            ledgers.plan_of,
            Canaries(ledgers.CANARIES, ledgers.first_seed),
        ),
        _Kind("broker", run.run_seed, lambda seed: make_plan(seed, Chances(seed).of("plan"))),
        _Kind(
            "brokers",
            brokers.run_seed,
            brokers.plan_of,
            Canaries(brokers.CANARIES, brokers.first_seed),
        ),
        _Kind(
            "loads",
            loads.run_seed,
            loads.plan_of,
            Canaries(loads.CANARIES, loads.first_seed),
            loads.table,
        ),
    )
}


def main() -> int:
    """Exit code 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.sim", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=sorted(KINDS), help="only these; else all")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--verbose", action="store_true", help="print every event")
    parser.add_argument(
        "--canaries", action="store_true", help="print the first seed that finds each mistake"
    )
    chosen = parser.parse_args()
    if chosen.canaries:
        kinds = [each for each in KINDS.values() if chosen.kind in (None, each.name)]
        return 1 if sum([_print_canaries(each, chosen.seeds) for each in kinds]) else 0
    failed = 0
    for kind in KINDS.values():
        if chosen.kind in (None, kind.name):
            count = chosen.seeds
            if chosen.kind is None and kind.name != "ledgers":
                count = -(-count // BROKER_SHARE)
            seeds = range(chosen.first, chosen.first + count)
            if chosen.seed is not None:
                seeds = range(chosen.seed, chosen.seed + 1)
            failed += _run_all(kind, seeds, verbose=chosen.verbose)
    return 1 if failed else 0


def _run_all(kind: _Kind, seeds: range, *, verbose: bool) -> int:
    """How many failed."""
    failed = 0
    outcomes = []
    begun_s = time.process_time()
    for seed in seeds:
        outcome = _run(kind, seed, seeds, verbose=verbose)
        failed += bool(outcome.violations)
        if kind.table is not None:
            outcomes.append(outcome)
        if (done := seed - seeds[0] + 1) % 500 == 0:
            print(f"{kind.name}: {done} seeds, {failed} failed", flush=True)
    cpu_s = (time.process_time() - begun_s) / len(seeds)
    for line in kind.table(outcomes) if kind.table is not None else ():
        print(line)
    print(f"{kind.name}: {len(seeds)} seeds, {failed} failed, {cpu_s:.3f} s of CPU a seed")
    return failed


def _print_canaries(kind: _Kind, seeds: int) -> int:
    """How many are not found."""
    if kind.canaries is None:
        return 0
    missed = 0
    for name in kind.canaries.names:
        found = kind.canaries.first_seed(name, range(seeds))
        missed += found is None
        print(f"{name}: {'NOT FOUND' if found is None else found}", flush=True)
    count = len(kind.canaries.names)
    print(f"{kind.name}: {count} mistakes, {missed} not found by {seeds} seeds")
    return missed


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"it spins: {SEED_S} s of the processor's time have passed")


def _run(kind: _Kind, seed: int, seeds: range, *, verbose: bool) -> Outcome:
    if verbose:
        print(kind.plan(seed))
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, SEED_S)
    try:
        outcome = kind.run_seed(seed, verbose=verbose)
    except BaseException:
        print(f"in seed {seed} of {kind.name}", flush=True)
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    for line in outcome.lines or ():
        print(line)
    if outcome.violations:
        _print_failure(kind, outcome)
    elif len(seeds) == 1:
        print(f"{kind.name}, seed {seed}: {outcome.events} events, hash {outcome.digest}")
    return outcome


def _print_failure(kind: _Kind, outcome: Outcome) -> None:
    print(f"\nseed {outcome.seed} FAILED after {outcome.virtual_s:.1f} virtual seconds")
    for text in outcome.violations[:10]:
        print(f"  {text}")
    print(
        f"repeat: .venv/bin/python -m compat_tests.sim {kind.name} --seed {outcome.seed} --verbose",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
